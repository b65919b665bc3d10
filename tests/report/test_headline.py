"""The headline and the remarks say what was achieved and what was not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aacp.cost.budget import Limit
from aacp.report.headline import headline, limits_text, remarks, subject
from aacp.report.run import Run
from aacp.report.tables import before_and_after
from aacp.runs.chosen import ChosenStructure, LimitResult
from aacp.runs.exports import BeforeAfter, ExportRecord, Latency
from aacp.runs.requests import Request
from aacp.runs.scores import Evaluation, NetworkMetrics
from report.runs import metrics

REQUEST = Request("aacp prune", "resnet56", "cifar10:data", (), 0.125, "default", 10, 0, {}, "", "")
BEFORE = metrics(0.934, 0.94, 1000, 500, 100)
AFTER = metrics(0.937, 0.93, 499, 260, 80)
RUN = Run("r56", REQUEST, evaluation=Evaluation(BEFORE, AFTER))


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")


def remarks_of(run: Run) -> list[tuple[str, bool]]:
    return [(plain(remark.text), remark.is_good) for remark in remarks(run)]


def with_after(after: NetworkMetrics) -> Run:
    return replace(RUN, evaluation=Evaluation(BEFORE, after))


def test_one_sentence_says_what_was_achieved() -> None:
    assert plain(headline(RUN)) == (
        "resnet56 on CIFAR-10: 50.1 % fewer MACs, 48 % fewer parameters, 93.7 % instead of 93.4 % right"
    )
    assert remarks_of(RUN) == []


@pytest.mark.parametrize(
    ("after", "sentence", "remark"),
    [
        (replace(AFTER, test=0.921), "92.1 % instead of 93.4 % right", "Accuracy lost: 1.30 points on test data."),
        (replace(AFTER, test=0.93399), "93.4 % right as before", None),
        (replace(AFTER, test=0.9343), "93.43 % instead of 93.40 % right", None),
        (replace(AFTER, test=0.934), "93.4 % right as before", None),
        (replace(AFTER, test=None), "93.0 % instead of 94.0 % right", "Accuracy lost: 1.00 points on held-out data."),
        (replace(AFTER, test=None, holdout=None), "not scored yet", None),
        (replace(AFTER, costs={**AFTER.costs, "macs": 1000}), "no fewer MACs", None),
        (
            replace(AFTER, costs={**AFTER.costs, "params": 600}),
            "20 % more parameters",
            "Not smaller: 20 % more parameters than before.",
        ),
    ],
)
def test_a_cost_or_score_that_got_worse_is_reported(after: NetworkMetrics, sentence: str, remark: str | None) -> None:
    assert sentence in plain(headline(with_after(after)))
    assert remarks_of(with_after(after)) == ([] if remark is None else [(remark, False)])


@pytest.mark.parametrize(
    ("seconds", "spread", "words", "is_good"),
    [
        (0.001, 0.0001, "2.00 times as fast in ORT on a CPU: 1 ms instead of 2 ms for a batch of 8.", True),
        (
            0.0019,
            0.0001,
            "Too noisy to tell whether it is faster in ORT on a CPU: 1.9 ms instead of 2 ms for a batch of 8.",
            None,
        ),
        (0.00199, 0.00005, "Not faster in ORT on a CPU: 1.99 ms instead of 2 ms for a batch of 8.", False),
        (0.003, 0.0001, "Slower in ORT on a CPU: 3 ms instead of 2 ms for a batch of 8.", False),
    ],
)
def test_faster_is_only_what_is_faster_beyond_the_spread(
    seconds: float, spread: float, words: str, is_good: bool | None
) -> None:
    before, after = (Latency(time, time - spread, time + spread) for time in (0.002, seconds))
    exported = ExportRecord(18, 0.0, 10, 5, (BeforeAfter("ORT", "a CPU", 8, 100, before, after),))
    assert remarks_of(replace(RUN, exported=exported))[-1] == (words, is_good)


@pytest.mark.parametrize(
    ("low", "high", "after", "words"),
    [
        (1.1, 2.5, 0.003, "1.33 times as fast"),
        (0.9, 1.5, 0.003, "Too noisy to tell"),
        (0.95, 1.09, 0.003, "Not faster"),
        (0.5, 0.9, 0.005, "Slower"),
        (0.5, 0.9, 0.003, "Too noisy to tell"),  # "Slower: 3 ms instead of 4 ms" would contradict itself
    ],
)
def test_networks_that_were_timed_in_turns_are_compared_turn_by_turn(
    low: float, high: float, after: float, words: str
) -> None:
    busy = (Latency(0.004, 0.001, 0.009), Latency(after, 0.001, 0.009))  # quartiles alone say nothing here
    exported = ExportRecord(18, 0.0, 10, 5, (BeforeAfter("ORT", "a CPU", 8, 100, *busy, low, high),))
    assert remarks_of(replace(RUN, exported=exported))[-1][0].startswith(words)


def test_the_headline_and_the_table_state_the_same_change_of_the_time() -> None:
    by_medians = (Latency(0.004, 0.003, 0.005), Latency(0.002, 0.001, 0.003))  # twice as fast
    timing = BeforeAfter("ORT", "a CPU", 8, 100, *by_medians, 1.5, 1.7, median_speedup=1.6)
    run = replace(RUN, exported=ExportRecord(18, 0.0, 10, 5, (timing,)))
    assert remarks_of(run)[-1][0].startswith("1.60 times as fast in the median turn in ORT on a CPU: 2")
    page = str(before_and_after(run))
    assert "\N{MINUS SIGN}37.5" in page  # 1 / 1.6 of the time
    assert "Their change is the median over turns" in page


def test_a_missed_limit_is_reported_with_both_numbers() -> None:
    missed = LimitResult("latency", "s", None, 0.0018, 0.004, 0.0018, 0.002)
    met = LimitResult("macs", "MACs", 0.5, None, 1000, 500, 499)
    run = replace(RUN, choice=ChosenStructure((1,), 0.9, (missed, met)))
    assert remarks_of(run) == [("Limit missed: latency is 2 ms, but the limit is 1.8 ms.", False)]


def test_another_metric_is_a_number_with_its_name() -> None:
    run = replace(RUN, request=replace(REQUEST, metric="iou", data="imagefolder:/data/roads"))
    assert plain(headline(run)).endswith("0.937 instead of 0.934 iou")
    assert subject(run) == "resnet56 on /data/roads"


def test_limits_in_short() -> None:
    limits = (Limit("macs", 0.5), Limit("latency", at_most=1.8e-3))
    assert plain(limits_text(limits)) == "MACs -50 %, latency ≤ 1.8 ms"
    assert limits_text(()) == "no limit"
