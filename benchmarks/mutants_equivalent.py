"""Mutants made by the tool that no test can notice, each with the reason, by file and name."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {}
