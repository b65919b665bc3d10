"""Loads the set-up of all tests, but not in the process that only hands tests out to workers: imports take seconds."""

import gc
import os

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of numpy: threads of two workers wait for each other on two cores


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    if not plugins.hasplugin("dsession"):
        gc.disable()  # until all tests are collected: what is imported stays
        plugins.import_plugin("set_up")
