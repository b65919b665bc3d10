import numpy as np
import pytest

from aacp import InvalidStructure, Structure


def test_a_structure_is_a_value() -> None:
    one, other = Structure([4, 8]), Structure(np.array([4, 8]))
    assert one == other
    assert hash(one) == hash(other)
    assert list(one) == [4, 8]
    assert len(one) == 2
    assert one[1] == 8
    assert np.array_equal(np.asarray(one), [4, 8])
    with pytest.raises(AttributeError):
        one.counts = (1,)  # type: ignore[misc]


@pytest.mark.parametrize("counts", [[0], [-1], [1.5], [True]])
def test_counts_that_are_no_widths_are_rejected(counts: list[int]) -> None:
    with pytest.raises(InvalidStructure, match="whole numbers of at least 1"):
        Structure(counts)
