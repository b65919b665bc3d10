from __future__ import annotations

import pytest

from aacp.report.numbers import change, count, duration, gain, percent, plain, quantity, score, size


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (count(9999), "9,999"),
        (count(126_561_536), "126.6 M"),
        (count(853_018), "853 k"),
        (size(512), "512 bytes"),
        (size(1_094_232), "1.094 MB"),
        (duration(1.834e-3), "1.83 ms"),
        (duration(0.0000005), "500 ns"),
        (duration(90), "1.5 min"),
        (percent(0.48), "48 %"),
        (percent(0.50149), "50.1 %"),
        (percent(-0.00001), "0 %"),
        (plain(-1.26, 1), "-1.3"),
        (change(200, 100), "-50.0 %"),
        (change(100, 130), "+30.0 %"),
        (change(5, 5), "unchanged"),
        (change(0, 5), "from nothing"),
        (change(100_000, 100_001), "0.0 %"),
        (score(0.9369, "accuracy"), "93.69 %"),
        (score(0.7123, "iou"), "0.7123"),
        (gain(0.934, 0.9369, "accuracy"), "+0.29 points"),
        (gain(0.9369, 0.934, "accuracy"), "-0.29 points"),
        (gain(0.5, 0.5, "iou"), "0.0000"),
        (score(-0.000031, "loss"), "-3.1e-05"),
        (score(-0.00312, "loss"), "-0.00312"),
        (gain(0.002, 0.00187, "iou"), "-0.00013"),
        (gain(0.9, 0.91234, "iou"), "+0.0123"),
        (gain(0.3, 0.1 + 0.2, "iou"), "0.0000"),
        (gain(0.1 + 0.2, 0.3, "iou"), "0.0000"),
        (score(-0.0, "loss"), "0.0000"),
        (quantity(0.0018, "s"), "1.8 ms"),
        (quantity(2048, "bytes"), "2.048 kB"),
        (quantity(12.5, "mJ"), "12.5 mJ"),
        (quantity(40_551_040, "MACs"), "40.55 M"),
    ],
)
def test_numbers_are_short_and_have_a_unit(text: str, shown: str) -> None:
    assert text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-") == shown
