"""Workers: other processes, here or on other machines, that work for the one that runs the search."""
