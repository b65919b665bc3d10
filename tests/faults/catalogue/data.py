"""Data with mistakes in them: numbers that are not finite, labels that do not fit, examples without an end, pictures."""

from __future__ import annotations

from faults import plants
from faults.cases import Case
from faults.catalogue.functions import READ, REST
from faults.catalogue.options import TASK

GROUP = "data"
BAD = "InvalidData|UnknownData|InvalidOption|CorruptImage|UserCodeFailed|InvalidExample"
# The name of the data, and what the answer must name.
FUNCTIONS = (
    ("nan_in_train", ("training|calibration",)), ("nan_in_holdout", ("hold-out|held-out",)), ("nan_in_test", ("test",)),
    ("infinity_in_test", ("test",)), ("infinity_in_holdout", ("hold-out|held-out",)), ("fractional_labels", ("label",)),
    ("fractional_test_labels", ("label",)), ("labels_out_of_range", ("label",)), ("test_labels_out_of_range", ("label",)),
    ("negative_labels", ("label",)), ("wrong_shape", ()), ("wrong_shape_in_test", ()), ("empty_train", ()),
    ("empty_holdout", ()), ("empty_test", ()), ("endless", ()), ("endless_holdout", ()), ("endless_test", ()),
    ("failing", ("example 10 is damaged",)), ("failing_test", ("example 10 is damaged",)),
    ("failing_in_workers", ("example 10 is damaged",)), ("huge_labels", ()),
)  # fmt: skip
PICTURES = TASK.replace("faults.subjects:data", "imagefolder@8:images").replace(
    "faults.subjects:net", "faults.subjects:colour_net"
)
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(pwned) print\n%%EOF\n"
PICTURE = "images/train/cat/0.png"
BAD_PICTURES = (
    plants.raw(b""), plants.raw(POSTSCRIPT), plants.raw(b"GIF89a" + b"\0" * 20), plants.raw(b"\x89PNG\r\n\x1a\n" + b"\0" * 9),
    plants.FIFO, plants.ENDLESS, plants.LOOP, plants.FOLDER, plants.shortened(0.6), plants.text("<svg></svg>"),
    plants.raw(b"P6 1000000 1000000 255\n"), plants.raw(b"BM" + b"\xff" * 60),
)  # fmt: skip
CIFAR = "aacp.load_data('cifar10:cifar')"
BAD_CIFAR = (
    plants.raw(b""), plants.raw(b"\0" * 3073), plants.FIFO, plants.ENDLESS, plants.FOLDER, plants.large(5 << 30),
    plants.raw(b"\xff" * 100),
)  # fmt: skip

CASES = (
    *(Case(GROUP, f"aacp prune {READ.format(name)} {REST}", BAD, words, adds=("new",)) for name, words in FUNCTIONS),
    *(
        Case(GROUP, f"aacp train faults.subjects:net --data faults.subjects:{name} --epochs 1 --batch-size 8 --device cpu --run new",
             f"{BAD}|Diverged", (), adds=("new",))
        for name, _ in FUNCTIONS
        if name != "empty_holdout"
    ),
    *(
        Case(GROUP, f"aacp evaluate faults.subjects:net --data faults.subjects:{name}", BAD, words)
        for name, words in FUNCTIONS
        if "train" not in name and name not in ("fractional_labels", "labels_out_of_range", "wrong_shape", "endless",
                                                  "failing", "failing_in_workers", "huge_labels")
    ),
    *(
        Case(GROUP, f"aacp prune {PICTURES} --prune-macs 0.4 --evaluations 4 --holdout 2 --epochs 1 --batch-size 2 --no-export --run new", BAD, ("0.png",), {PICTURE: plant},
             adds=("new",))
        for plant in BAD_PICTURES
    ),
    *(
        Case(GROUP, CIFAR, BAD, ("cifar",), {"cifar/test_batch.bin": plant, "cifar/data_batch_1.bin": plant})
        for plant in BAD_CIFAR
    ),
    *(Case(GROUP, CIFAR, BAD, ("cifar",), {"cifar/test_batch": plant, "cifar/data_batch_1": plant}) for plant in BAD_CIFAR),
)  # fmt: skip
