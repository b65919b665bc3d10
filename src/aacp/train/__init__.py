"""Training of pruned networks: recipes, one training loop, distillation from the unpruned network."""
