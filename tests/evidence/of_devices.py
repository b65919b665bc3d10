"""docs/devices.md: the size of an export, the clock of a tool, and the table of another machine."""

from __future__ import annotations

from collections.abc import Iterator

from aacp.latency.defaults import STRUCTURES
from aacp.latency.devices.results import MIN_TICKS
from aacp.latency.measure import HELD_OUT
from evidence.claims import Claim, Origin, not_measured, says, states
from evidence.raw import in_words, pct, raw

PAGE = "docs/devices.md"
CLOCK_OF_BENCHNCNN = 0.01  # milliseconds

not_measured(PAGE, Origin.SETTING, "the `benchmark_app` of OpenVINO 2026.4 and with")


@states(PAGE)
def an_export_has_the_structures_of_a_table_and_the_original() -> Iterator[Claim]:
    structures = STRUCTURES + HELD_OUT
    yield says("writes {} structures and the original as files of the runtime", structures)
    yield says("The folder takes {} times the size of the network at most", structures + 1)


@states(PAGE)
def a_coarse_clock_is_rejected() -> Iterator[Claim]:
    words = "structures that take less than {:.1f} ms are rejected, as a clock that is too coarse"
    yield says(words, MIN_TICKS * CLOCK_OF_BENCHNCNN)


@states(PAGE)
def the_table_of_another_machine_is_as_exact() -> Iterator[Claim]:
    found = raw("device_table_resnet20_x86.json")
    assert (found["setting"]["threads"], found["setting"]["version"], found["elsewhere"]) == (1, "1.30.0", True)
    yield says("on an ARM Neoverse-N1 ({} structures, one thread)", len(found["measured"]) + len(found["held_out"]))
    error = found["error"]
    words = "On {} structures that the table has not seen it is {} % off at the median and {} % at most"
    yield says(words, in_words(error["structures"]), pct(error["median"], 1), pct(error["highest"], 1))
    yield says("with a rank correlation of {:.3f} ([the table]", error["rank_correlation"])
