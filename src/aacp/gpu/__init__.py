"""What is written for GPUs, in Triton, and used by whoever it makes faster: only where it has been seen to run."""
