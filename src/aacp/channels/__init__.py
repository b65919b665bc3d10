"""The plain data of the method: which channels belong together, how many of them stay, which counts are legal."""
