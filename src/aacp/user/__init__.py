"""What the user gives and gets: checked values, functions that may raise, events for callbacks, notebook tables."""
