"""The command of one seed, in a process of its own that ends with the `aacp repeat` that started it."""

from __future__ import annotations

import sys

from aacp.workers.lifetime import end_with


def main() -> None:
    """Run `aacp ARGUMENTS` for `python -m aacp.commands.seed PID ARGUMENTS`, where PID is that of `aacp repeat`."""
    _, parent, *arguments = sys.argv
    end_with(int(parent))
    from aacp.cli import main as run_command  # which takes seconds: the parent may end meanwhile

    sys.argv = ["aacp", *arguments]
    run_command(arguments, prog_name="aacp")


if __name__ == "__main__":
    main()
