"""Run-length code of lanes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aacp.channels.lanes import from_runs, to_runs


@given(st.lists(st.integers(-1, 50), max_size=60))
def test_lanes_survive_their_run_length_code(values: list[int]) -> None:
    lane = np.array(values, dtype=np.int64)
    assert np.array_equal(from_runs(to_runs(lane)), lane)


def test_a_lane_that_counts_up_is_one_run() -> None:
    assert to_runs(np.arange(3, 67)) == [[3, 1, 64]]
    assert to_runs(np.full(9, -1)) == [[-1, 0, 9]]
