"""Write the page of the API reference to a file.

    python docs/generate_api.py build/pages/docs/api.md

The page holds one mkdocstrings directive for each name in `aacp.__all__`. The names are grouped by the subpackage that
defines them, under the first sentence of its docstring, so that no list has to follow when modules move.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections import defaultdict
from pathlib import Path

import aacp

HEAD = """# API reference

Every public name can be imported from `aacp`. The headings name the package or module that defines the names below it.
"""


def group_of(name: str) -> str:
    """Return the subpackage or top-level module that defines a public name, such as `aacp.search`."""
    package, child = getattr(aacp, name).__module__.split(".")[:2]
    return f"{package}.{child}"


def section(group: str, names: list[str]) -> str:
    """Return the Markdown of one group: heading, summary, one directive per name."""
    summary = (inspect.getdoc(importlib.import_module(group)) or "").split("\n\n")[0].replace("\n", " ")
    directives = [f"::: aacp.{name}" for name in sorted(names, key=str.lower)]
    return "\n\n".join([f"## `{group}`", summary, *directives]) + "\n"


def page() -> str:
    """Return the Markdown of the whole page."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in aacp.__all__:
        groups[group_of(name)].append(name)
    return "\n".join([HEAD, *(section(group, names) for group, names in sorted(groups.items()))])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
