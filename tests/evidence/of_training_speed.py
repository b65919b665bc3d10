"""docs/results.md, training: epochs, convolutions, folders of pictures, and the base network of the digits."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median, stdev
from typing import Any

from evidence.claims import Claim, Row, says, states, table
from evidence.raw import raw

PAGE = "docs/results.md"
# Larger and wider activations are left to cuDNN. tests/accelerate compares these with the code, which may be deleted.
NARROW = 16  # channels
LARGEST = 1 << 20  # numbers


def seconds_by_way(network: str) -> dict[str, list[float]]:
    """The seconds of each epoch, by the way to train; the first file is of a time before our own convolutions."""
    older = [row for row in raw("train_speed.json")["rows"] if row["network"] == network]
    ways = {"captured": "captured, torch's convolutions", "plain": "plain"}
    seconds = {ways[row["way"]]: row["seconds"] for row in older}
    for file in ("train_speed_convolutions", "train_speed_streams"):
        newer = [row for row in raw(f"{file}.json")["rows"] if row["network"] == network]
        seconds |= {row["way"]: row["seconds"] for row in newer}
    return seconds


@table(PAGE, "network, cut to half its MACs", "aacp")
def epochs_take() -> list[Row]:
    rows = []
    for name, network in (("ResNet56", "resnet56"), ("VGG16", "vgg16")):
        found = seconds_by_way(network)
        shown = [found.get(way, []) for way in ("captured", "captured, torch's convolutions", "plain")]
        assert all(len(times) in (0, 2, 3) for times in shown)  # epochs each, as the page says
        rows.append((name, *(", ".join(f"{time:.2f}" for time in times) or "-" for times in shown)))
    return rows


@states(PAGE)
def our_convolutions_save() -> Iterator[Claim]:
    rows = raw("train_speed_convolutions.json")["rows"]
    theirs, ours = (row["seconds"] for row in rows)
    assert [row["way"] for row in rows] == ["captured, torch's convolutions", "captured"]
    yield says("Our convolutions take {:.2f} s off an epoch of ResNet56", median(theirs) - median(ours))


@states(PAGE)
def our_convolutions_are_faster_where_they_are_used() -> Iterator[Claim]:
    """Each gain is how many times as long cuDNN takes as the fastest form of our kernel."""
    large, small, unused = [], [], []
    for row in raw("convolution_speed.json")["rows"]:
        gain = row["cudnn us"] / row["tried"][0]["us"]
        widest = max(row["in_channels"], row["out_channels"])
        if widest > NARROW and row["batch"] * row["size"] ** 2 * widest > LARGEST:
            unused.append(gain)
        elif row["batch"] == 128:
            (large if row["size"] == 32 else small).append(gain)
    words = "{:.1f} to {:.1f} times as long with cuDNN at 32 x 32 pixels and up to {} channels"
    yield says(words, min(large), max(large), NARROW)
    yield says("{:.1f} to {:.1f} times as long at 16 x 16 and 8 x 8 pixels", min(small), max(small))
    words = (
        "more than {} channels and {:,} numbers, as in VGG16 or in larger batches, cuDNN takes {:.1f} to {:.1f} times"
    )
    yield says(words, NARROW, LARGEST, min(unused), max(unused))


@states(PAGE)
def streams_and_sums_by_convolutions_save() -> Iterator[Claim]:
    times = {row["way"]: median(row["seconds"]) for row in raw("train_speed_streams.json")["rows"]}
    now = times.pop("captured")
    more = {way.removeprefix("captured, "): seconds - now for way, seconds in times.items()}
    streams, sums = more["gradients on one stream"], more["moments by the norm"]
    yield says("a stream of their own for the gradients of the weights it takes {:.2f} s more", streams)
    yield says("sums for the batch norms by the convolutions before them {:.2f} s more", sums)
    yield says("with torch's norms in the teacher {:.2f} s more", more["torch's norms in the teacher"])


@states(PAGE)
def the_base_network_of_the_digits() -> Iterator[Claim]:
    runs = raw("train_digits.json")["runs"]
    assert len(runs) == 5
    tests, seconds = ([run[field] for run in runs] for field in ("test accuracy", "seconds"))
    words = "{:.1f} ± {:.1f} % of the test images over five seeds, {:.0f} to {:.0f} s each on a CPU"
    yield says(words, 100 * fmean(tests), 100 * stdev(tests), min(seconds), max(seconds))


def rates(found: dict[str, Any], way: str) -> str:
    """Images per second of both repeats."""
    return ", ".join(f"{found['images'][way] / seconds:.0f}" for seconds in found["seconds"][way])


@table(PAGE, "work", "aacp")
def folders() -> list[Row]:
    found = raw("folder_speed.json")
    trained = ", ".join(f"{epochs[-1]['images_per_second']:.0f}" for epochs in found["epochs_of_training"])
    assert all(epoch["limit"] == "" for epochs in found["epochs_of_training"] for epoch in epochs)  # by its data
    pairs = {"decode for training, 16 workers": "decode for training", "evaluate": "evaluate"}
    decode, evaluate = (
        (name, *(rates(found, f"{way}, {who}") for who in ("aacp", "plain"))) for name, way in pairs.items()
    )
    return [
        decode,
        ("train, after the preparation", trained, rates(found, "train, plain")),
        evaluate,
        ("evaluate a hold-out that is kept as bytes", rates(found, "evaluate kept bytes, aacp"), "-"),
        ("recalibrate", rates(found, "recalibrate, aacp"), "-"),
    ]


@states(PAGE)
def the_preparation_of_a_training_takes() -> Iterator[Claim]:
    """All the time of two epochs beyond twice the second epoch."""
    found = raw("folder_speed.json")
    times = zip(found["seconds"]["train two epochs, aacp"], found["epochs_of_training"], strict=True)
    first, second = [seconds - 2 * epochs[-1]["seconds"] for seconds, epochs in times]
    yield says("took {:.0f} s in a new process, and {:.0f} s for the second", first, second)


@states(PAGE)
def evaluation_of_a_folder_is_as_fast_as_a_plain_loop() -> Iterator[Claim]:
    found = raw("folder_speed.json")
    ours, plain = (fmean(found["seconds"][f"evaluate, {who}"]) for who in ("aacp", "plain"))
    assert 0.9 < ours / plain < 1.1
    yield says("Evaluation of {:,} images takes as long as the plain loop", found["images"]["evaluate, aacp"])


@table(PAGE, "batch, ResNet56 at -50 %", "seconds per epoch")
def batches() -> list[Row]:
    rows = raw("train_speed_batches.json")["rows"]
    return [(str(row["batch"]), ", ".join(f"{seconds:.2f}" for seconds in row["seconds"])) for row in rows]


# -- memory layouts on a processor ------------------------------------------------------------------------------------

NAMES = {
    "resnet56": "ResNet56, 32 px",
    "vgg16": "VGG16, 32 px",
    "mobilenet_v2": "MobileNetV2, 32 px",
    "digits_resnet": "ResNet of the digits, 8 px",
    "torchvision:mobilenet_v2": "MobileNetV2, 224 px",
    "torchvision:resnet50": "ResNet50, 224 px",
}


def gains(what: str) -> dict[str, Row]:
    """By network: how many times as long the plain layout takes, with the least and the most of all rounds."""
    rows = [row for row in raw("layout_speed.json")["rows"] if row["what"] == what]
    return {
        NAMES[row["network"]]: (f"{row['ratio']:.2f} ({min(row['ratios']):.2f} to {max(row['ratios']):.2f})",)
        for row in rows
    }


@table(PAGE, "network, half of its channels", "an estimate")
def layouts() -> list[Row]:
    estimates, epochs = gains("an estimate"), gains("an epoch")
    return [(name, *found, *epochs[name]) for name, found in estimates.items()]


@states("docs/training.md", "docs/estimate.md")
def layouts_of_large_networks_gain() -> Iterator[Claim]:
    rows = [row for row in raw("layout_speed.json")["rows"] if row["network"] not in ("resnet56", "digits_resnet")]
    ratios = [row["ratio"] for row in rows]
    yield says("{:.1f} to {:.1f} times as long in the plain layout", min(ratios), max(ratios))
