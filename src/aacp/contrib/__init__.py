"""Adapters for training libraries that aacp does not depend on; each imports its library when it is first used."""
