"""The verdict of a timing: faster, slower, as fast, or too noisy to tell; and the sizes that are compared."""

from __future__ import annotations

import pytest

from aacp.runs.exports import BeforeAfter, ExportRecord, Latency, QuantizedScores, RuntimeFiles


def timed(before: float, after: float, *speedups: float) -> BeforeAfter:
    """Both networks with quartiles far apart, as on a busy machine."""
    return BeforeAfter("ORT", "CPU", 1, 20, Latency(before, 0.0, 9.0), Latency(after, 0.0, 9.0), *speedups)


@pytest.mark.parametrize(
    ("timing", "words", "is_decided"),
    [
        (timed(0.0073, 0.001, 0.8, 12.0, 7.3), "7.3 -> 1 ms (x7.30 in the median turn: too noisy to tell)", False),
        (timed(0.0073, 0.001), "7.3 -> 1 ms (x7.30: too noisy to tell)", False),  # of an older version
        (timed(0.0073, 0.001, 5.0, 12.0, 7.3), "7.3 -> 1 ms (x7.30 in the median turn: faster)", True),
        (timed(0.002, 0.002, 0.96, 1.04, 1.0), "2 -> 2 ms (x1.00 in the median turn: NOT FASTER)", True),
        (timed(0.002, 0.002, 0.96, 1.2, 1.0), "2 -> 2 ms (x1.00 in the median turn: too noisy to tell)", False),
        (timed(0.002, 0.002, 0.8, 1.04, 1.0), "2 -> 2 ms (x1.00 in the median turn: too noisy to tell)", False),
        (timed(5.5, 1.25, 4.2, 4.6, 4.4), "5,500 -> 1,250 ms (x4.40 in the median turn: faster)", True),
        (timed(0.002, 0.003, 0.6, 0.7, 0.65), "2 -> 3 ms (x0.65 in the median turn: SLOWER)", True),
        # The ratios of turns and the medians of both contradict each other.
        (timed(0.002, 0.003, 1.01, 1.3, 1.2), "2 -> 3 ms (x1.20 in the median turn: too noisy to tell)", False),
        (timed(0.003, 0.002, 0.8, 0.99, 0.9), "3 -> 2 ms (x0.90 in the median turn: too noisy to tell)", False),
    ],
)
def test_a_wide_interval_is_too_noisy_to_tell_and_a_narrow_one_decides(
    timing: BeforeAfter, words: str, is_decided: bool
) -> None:
    assert str(timing) == f"ORT, batch 1: {words}"
    assert timing.is_decided == is_decided


def test_a_file_in_int8_is_compared_with_the_float_file_of_its_own_runtime() -> None:
    scores = QuantizedScores(512, 0.9, 0.8, 1.0, 1.0)
    quantised = RuntimeFiles("pruned.int8.xml", "IR", 0.1, 40, 30, "int8", scores)
    plain = RuntimeFiles("pruned.xml", "IR", 0.0, 100, 70)
    assert ExportRecord(18, 0.0, 90, 60, others=(plain, quantised)).float_bytes == 70
    assert ExportRecord(18, 0.0, 90, 60, others=(quantised,)).float_bytes == 60  # ONNX Runtime has no other file
