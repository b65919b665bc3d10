"""From a trained network to a smaller one: what is asked, the stages in order, several budgets side by side."""
