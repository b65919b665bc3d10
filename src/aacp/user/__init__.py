"""What the user gives and gets: checked values, functions that may raise, progress, events, notebook tables."""
