"""`aacp bench` on the command line, with few seeds and evaluations."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import aacp
from aacp.bench import compare, fig3, slack
from aacp.bench.commands import bench


def invoked(*arguments: str) -> str:
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.mark.slow
def test_fig3_prints_every_reading_and_draws_the_curve(tmp_path: Path) -> None:
    output = invoked("fig3", "--seeds", "1", "--iterations", "20", "--out", str(tmp_path))
    for part in (
        "IDE as released (N 50)",
        "IDE, fig3 preset",
        "IDE as printed",
        "ABC as ABCPruner",
        "ABC, classical",
        "numpy",
        "seeds: 0 to 0",
    ):
        assert part in output
    page = (tmp_path / "fig3.html").read_text()
    assert "not what its authors ran" in page
    assert "<script src=" not in page.replace('charset="utf-8" ', "")  # nothing is fetched: it opens offline
    assert len(json.loads((tmp_path / "fig3.json").read_text())) == len(fig3.readings())


@pytest.mark.slow
def test_curves_never_rise_and_count_iterations_not_generations() -> None:
    for reading in fig3.readings()[-2:]:
        distances = fig3._distances(reading, 0, 15)
        assert len(distances) == 16
        assert distances == sorted(distances, reverse=True)
    curve = fig3.MeanCurve("two seeds", [[3.0, 2.0, 0.0, 0.0], [3.0, 3.0, 3.0, 1.0]])
    assert curve.solved(1) == 0
    assert curve.solved(3) == 0.5
    assert curve.median_iterations is None
    assert curve.final == 0.5


def test_the_regret_of_one_seed_has_no_spread() -> None:
    def rows(*regrets: list[float]) -> list[str]:
        comparison = compare.Comparison("random", {"paper": list(regrets)}, {}, {})
        return compare.table(comparison, (10, 20)).splitlines()

    assert rows([1.5, 0.25])[-1] == "| paper | 1.50 | 0.25 |"
    assert rows([1.0, 0.0], [3.0, 0.0])[-1] == "| paper | 2.00 ± 1.41 | 0.00 ± 0.00 |"


def test_the_median_may_be_reached_after_more_iterations_than_the_default() -> None:
    late = [1.0] * 1200 + [0.0] * 801
    never = [1.0] * 2001
    assert fig3.MeanCurve("one of three fails", [late, never, late]).median_iterations == 1200
    assert fig3.MeanCurve("two of three fail", [late, never, never]).median_iterations is None


@pytest.mark.slow
def test_search_compares_at_equal_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "NETWORKS", ("resnet20",))
    comparison = compare.measure(
        "random", seeds=2, methods=("default", "paper", "uniform"), marks=(10, 20), own_lengths={"paper": 30}
    )
    assert {method: len(rows) for method, rows in comparison.regrets.items()} == {
        "default": 2,
        "paper": 2,
        "uniform": 2,
    }
    assert min(min(row) for rows in comparison.regrets.values() for row in rows) >= 0
    assert comparison.regrets["uniform"][0][0] == comparison.regrets["uniform"][0][1]
    text = compare.table(comparison, (10, 20))
    assert f"{comparison.mean('paper')[2]:.2f} ± {comparison.spread('paper')[2]:.2f} |" in text
    assert "| after 30 evaluations |" in text
    assert next(line for line in text.splitlines() if line.startswith("| uniform")).endswith("| - |")


def test_the_searches_of_a_comparison_report_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with aacp.show_progress():
        assert len(compare.true_scores("random", compare.problem_of("knapsack", 0), 0, (3, 6))) == 2
    assert capsys.readouterr() == ("", "")


def test_the_authors_methods_are_also_compared_at_their_own_length() -> None:
    assert compare.OWN_LENGTHS == {"released": 2000, "paper": 2000, "de": 2000}


def test_slack_shows_what_each_form_of_algorithm_1_leaves() -> None:
    rows = {row.form: row for row in slack.slacks(("vgg16",), (1 / 8,), draws=200)}
    assert rows["two-sided"].mean < 0.3 < 5 < rows["shrink"].mean
    assert rows["two-sided"].idle == rows["two-sided"].broken == rows["shrink"].broken == 0
    assert rows["printed"].broken > 0
    assert "two-sided" in slack.slack_table(list(rows.values()))


@pytest.mark.slow
def test_proposals_are_cheap() -> None:
    """Bounds a slow and busy machine can keep; the benchmark prints the figures."""
    assert slack.overhead("paper", evaluations=50) < 3
    assert slack.overhead("ide+", evaluations=50) < 10


@pytest.mark.slow
def test_searching_needs_neither_torch_nor_plotly() -> None:
    code = "import sys, aacp.bench.commands, aacp.search.methods; print({'torch', 'plotly', 'rich'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set()\n"
