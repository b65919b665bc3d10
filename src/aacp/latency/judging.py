"""Judging: whether a latency table is good enough to decide anything by, with the thresholds and their reasons."""

from __future__ import annotations

from aacp.cost.quantities import amount
from aacp.errors import InconclusiveMeasurement
from aacp.latency.calibration import PredictionError

# A table is judged by the structures that were held out if there are at least this many: the rank correlation of fewer
# is 1 or close to it by chance alone. Commands and runs always hold out 10.
MIN_HELD_OUT = 5
# Random predictions reach a rank correlation of 0.75 on 10 structures in one of a hundred cases. The tables in
# docs/results.md have 0.94 or more on their 10 structures, one of a busy machine has 0.92, and one that had lost the
# ranking has 0.54.
MIN_RANK_CORRELATION = 0.75
# The corrections by later measurements (`CORRECTION_SHARED` and `CORRECTION_LOCAL`) expect errors of about 10 %. The
# tables in docs/results.md have 2.4 % or less on their 10 structures, and one of a busy machine has 4.0 %.
MAX_MEDIAN_ERROR = 0.10
# An error of 10 % can only be seen if the measurements themselves are more certain than that. The tables in
# docs/results.md have 2.3 % or less.
MAX_NOISE = 0.05
# Relative uncertainty of a structure's time up to which a measurement counts as quiet: above it, turns are added, and
# below it, measuring again would not improve a table. Good tables of docs/results.md lie around it.
QUIET_NOISE = 0.015

# The longest over the shortest time of one and the same network up to which a machine counts as steady. Chosen by hand:
# a table of a quiet machine (device_table_resnet20_x86.json) has 1.09, and one beside busy programs 1.47 or more.
STEADY_RATIO = 1.25

DISTURBED = "since other programs or a changing clock frequency disturbed it"
QUIETER = (
    "Close other programs and repeat the call, which continues with what was measured, take fewer threads or a larger "
    "batch, or make a table for --table by aacp measure with more --seconds for each structure or with --accept-noise."
)
QUIETER_DEVICE = (
    "Remove results.json on the device and run runner.py there again, with nothing else running and with more seconds "
    "(--seconds 5), or export networks for fewer threads."
)
STEADY = (
    "The machine was steady, so other programs are hardly the cause: measure more structures, a larger batch, or in "
    "another runtime."
)


def shortcomings(error: PredictionError, depends_on_widths: bool = True) -> list[str]:
    """Return the reasons why a table cannot decide anything, with numbers; none if it is good enough.

    Args:
        error: the error of the table on the structures that were held out.
        depends_on_widths: whether some structures take much less time than others; if not, there is nothing to rank.
    """
    if error.structures < MIN_HELD_OUT:
        return []
    found = []
    if depends_on_widths and not error.rank_correlation >= MIN_RANK_CORRELATION:
        found.append(f"the rank correlation is {error.rank_correlation:.3f}, at least {MIN_RANK_CORRELATION} is needed")
    if not error.median <= MAX_MEDIAN_ERROR:
        found.append(f"the median error is {error.median:.1%}, at most {MAX_MEDIAN_ERROR:.0%} is allowed")
    if not error.noise <= MAX_NOISE:
        found.append(f"measurements are uncertain by {error.noise:.1%}, at most {MAX_NOISE:.0%} is allowed")
    return found


def unsteadiness(shortest: float, longest: float) -> str:
    """Return how far the times of the unpruned network lie apart, as half a sentence; empty if that is not far."""
    if longest <= STEADY_RATIO * shortest:
        return ""
    return (
        f"the unpruned network itself took from {amount(shortest, 's')} to {amount(longest, 's')} in this measurement"
    )


def inconclusive(problem: str, disturbance: str, is_elsewhere: bool = False) -> InconclusiveMeasurement:
    """Return the error for a table that cannot decide anything.

    Args:
        problem: the shortcomings of the table.
        disturbance: what shows that the machine was not quiet, as half a sentence; empty if nothing does.
        is_elsewhere: whether it was measured on a device that is not here.
    """
    quieter = QUIETER_DEVICE if is_elsewhere else QUIETER
    if not disturbance:
        return InconclusiveMeasurement(f"The latency table cannot decide anything: {problem}. {STEADY}")
    return InconclusiveMeasurement(
        f"The latency table cannot decide anything: {problem}; {disturbance}, {DISTURBED}. {quieter}"
    )
