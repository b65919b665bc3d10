"""The page contains the values of the run files, and no text of theirs becomes HTML."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from plotly.offline import get_plotlyjs

import aacp
from aacp.cli import main
from aacp.errors import NothingToReport
from aacp.report.page import write_report
from aacp.report.run import read_run
from aacp.report.tables import reproduction
from aacp.runs.folder import RunFolder
from report.pages import Page
from report.runs import ATTACK, Made, asking, copy_of, nasty, scoring, sweep_of
from sampling import sampled


def files_of(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*")}


def test_the_numbers_of_the_page_are_those_of_the_files(made: Made, tmp_path: Path) -> None:
    page = Page(write_report(made.path, tmp_path / "page.html"))
    data = json.loads((made.path / "evaluation.json").read_text())
    before, after = data["before"], data["after"]
    points = 100 * (after["test"] - before["test"])
    assert page.row("Accuracy, test") == [
        f"{100 * before['test']:.2f} %",
        f"{100 * after['test']:.2f} %",
        f"+{points:.2f} points",
    ]
    assert page.row("MACs")[:2] == [f"{before['macs'] / 1e6:.4g} M", f"{after['macs'] / 1e6:.4g} M"]
    cut = 1 - after["params"] / before["params"]
    assert page.row("Parameters")[2] == f"\N{MINUS SIGN}{100 * cut:.1f} %"
    assert page.row("Weights as a file")[1] == f"{after['file_bytes'] / 1e3:.4g} kB"
    timing = json.loads((made.path / "export.json").read_text())["timings"][0]["after"]
    low, middle, high = (f"{1e3 * timing[key]:.3g}" for key in ("low_seconds", "seconds", "high_seconds"))
    assert page.row("ONNX Runtime 1.20")[1] == f"{middle} ms {low}\N{EN DASH}{high}"
    for word in (made.request.command, made.request.hardware, "torch 2.11.0", "seed 7", "network output"):
        assert word.lower() in page.text.lower()


def test_every_limit_stands_with_target_reached_and_slack(made: Made, tmp_path: Path) -> None:
    page = Page(write_report(made.path, tmp_path / "page.html"))
    limit = made.choice.limits[0]
    cells = page.row("MACs: 50 % less")
    assert cells[:2] == [f"{limit.full / 1e6:.4g} M", f"{limit.full / 2e6:.4g} M"]
    removed, slack = 100 * (1 - limit.reached / limit.full), 100 * (0.5 - limit.reached / limit.full)
    assert cells[2] == f"{limit.reached / 1e6:.4g} M \N{MINUS SIGN}{removed:.2f} %"
    assert cells[3:] == [f"{slack:.2f} %", "met"]


def test_names_from_files_never_become_markup(made: Made, tmp_path: Path) -> None:
    harmless = Page(write_report(copy_of(made, tmp_path / "plain", graph=replace(made.graph, notes=("a note",))).path))
    hostile = Page(write_report(nasty(made, tmp_path / "<b>nasty").path))
    assert hostile.elements == harmless.elements
    assert " ".join(ATTACK.split()) in hostile.text
    for figure in hostile.figures.values():
        for trace in figure["data"]:
            # plotly reads tags in hover texts; ours are the only ones.
            assert "<img" not in json.dumps(trace)
            assert "<script" not in json.dumps(trace)


@pytest.mark.parametrize(
    ("kept", "words", "headings"),
    [
        ({"graph.json"}, "traced, not searched yet", ["Costs", "Channels", "Channels that are not pruned"]),
        ({"run.json"}, "no results yet", ["How to reproduce"]),
        ({"history.jsonl"}, "60 structures evaluated so far", ["Search"]),
        ({"structure.json"}, "MACs: 50 % less", ["Limits"]),
        ({"evaluation.json"}, "92.0 % instead of 91.7 % right", ["Before and after"]),
        ({"export.json"}, "1.70 times as fast", ["Before and after"]),
        ({"training"}, "30 epochs of training", ["Training"]),
        ({"run.json", "training"}, "30 epochs of training", ["Training", "How to reproduce"]),
        (
            {"graph.json", "history.jsonl"},
            "60 structures evaluated so far",
            ["Costs", "Channels", "Search", "Accuracy against cost", "Channels that are not pruned"],
        ),
        (
            {"graph.json", "structure.json"},
            "right before training",
            ["Before and after", "Limits", "Channels", "Channels that are not pruned"],
        ),
    ],
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, set) else "",
)
def test_a_partial_folder_shows_what_it_has(
    made: Made, tmp_path: Path, kept: set[str], words: str, headings: list[str]
) -> None:
    run = copy_of(made, tmp_path / "partial").path
    candidates = RunFolder(run).read_log("history.jsonl")
    for file in run.iterdir():
        if file.name not in kept:
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    if "history.jsonl" in kept:
        RunFolder(run).write_log("history.jsonl", candidates)  # as a search without a request writes it
    before = files_of(run)
    page = Page(write_report(run))
    assert files_of(run) == before | {"report.html"}
    assert words in page.text
    assert page.headings == headings
    assert "Some files could not be read" not in page.text


FILES = "run.json graph.json structure.json evaluation.json export.json history.jsonl training/log.jsonl".split()


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content", sampled([b"{\n", b"\xff\xfe\x00\n", b"[]\n", b'{"format": 1}\n', b"3\n", b"null\n"], 3)
)
def test_a_broken_file_is_named_and_the_rest_is_shown(made: Made, tmp_path: Path, name: str, content: bytes) -> None:
    run = copy_of(made, tmp_path / "broken").path
    (run / "manifest.json").unlink(missing_ok=True)  # which has copies of the small files
    (run / name).write_bytes(content)
    page = Page(write_report(run))
    assert f"{name} is left out" in page.text
    assert len(page.figures) >= 1


def test_what_belongs_to_another_graph_is_left_out(made: Made, tmp_path: Path) -> None:
    choice = replace(made.choice, counts=(*made.choice.counts, 3))
    run = copy_of(made, tmp_path / "other", choice=choice).path
    with (run / "history.jsonl").open("a") as file:
        file.write('{"number": 99, "generation": 9, "counts": [1, 2], "score": 0.5}\n')
    page = Page(write_report(run))
    assert "structure.json is left out" in page.text
    assert "history.jsonl is left out" in page.text


def test_with_nothing_to_show_the_error_says_why(made: Made, tmp_path: Path) -> None:
    with pytest.raises(NothingToReport, match="There is no folder"):
        write_report(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(NothingToReport, match="Give one or more"):
        write_report([])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingToReport, match=r"nothing to show in empty\. Give the folder of a run"):
        write_report(tmp_path / "empty")
    (tmp_path / "empty" / "run.json").write_text("{")
    with pytest.raises(NothingToReport, match=r"run\.json is left out because it cannot be read"):
        write_report(tmp_path / "empty")
    assert "empty contains nothing" in Page(write_report([tmp_path / "empty", made.path], tmp_path / "page.html")).text


@pytest.mark.slow
def test_the_page_is_written_to_the_run_or_above_all_runs_or_to_the_given_path(made: Made, tmp_path: Path) -> None:
    first, second = (copy_of(made, tmp_path / name).path for name in ("a", "b"))
    assert aacp.write_report(str(first)) == first / "report.html"
    assert aacp.write_report([first, second]) == tmp_path / "report.html"
    assert aacp.write_report(first, tmp_path / "new" / "page.html") == tmp_path / "new" / "page.html"
    assert aacp.write_report(first, second) == second / "report.html"


@pytest.mark.slow
def test_two_rates_become_shades_and_a_table_of_all_runs(made: Made, tmp_path: Path) -> None:
    runs = sweep_of(made, tmp_path / "sweep")
    page = Page(write_report([run.path for run in runs]))
    shades = page.figures["all-rates"]["data"][0]
    assert shades["z"] == [pytest.approx([93.0, 91.5]), pytest.approx([92.5, 91.1])]
    layout = page.figures["all-rates"]["layout"]
    assert [text.split("\xa0")[0] for text in layout["xaxis"]["ticktext"]] == ["30", "60"]
    assert [text.split("\xa0")[0] for text in layout["yaxis"]["ticktext"]] == ["0", "50"]  # no limit is rate 0
    for run in runs:
        assert page.row(run.path.name)[4].startswith(f"{100 * (run.evaluation.after.test or 0):.2f} % test")
    assert page.text.startswith("4 runs of resnet20 on CIFAR-10")
    above = Page(write_report(tmp_path / "sweep"))  # the folder that holds them stands for them
    assert [above.row(run.path.name) for run in runs] == [page.row(run.path.name) for run in runs]


@pytest.mark.slow
def test_one_rate_becomes_a_line_through_the_mean_of_its_seeds(made: Made, tmp_path: Path) -> None:
    scores = [(0.3, 0.93), (0.5, 0.92), (0.5, 0.90)]
    runs = [
        copy_of(made, tmp_path / f"run{place}", request=asking(made, rate, 0.3), evaluation=scoring(made, test))
        for place, (rate, test) in enumerate(scores)
    ]
    page = Page(write_report([run.path for run in runs]))
    mean, dots, unpruned = page.figures["all-rates"]["data"]
    assert (mean["x"], mean["y"]) == ([30.0, 50.0], pytest.approx([93.0, 91.0]))
    assert dots["y"] == pytest.approx([93.0, 92.0, 90.0])
    assert set(unpruned["y"]) == {100 * made.evaluation.before.test}  # type: ignore[operator]


def test_runs_that_cannot_be_compared_still_share_a_page(made: Made, tmp_path: Path) -> None:
    other = copy_of(made, tmp_path / "other", request=replace(made.request, model="vgg16", metric="iou"))
    shutil.rmtree(other.path / "training")
    (other.path / "evaluation.json").unlink()
    page = Page(write_report([made.path, other.path], tmp_path / "page.html"))
    assert "all-rates" not in page.figures
    assert page.text.startswith("2 runs")
    assert page.row("other")[4].endswith("estimated")


def test_the_command_prints_where_the_page_is(made: Made, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["report", str(made.path), "--out", str(tmp_path / "p.html"), "--json"])
    assert json.loads(result.stdout) == {"report": str(tmp_path / "p.html")}
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(main, ["report", str(made.path), str(tmp_path / "empty"), "--out", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (0, f"{tmp_path / 'empty'} holds nothing to show.\n")
    result = CliRunner().invoke(main, ["report", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert result.stderr.startswith("NothingToReport: There is no folder")
    assert CliRunner().invoke(main, ["report"]).exit_code == 2


def test_plotly_is_in_the_page_in_less_than_half_its_size(made: Made, tmp_path: Path) -> None:
    page = write_report(made.path, tmp_path / "page.html").read_text()
    packed = re.search(r'<script type="application/zlib">(.*?)</script>', page)
    assert packed is not None
    assert zlib.decompress(base64.b64decode(packed[1])).decode() == get_plotlyjs()
    assert len(page) < len(get_plotlyjs()) / 2


def test_without_plotly_the_command_says_how_to_install_it(made: Made, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    result = CliRunner().invoke(main, ["report", str(made.path), "--out", str(tmp_path / "p.html")])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "MissingPackage: plotly is not installed. Install it with: pip install 'aacp[report]'.\n"


def test_every_command_that_led_to_the_result_is_shown_once(made: Made) -> None:
    run = read_run(made.path)
    (training,) = run.trainings
    assert str(reproduction(run)).count(made.request.command) == 1
    assert training.request is not None
    tuned = replace(training, request=replace(training.request, command="aacp finetune runs/first"))
    shown = str(reproduction(replace(run, trainings=(training, tuned))))
    assert f"{made.request.command}\naacp finetune runs/first<" in shown


def test_a_run_with_a_largest_drop_says_that_it_has_several_searches(made: Made) -> None:
    run = read_run(made.path)
    words = f"default, {made.request.evaluations:,} evaluations"
    assert f"{words}<" in str(reproduction(run))
    assert f"{words} for each share that was tried<" in str(
        reproduction(replace(run, request=replace(made.request, max_drop=0.01, shrink="macs")))
    )
