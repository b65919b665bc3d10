"""docs/data.md: the limits of the code, and the memory of a run that was measured."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from aacp.data import memory
from aacp.estimate import psae, recalibration
from evidence.claims import Claim, Origin, not_measured, says, states
from evidence.raw import raw

PAGE = "docs/data.md"
INPUT = 4 * 3 * 224 * 224  # bytes of a picture of 224 x 224 pixels in single precision
GIB, MIB = 2**30, 2**20

not_measured(PAGE, Origin.EXAMPLE, "A label of 0.7 is never cut to 0")
not_measured(PAGE, Origin.EXACT, "`--max-drop 2` allows 0.02 less of it")


@states(PAGE)
def the_error_of_an_accuracy_is_largest_for_half_of_the_images() -> Iterator[Claim]:
    yield says("The accuracy on 5,000 images has a standard error of at most {:.1f} points", 100 * (0.25 / 5000) ** 0.5)


@states(PAGE)
def data_is_kept_up_to() -> Iterator[Claim]:
    assert memory.KEPT_SHARE == 0.25  # "a quarter"
    yield says("a quarter of what is free there and at most {:.0f} GiB", memory.MAX_KEPT / GIB)
    yield says("If their inputs take at most {:.0f} MiB, they are normalised once", memory.MAX_PREPARED / MIB)


@states(PAGE)
def images_are_scored_at_once() -> Iterator[Claim]:
    on_cpu, on_gpu = (memory.MAX_BATCH_BYTES[device] / MIB for device in ("cpu", "cuda"))
    fitting = memory.fitting_batch_size(memory.BATCH_SIZE["cpu"], INPUT, torch.device("cpu"))
    words = "at most {} images and {:.0f} MiB of inputs on a CPU ({} images)"
    yield says(words, memory.BATCH_SIZE["cpu"], on_cpu, fitting)
    fitting = memory.fitting_batch_size(psae.BATCH_SIZE["cuda"], INPUT, torch.device("cuda"))
    words = "{} images and {:.0f} MiB on a GPU, and in a search {:,} images and {:.0f} MiB ({} images)"
    yield says(words, memory.BATCH_SIZE["cuda"], on_gpu, psae.BATCH_SIZE["cuda"], on_gpu, fitting)


@states(PAGE)
def recalibration_passes_images_together() -> Iterator[Claim]:
    words = "if {} times their inputs (4 *p* each) are free, and otherwise at most {} images at a time"
    yield says(words, recalibration.LIVE_ACTIVATIONS, recalibration.BATCH_SIZE)


# -- measured ----------------------------------------------------------------------------------------------------------


@states(PAGE)
def the_names_of_imagenet_take() -> Iterator[Claim]:
    listing = raw("imagenet_memory.json")["listing"]
    each = 1e6 * listing["megabytes"] / listing["images"]
    words = "The names of {:,} files take {:.0f} MB, {:.0f} bytes each, and are listed in {:.2f} s"
    yield says(words, listing["images"], listing["megabytes"], each, listing["seconds"])


@states(PAGE)
def a_run_on_many_pictures_takes() -> Iterator[Claim]:
    found = raw("imagenet_memory.json")
    run = found["measured"]
    yield says("on a folder of {:.0f} GB ({:,} pictures)", found["training_gb"], found["training_images"])
    options = (option_of(run["command"], name) for name in ("holdout", "calibration", "batch-size"))
    yield says("with {} held-out and {} calibration images and training batches of {}", *options)
    words = "takes at most {:.1f} GB, where memory that processes share counts once; counted for each process, it is "
    yield says(words + "{:.1f} GB", run["peak_proportional_gb"], run["peak_resident_gb"])


def option_of(command: str, name: str) -> int:
    """The value of an option of a command."""
    (value,) = re.findall(rf"--{name} (\d+)", command)
    return int(value)
