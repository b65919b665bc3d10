"""What the paper prunes, and what it prunes it on."""
