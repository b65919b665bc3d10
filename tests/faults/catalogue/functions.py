"""Functions of users with mistakes in them: the answer names the function, and says that the mistake is there."""

from __future__ import annotations

from faults.cases import USAGE, Case
from faults.catalogue.options import NAMED, SEARCH

GROUP = "function of the user"
BUILT = SEARCH.replace("faults.subjects:net", "faults.subjects:{}")
READ = SEARCH.replace("faults.subjects:data", "faults.subjects:{}")
REST = "--epochs 1 --batch-size 8 --no-export"
OURS = "UserCodeFailed"  # the class for mistakes that nothing more special is known about
MODEL_ERRORS = f"{OURS}|UnknownModel|UntraceableModel|InvalidExample|InvalidOption|NothingToPrune"
# In a function of any kind.
MISTAKES = (
    "exits",
    "exits_with_text",
    "raises",
    "raises_key_error",
    "raises_os_error",
    "asserts",
    "recurses",
    "no_memory",
)

MODELS = (*MISTAKES, "returns_none", "returns_text", "returns_class", "returns_dictionary", "CLASSES", "Endless")
NETWORKS = (
    "lazy",
    "meta",
    "with_nan",
    "raising",
    "exiting",
    "without_output",
    "no_convolution",
    "scripted",
    "half_precision",
)
SCORES = (
    *MISTAKES, "returns_none", "returns_text", "returns_nan", "returns_infinity", "returns_minus_infinity",
    "returns_nan_tensor", "returns_two_numbers", "returns_complex", "returns_dictionary", "takes_nothing",
    "nan_later", "raises_later",
)  # fmt: skip
LOSSES = (
    *MISTAKES, "returns_none", "returns_text", "returns_two_numbers", "returns_dictionary", "takes_nothing",
    "returns_nan_tensor",
)  # fmt: skip
DATA = (
    *MISTAKES,
    "returns_none",
    "returns_text",
    "returns_class",
    "returns_dictionary",
    "three_loose_parts",
)
IMPORTANCES = (*MISTAKES, "returns_none", "returns_text", "returns_nan", "returns_dictionary", "takes_nothing")

CASES = (
    *(Case(GROUP, f"aacp prune {BUILT.format(name)} {REST}", f"UnknownModel|InvalidOption|{OURS}", (name,)) for name in MODELS),
    *(Case(GROUP, f"aacp prune {BUILT.format(name)} {REST}", f"{MODEL_ERRORS}|InvalidData", adds=("new",)) for name in NETWORKS[1:]),
    *(Case(GROUP, f"aacp trace faults.subjects:{name} --input 1x1x8x8", MODEL_ERRORS) for name in (*MODELS, *NETWORKS)),
    *(
        Case(GROUP, f"aacp prune {SEARCH} {REST} --metric faults.subjects:{name}", f"InvalidScore|InvalidOption|{OURS}", (f"{name}|score",),
             adds=("new",))
        for name in SCORES
    ),
    *(
        Case(GROUP, f"aacp prune {SEARCH} {REST} --loss faults.subjects:{name}",
             f"InvalidData|InvalidOption|InvalidScore|UnknownData|Diverged|InvalidLoss|{OURS}", (f"{name}|loss",), adds=("new",))
        for name in LOSSES
    ),
    *(
        Case(GROUP, f"aacp prune {READ.format(name)} {REST}", f"UnknownData|InvalidData|InvalidOption|{OURS}", (name,))
        for name in DATA
    ),
    *(
        Case(GROUP, f"aacp prune {SEARCH} {REST} --importance faults.subjects:{name}",
             f"InvalidOption|GraphMismatch|{OURS}|{USAGE}", (f"{name}|importance",), adds=("new",))
        for name in IMPORTANCES
    ),
    *(
        Case(GROUP, f"aacp prune {SEARCH} {REST} --reconstruction faults.subjects:{name}",
             f"InvalidOption|GraphMismatch|{OURS}|{USAGE}", (f"{name}|reconstruction",), adds=("new",))
        for name in MISTAKES
    ),
    *(
        Case(GROUP, f"aacp prune {SEARCH} {REST} --metric faults.subjects:{name}", "DiskError|RunLocked|RunMismatch",
             ("new",), adds=("new",))
        for name in ("deletes_folder", "begins_anew")
    ),
    *(
        Case(GROUP, f"aacp evaluate done{NAMED} --metric faults.subjects:{name}", f"InvalidScore|InvalidOption|{OURS}", (f"{name}|score",))
        for name in SCORES[:-2]
    ),
)  # fmt: skip
