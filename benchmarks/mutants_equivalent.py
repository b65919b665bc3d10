"""Mutants made by the tool that no test can notice, each with the reason, by file and name."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {
    "cli.py: line 173: drop type= of click.argument": "click.Path() without conditions returns every text as it is",
    "commands/options.py: line 71: give metavar=None to click.option": (
        "the placeholder of --tie in the help is NAMES, the name of its type, and nothing reads it"
    ),
    "pipeline/task.py: line 87: give repr=None to field": "dataclasses take None for False",
}
