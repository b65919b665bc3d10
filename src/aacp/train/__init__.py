"""How accuracy comes back: recipes, one training loop, distillation from the unpruned network."""
