"""The commands with many options, and the options that they share; `aacp.cli` adds them to the program."""
