"""Tests of the disk wait for it, all others do not."""

import os
import posix

import pytest


@pytest.fixture(autouse=True)
def _waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", posix.fsync)
