"""What a structure costs, without building it."""
