"""Which structure to try next."""
