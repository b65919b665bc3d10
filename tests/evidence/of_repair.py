"""docs/repair.md: what repair keeps without training, and when it pays."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from aacp.train import mimic
from evidence.claims import Claim, Row, says, states, table
from evidence.of_advice import AT_70, an_estimate_with_repair_takes
from evidence.raw import pct, raw
from evidence.search_pays import LOW, after_epochs, tests_of

PAGE = "docs/repair.md"


@table(PAGE, "situation", "what to do")
def when_to_use_it() -> list[Row]:
    repair_is_worth_what_the_last_row_says()
    return [
        ("no labels, no training data, or no time to train", "`--no-training`; repair is the default there"),
        ("no labels, but a few minutes", "`--no-training --mimic 1000`"),
        (
            "labels and time to train",
            "train; repair is off by default then. `--reconstruction repair --importance obs` makes an estimate take "
            f"{an_estimate_with_repair_takes():.1f} times as long; [ResNet56 and VGG16 at -70 "
            "%](results.md#does-the-search-pay) end higher with it after 1 epoch and level after 10; after 100, "
            "ResNet56 ends higher and VGG16 does not. [MobileNetV2 at 224 px](results.md#mobilenetv2-on-imagenette) "
            "ends higher after 10",
        ),
    ]


def repair_is_worth_what_the_last_row_says() -> None:
    assert all(repaired_above_plain(case, 1, LOW) > 0.1 for case in AT_70)
    assert all(abs(repaired_above_plain(case, 10, LOW)) < 0.1 for case in AT_70)
    assert repaired_above_plain("resnet56_70", 100) > 0.1
    assert repaired_above_plain("vgg16_70", 100) < 0.1
    assert repaired_above_plain("imagenette_mobilenet_v2_30", 10) > 0.1


def repaired_above_plain(case: str, epochs: int, rate: str = "") -> float:
    """The points by which the repaired search ends above the plain one, on average."""
    result = after_epochs(case, epochs, rate)
    return 100 * (fmean(tests_of(result, "repaired")) - fmean(tests_of(result, "search")))


@states(PAGE)
def resnet56_keeps() -> Iterator[Claim]:
    runs = {run["rate"]: run for run in raw("repair_resnet56_l1.json")["product"]}
    (unpruned,) = {run["evaluation"]["before"]["test"] for run in runs.values()}
    (mimicked,) = (run["score"] for run in raw("repair_resnet56_mimic.json")["product"] if run["rate"] == 0.7)
    yield says(
        "ResNet56 on CIFAR-10 keeps {} of its {} % at half the MACs, {} % at -70 %, and {} % there with `--mimic 1000`",
        *(pct(share, 1) for share in (runs[0.5]["score"], unpruned, runs[0.7]["score"], mimicked)),
    )


@states(PAGE)
def mobilenet_keeps() -> Iterator[Claim]:
    found = raw("repair_mobilenet_mimic_30.json")
    scores = {row["widths"]: row["score"] for row in found["rows"]}
    shares = (
        scores["aacp.prune, without labels"],
        found["unpruned"]["score"],
        scores["aacp.prune, without labels, 3000 steps"],
    )
    words = "MobileNetV2 on ImageNet keeps {} of {} % at -30 %, and {} % with `--mimic 3000`"
    yield says(words, *(pct(share, 1) for share in shares))


@states(PAGE)
def mimicry_has_batches_and_a_rate_of() -> Iterator[Claim]:
    yield says("Batches of {} calibration images", mimic.BATCH_SIZE)
    yield says("with a rate that follows a cosine from {:.4f} to 0", mimic.LR)
