"""From a trained network to a smaller one: requests, plans, the stages of a run, and sweeps over budgets."""
