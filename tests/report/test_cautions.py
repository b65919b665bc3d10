"""Cautions: remarks on results that should not be trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aacp.cost.budget import Limit
from aacp.report.cautions import cautions
from aacp.report.headline import remarks
from aacp.report.run import Run
from aacp.runs.chosen import ChosenStructure
from aacp.runs.exports import BeforeAfter, ExportRecord, Latency
from aacp.runs.requests import Request, TrainingRequest
from aacp.runs.scores import Evaluation
from report.runs import metrics

REQUEST = Request("aacp prune", "resnet56", "cifar10:data", (), 0.125, "default", 10, 0, {}, "", "")
TRAINING = TrainingRequest("aacp prune", {"epochs": 1}, {}, "", "")
BEFORE, AFTER = metrics(0.934, 0.94, 1000, 500, 100), metrics(0.937, 0.93, 499, 260, 80)
RUN = Run(
    "r56", REQUEST, training=TRAINING, choice=ChosenStructure((1,), 0.93, ()), evaluation=Evaluation(BEFORE, AFTER)
)


def remarks_of(run: Run) -> list[tuple[str, bool]]:
    plain = str.maketrans({"\N{NO-BREAK SPACE}": " ", "\N{MINUS SIGN}": "-"})
    return [(remark.text.translate(plain), remark.is_good) for remark in cautions(run)]


def test_a_run_without_problems_has_no_cautions() -> None:
    assert remarks_of(RUN) == []
    assert remarks_of(replace(RUN, evaluation=None)) == []


@pytest.mark.parametrize(
    ("seconds", "limits", "is_reported"),
    [
        ((0.0019, 0.0021), (), True),
        ((0.0019, 0.001), (), False),  # faster in one of the two
        ((0.0019, 0.0021), (Limit("latency", at_most=0.003),), False),
    ],
)
def test_fewer_macs_without_less_time_are_reported_with_the_options_to_use(seconds, limits, is_reported: bool) -> None:
    before, *after = (Latency(time, 0.98 * time, 1.02 * time) for time in (0.00191, *seconds))
    timings = tuple(BeforeAfter("ORT", "a CPU", 8, 100, before, each) for each in after)
    run = replace(RUN, request=replace(REQUEST, limits=limits), exported=ExportRecord(18, 0.0, 10, 5, timings))
    remarks_now = remarks_of(run)
    assert [
        text.startswith("The network has fewer MACs but is not faster") and "--step auto" in text
        for text, _ in remarks_now
    ] == ([True] * is_reported)


def test_a_network_that_is_slower_in_int8_than_in_float_is_reported() -> None:
    def timed(*names_and_seconds: tuple[str, float]) -> list[tuple[str, bool]]:
        before = Latency(0.003, 0.0029, 0.0031)
        times = [(name, Latency(time, 0.98 * time, 1.02 * time)) for name, time in names_and_seconds]
        timings = tuple(BeforeAfter(name, "a CPU", 1, 100, before, after) for name, after in times)
        return remarks_of(replace(RUN, exported=ExportRecord(18, 0.0, 10, 5, timings)))

    slower = timed(("ORT 1, 1 thread", 0.0004), ("ORT 1 in int8, 1 thread", 0.001))
    expected = "The pruned network is slower in int8 than in float: 1 ms against 400 µs (ORT 1 in int8, 1 thread)."
    assert slower == [(expected, False)]
    assert timed(("ORT 1, 1 thread", 0.001), ("ORT 1 in int8, 1 thread", 0.0004)) == []
    assert timed(("ORT 1, 1 thread", 0.001), ("ORT 1 in int8, 1 thread", 0.00103)) == []  # quartiles overlap
    assert timed(("torch 2, 1 thread", 0.0004), ("ORT 1 in int8, 1 thread", 0.001)) == []  # another runtime


def test_a_timing_that_is_too_noisy_to_tell_is_not_a_reason_to_warn() -> None:
    before, after = Latency(0.0073, 0.001, 0.009), Latency(0.001, 0.0008, 0.008)
    timings = (BeforeAfter("ORT", "a CPU", 8, 100, before, after, 0.8, 12.0, 7.3),)
    assert remarks_of(replace(RUN, exported=ExportRecord(18, 0.0, 10, 5, timings))) == []


@pytest.mark.parametrize(("max_drop", "is_reported"), [(0.5, False), (None, True)])
def test_a_run_that_shrinks_the_latency_is_not_advised_to_limit_it(max_drop: float | None, is_reported: bool) -> None:
    same = Latency(0.002, 0.00195, 0.00205)
    exported = ExportRecord(18, 0.0, 10, 5, (BeforeAfter("ORT", "a CPU", 8, 100, same, same),))
    request = replace(REQUEST, limits=(), max_drop=max_drop, shrink="latency")
    texts = [text for text, _ in remarks_of(replace(RUN, request=request, exported=exported))]
    assert any("Limit the latency itself" in text for text in texts) == is_reported


@pytest.mark.parametrize(
    ("test", "holdout", "is_reported"),
    [
        (0.934, 1.0, True),
        (0.934, 0.985, True),
        (0.934, 0.98, False),  # a third as many mistakes: a hold-out may be easier
        (0.98, 1.0, False),  # as of a few digits
        (0.934, 0.93, False),
        (0.934, None, False),
    ],
)
def test_a_hold_out_that_was_trained_on_is_reported(test: float, holdout: float | None, is_reported: bool) -> None:
    run = replace(RUN, evaluation=Evaluation(replace(BEFORE, test=test, holdout=holdout), replace(AFTER, test=test)))
    both = "The unpruned network has {} % accuracy on held-out data and {} % on test data"
    words = f"{both}: it was probably trained on the hold-out, unless the test data are harder."
    shown = "" if holdout is None else words.format(f"{100 * holdout:.1f}", f"{100 * test:.1f}")
    assert [text == shown and not is_good for text, is_good in remarks_of(run)] == [True] * is_reported
    other = replace(run, request=replace(REQUEST, metric="iou"))
    assert remarks_of(other) == []


@pytest.mark.parametrize(
    ("drop", "holdout", "words", "is_kept"),
    [
        (
            0.02,
            0.93,
            "Largest drop met: 1.00 points lost on held-out data; the limit is 2.00 points.",
            True,
        ),
        (
            0.005,
            0.93,
            "Largest drop exceeded: 1.00 points lost on held-out data; the limit is 0.50 points.",
            False,
        ),
        (
            0.002,
            0.938,  # in floating point, 0.94 - 0.938 is more than 0.002
            "Largest drop met: 0.20 points lost on held-out data; the limit is 0.20 points.",
            True,
        ),
        (0.005, 0.95, "Largest drop met: nothing lost on held-out data; the limit is 0.50 points.", True),
    ],
)
def test_a_drop_is_judged_by_what_is_delivered(drop: float, holdout: float, words: str, is_kept: bool) -> None:
    request, evaluation = replace(REQUEST, max_drop=drop), Evaluation(BEFORE, replace(AFTER, holdout=holdout))
    assert remarks_of(replace(RUN, request=request, evaluation=evaluation)) == [(words, is_kept)]
    unknown = Evaluation(BEFORE, replace(AFTER, holdout=None))  # trained on it
    assert remarks_of(replace(RUN, request=request, evaluation=unknown)) == []


@pytest.mark.parametrize(
    ("change", "is_reported"),
    [
        ({}, True),
        ({"recipe": None}, False),
        ({"from_scratch": True}, False),  # where nothing was inherited
    ],
)
def test_training_that_lowers_the_score_is_reported(change: dict, is_reported: bool) -> None:
    evaluation = Evaluation(BEFORE, replace(AFTER, holdout=0.592))
    run = replace(RUN, training=replace(TRAINING, **change), evaluation=evaluation)
    words = "Training lowered the score: 93.0 % on held-out data before training, 59.2 % after it. Train longer, or"
    assert [text.startswith(words) and not is_good for text, is_good in remarks_of(run)] == [True] * is_reported


@pytest.mark.parametrize(
    ("examples", "metric", "is_reported"),
    [
        (80, "accuracy", False),  # two standard errors: 2 * sqrt((0.1 * 0.9 + 0.125 * 0.875) / 80) = 0.1
        (1000, "accuracy", False),  # 0.028
        (2000, "accuracy", True),  # 0.020
        (80, "iou", True),  # whose standard error is not known
        (None, "accuracy", True),
    ],
)
def test_a_loss_by_training_that_may_be_chance_is_not_reported(examples, metric: str, is_reported: bool) -> None:
    request = replace(REQUEST, holdout_size=examples, metric=metric)
    evaluation = Evaluation(BEFORE, replace(AFTER, holdout=0.875))
    run = replace(RUN, request=request, choice=ChosenStructure((1,), 0.9, ()), evaluation=evaluation)
    assert [text.startswith("Training lowered the score: ") for text, _ in remarks_of(run)] == [True] * is_reported


def test_a_budget_that_removes_nothing_is_reported() -> None:
    run = replace(RUN, evaluation=Evaluation(BEFORE, replace(AFTER, costs=BEFORE.costs)))
    assert remarks_of(run) == [("Nothing was removed: the unpruned network already meets the limits.", False)]
    assert [remark.text for remark in remarks(run)] == [
        "Nothing was removed: the unpruned network already meets the limits."
    ]
