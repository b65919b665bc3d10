"""docs/loops.md, docs/yolo.md, docs/your_own.md and docs/cli.md: detectors, YOLOs, and defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator

import aacp
from aacp.latency.defaults import STRUCTURES
from aacp.latency.measure import HELD_OUT
from aacp.pipeline.defaults import RUNGS
from aacp.search.methods import EVALUATIONS
from evidence.claims import Claim, Origin, Row, not_measured, says, states, table
from evidence.raw import RESULTS, pct

LOOPS, YOLO, YOUR_OWN, CLI = (f"docs/{name}.md" for name in ("loops", "yolo", "your_own", "cli"))
SHARES_OF_RUNGS = "`()` is {} %, {} % and {} % of the recipe's epochs".format(*(pct(share, 0) for share in RUNGS))

not_measured(YOLO, Origin.EXACT, '`{"macs": 0.4}` removes 40 % of the MACs', "asks for at most 80 % of the time")
not_measured(YOLO, Origin.SETTING, "the licence AGPL-3.0")
not_measured(YOUR_OWN, Origin.EXACT, "0.005 is half a point of accuracy")
not_measured(YOUR_OWN, Origin.SETTING, SHARES_OF_RUNGS)
not_measured(CLI, Origin.SETTING, "CC BY 4.0")


def printed_by(file: str) -> str:
    """What a benchmark or an example printed."""
    return (RESULTS / file).read_text()


@states(LOOPS)
def a_search_takes_as_long_as_its_validations() -> Iterator[Claim]:
    seconds = 2
    yield says("Every evaluated structure ({} by default,", EVALUATIONS)
    yield says("A validation of {} s therefore makes a search of at least {} s", seconds, seconds * EVALUATIONS)


@states(YOUR_OWN)
def the_default_recipe_is_for_cifar10() -> Iterator[Claim]:
    recipe = aacp.Plan().recipe
    assert recipe is not None
    yield says("The default recipe trains for {} epochs with a learning rate of {}", recipe.epochs, recipe.lr)


@table(LOOPS, "", "parts")
def detectors() -> list[Row]:
    line = re.compile(
        r"(\S+): parts (.*?); (\d+)% of channels free, MACs of the parts (-\d+)%, .*masked original: boxes ([^,]+),"
    )
    found = line.findall(printed_by("detectors.txt"))
    assert len(found) == printed_by("detectors.txt").count("equal after save and load") > 3
    return [(f"`{name}`", parts, f"{free} %", f"{macs} %", boxes) for name, parts, free, macs, boxes in found]


@states(LOOPS)
def detectors_find_the_same() -> Iterator[Claim]:
    away = re.findall(r"away from the masked original: (.*?);", printed_by("detectors.txt"))
    differences: dict[str, list[float]] = {}
    for name, number in re.findall(r"(\w+) ([\d.e-]+)", " ".join(away)):
        differences.setdefault(name, []).append(float(number))
    assert max(differences["labels"]) == 0
    others = max(max(differences[name]) for name in ("scores", "masks", "keypoints_scores"))
    words = "found the same labels, scores and masks within {}, and key points within {} pixels"
    yield says(words, short(others), short(max(differences["keypoints"])))


def short(number: float) -> str:
    """A small number with an exponent of one digit."""
    return f"{number:.0e}".replace("e-0", "e-")


@table(YOLO, "", "channels free")
def networks_of_ultralytics() -> list[Row]:
    line = re.compile(r"(\S+): (\d+)% of channels free, MACs (-\d+)%, trace (\d+) s of CPU, ONNX (\S+) away .* (\S+)")
    found = line.findall(printed_by("yolo_networks.txt"))
    assert len(found) > 10
    return [
        (name, f"{free} %", f"{macs} %", seconds, f"{away} of {largest}")
        for name, free, macs, seconds, away, largest in found
    ]


def found_in(text: str, pattern: str) -> list[str]:
    """The groups of the only place in a text that matches a pattern."""
    (found,) = [place.groups() for place in re.finditer(pattern, text)]
    return list(found)


@table(YOLO, "", "mAP50-95 trained, 20 epochs")
def yolos_that_are_pruned_and_trained() -> list[Row]:
    return [pruned_yolo("YOLOv8n", "yolo_v8n.txt"), pruned_yolo("YOLO11n", "yolo_11n.txt")]


def pruned_yolo(title: str, file: str) -> Row:
    """What examples/yolo.py printed, as a row."""
    text = printed_by(file)
    trained, cut, again = (
        f"{float(found_in(text, pattern)[0]):.3f}"
        for pattern in (
            r"yaml for 20 epochs .* mAP50-95 (\S+)",
            r"become [\d,]+: mAP50-95 (\S+)",
            r"the pruned network for 10 epochs .* mAP50-95 (\S+)",
        )
    )
    (macs,) = found_in(text, r"search +20 structures .*\((-[\d.]+)%\)")
    counts = found_in(text, r"cut +(\S+) parameters become (\S+):")
    before, after = (int(count.replace(",", "")) / 1e6 for count in counts)
    away, pixels = found_in(text, r"ONNX Runtime are at most (\S+) away from torch, of (\d+) pixels")
    torch, onnx = (float(score) for score in found_in(text, r"new process .* mAP50-95 (\S+), in ONNX Runtime (\S+)"))
    params = f"{before:.2f} M to {after:.2f} M"
    difference = f"{float(away):.5f} of {pixels} pixels"
    return (title, trained, cut, again, f"{macs} %", params, difference, f"{torch:.3f}, ONNX {onnx:.3f}")


@states(YOLO)
def a_yolo_meets_two_limits() -> Iterator[Claim]:
    text = printed_by("yolo_v8n_latency.txt")
    yield says("on this CPU: {} structures are timed first", STRUCTURES + HELD_OUT)
    epochs, evaluations = found_in(text, r"--epochs (\d+) .*--evaluations (\d+) ")
    (macs,) = found_in(text, r"macs: \S+ -> \S+ \((-[\d.]+)%\)")
    before, after, most = found_in(text, r"latency: (\S+) ms -> (\S+) ms \(\S+\), at most (\S+) ms")
    assert float(after) < float(most)
    words = (
        "After {} epochs, with {} evaluations, its search met both limits: {} % MACs, and {} ms in place of {} ms for"
    )
    yield says(words, epochs, evaluations, macs, after, before)
    (seconds,) = found_in(text, r"structures in (\d+) s")
    yield says("that search and measurements took {:.0f} minutes", int(seconds) / 60)
