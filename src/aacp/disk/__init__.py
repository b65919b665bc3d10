"""The disk: the only package that opens, reads, writes and locks files."""
