"""README.md names every command."""

from __future__ import annotations

import re
from pathlib import Path

from aacp.cli import main

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_table_of_commands_has_them_all() -> None:
    assert set(re.findall(r"^\| `aacp (\w+)", README, flags=re.MULTILINE)) == set(main.commands)
