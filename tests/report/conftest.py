"""One run for all tests of the report; a test that changes it makes a copy."""

from pathlib import Path

import pytest

from report.runs import Made, make_run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_run(Path(tmp_path_factory.mktemp("runs")) / "r20")
