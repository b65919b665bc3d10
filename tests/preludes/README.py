"""What README.md assumes: a trained network and loaders."""

from preludes.small import loaders, trained_network

model = trained_network()
train_loader, test_loader = loaders()
