"""`python -m aacp`: the command line, where the program aacp is not on the path."""

from aacp.cli import main

if __name__ == "__main__":
    main(prog_name="aacp")
