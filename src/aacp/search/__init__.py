"""Search methods: which structure to evaluate next, and the loop that runs them."""
