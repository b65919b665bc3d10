"""Triton kernels, each used only after it has compiled and passed a self-test on this machine."""
