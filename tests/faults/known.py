"""Faults whose outcome is known to be not as promised, with the reason; docs/reliability.md lists them."""

from __future__ import annotations

KNOWN: dict[str, str] = {}
