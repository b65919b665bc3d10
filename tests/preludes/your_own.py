"""What docs/your_own.md assumes: a trained network, loaders, and a data set class with transforms."""

from functools import partial

import torch
from torch import Tensor
from torch.utils.data import Dataset

from preludes.small import SmallNetwork, digits, loaders, trained_network

MyNetwork = SmallNetwork
model = trained_network()
train_loader, test_loader = loaders()


class MyImages(Dataset[tuple[Tensor, int]]):
    """Digits that go through a transform; `root` stands for a folder of files."""

    def __init__(self, root: str, transform: torch.nn.Module) -> None:
        self.images, labels = digits(240).tensors
        self.targets = labels.tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.images[index]), self.targets[index]


root = "images"
evaluation_transform = torch.nn.Identity()
training_transform = partial(torch.roll, shifts=1, dims=-1)
my_dictionaries = [{"image": image, "label": label} for image, label in digits(240)]
