"""What a run is asked, as it is written down."""

from __future__ import annotations

import pytest

from aacp.pipeline.request import _command


@pytest.mark.parametrize("program", ["/home/me/.venv/bin/aacp", "/somewhere/src/aacp/cli.py", "aacp"])
def test_our_commands_can_be_typed_again(program: str) -> None:
    assert _command([program, "prune", "my net"]) == "aacp prune 'my net'"


def test_a_program_of_the_users_keeps_its_name() -> None:
    assert _command(["work/prune.py", "--fast"]) == "work/prune.py --fast"
