"""What docs/distributed.md assumes: its code is a script. On one CPU, Fabric launches it in this process."""

__name__ = "__main__"
