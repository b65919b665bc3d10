"""Set-up of all tests: makes torchvision importable beside a CPU-only torch, one thread per worker, shared caches."""

import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, settings

import cached_operators
import cached_traces
import plain_tests
from aacp.zoo._torchvision import import_torchvision

os.environ["AACP_STRICT_RULES"] = "1"  # a rule that fails is a bug: it must fail a test, not freeze channels
torch.set_num_threads(1 if os.environ.get("PYTEST_XDIST_WORKER") else 2)
import_torchvision()
# Limits of time per example fail on a busy machine.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
# pytest adds a handler to each logger that does not propagate, three times a test, and torch has dozens of them. With
# a handler torch also writes down every step of an export.
for logger in logging.root.manager.loggerDict.values():
    if isinstance(logger, logging.Logger) and logger.name.startswith("torch"):
        logger.propagate = True
# Without a GPU `torch.manual_seed` notes the call, with a stack trace, for each kind of GPU.
SEED = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed


def pytest_collection_finish() -> None:
    """Keep what was imported, and the tests themselves, out of all garbage collections."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Let fsync only check its descriptor: without it a loss of power costs data, but no end of a process does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_workers_of_loaders() -> Iterator[None]:
    """Let the garbage collector end the workers of a loader soon.

    What is left of a loader that raised an error is a cycle. Python then ends its queues before the loader can tell its
    workers to end, and torch waits five seconds for them, in whatever test the collection happens to run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)
        yield


@pytest.fixture(scope="session", autouse=True)
def _shared_traces_and_operators() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        cached_traces.share(patch)
        cached_operators.share(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def _brief_timing() -> Iterator[None]:
    """Small networks are equally fast before and after pruning: no amount of time decides which one is faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aacp.pipeline.delivery.MAX_TIMING_SECONDS", 0.0)
        yield


@pytest.fixture(autouse=True)
def _seeded() -> None:
    SEED(0)


@pytest.fixture(autouse=True)
def _watched_accelerations(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_tests.watch(request.node, monkeypatch)


@pytest.fixture
def among_scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let scripts of benchmarks import each other, and forget them after: some have the names of folders of tests."""
    folder = Path(__file__).parent.parent / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    known = set(sys.modules)
    with mock.patch.dict(os.environ):
        yield
    for name in {path.stem for path in folder.glob("*.py")} - known:
        sys.modules.pop(name, None)
