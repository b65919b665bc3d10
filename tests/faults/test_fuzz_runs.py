"""Files of a run folder, changed at random: a value or one of our errors, in bounded time, and nothing is imported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from aacp.cli import main
from aacp.pipeline.request import plan_of, read_request
from aacp.report.page import write_report
from aacp.runs.chosen import ChosenStructure
from aacp.runs.folder import RunFolder
from aacp.runs.scores import Evaluation
from aacp.train.recipe import Recipe
from faults.fuzzing import any_bytes, changed_bytes, changed_json, few, fewer, in_time, read_or_reject

OLD = Path(__file__).parent.parent / "previous_version"
FILES = ("run.json", "graph.json", "structure.json", "evaluation.json", "history.jsonl", "search.json")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(OLD, tmp_path_factory.mktemp("fuzz") / "run"))


def written(folder: Path, name: str, data: st.DataObject) -> None:
    """Change one file of the folder, by bytes or by values; the others are valid."""
    for file in FILES:
        shutil.copyfile(OLD / file, folder / file)
    valid = (OLD / name).read_bytes()
    if name.endswith(".jsonl") or data.draw(st.booleans()):
        (folder / name).write_bytes(data.draw(st.one_of(any_bytes(), changed_bytes(valid))))
    else:
        (folder / name).write_text(json.dumps(data.draw(changed_json(json.loads(valid)))))


@given(st.data())
@few
def test_fuzz_records(run: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILES))
    written(run, name, data)
    folder = RunFolder(run)
    read_or_reject(lambda: plan_of(read_request(folder), recipe=None))
    for file, record in (("structure.json", ChosenStructure), ("evaluation.json", Evaluation)):
        read_or_reject(lambda file=file, record=record: record.from_json(folder.read_json(file)))  # type: ignore[misc]
    read_or_reject(lambda: folder.read_log("history.jsonl"))


@pytest.mark.slow
@given(st.data())
@fewer
def test_fuzz_reports(run: Path, data: st.DataObject) -> None:
    written(run, data.draw(st.sampled_from(FILES)), data)
    read_or_reject(lambda: write_report(run))


@given(st.data())
@few
def test_fuzz_recorded_recipes(data: st.DataObject) -> None:
    valid = json.loads((OLD / "run.json").read_text())["recipe"]
    changed = data.draw(changed_json(valid))
    if isinstance(changed, dict):  # Request and TrainingRequest reject everything else
        read_or_reject(lambda: Recipe(**Recipe.completed(changed)))


@pytest.mark.slow
@given(st.data())
@fewer
def test_fuzz_commands_on_a_run_folder(run: Path, data: st.DataObject) -> None:
    written(run, data.draw(st.sampled_from(("run.json", "structure.json", "graph.json"))), data)
    command = data.draw(st.sampled_from(["evaluate", "finetune"]))
    with in_time():
        # A score that cannot be imported ends the command once the files of the run have been read.
        result = CliRunner().invoke(main, [command, str(run), "--device", "cpu", "--metric", "math:no_such"])
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1, result.stderr
