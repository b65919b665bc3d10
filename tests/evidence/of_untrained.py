"""docs/results.md, networks without training: ResNet56, MobileNetV2 and other tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median
from typing import Any

from evidence.claims import Claim, Row, says, states, table
from evidence.raw import pct, raw

PAGE = "docs/results.md"
RESNET56 = (  # file, order of channels
    ("repair_resnet56_l1.json", "l1"),
    ("repair_resnet56_activation.json", "activation"),
    ("repair_resnet56_obs.json", "obs"),
    ("repair_resnet56_obs_more.json", "obs"),
    ("repair_resnet56_600.json", "l1"),
    ("repair_resnet56_mimic.json", "l1"),
)
SEARCHES = {
    "as it is": "{} evaluations",
    "without labels": "{} evaluations, no labels",
    "curves": "curves, none",
    "mimicked": "{} evaluations, no labels; `--mimic 1000`",
}
WITHOUT_LABELS = ("without labels", "mimicked")
PARTS = ("50", "50_searched", "30", "200", "mimic_30", "20", "mimic_20")
MOBILENET = {part: f"repair_mobilenet_{part}.json" for part in PARTS}
OF_THE_AUTHORS = {  # names of rows of released_structures.json
    "uniform, without streams": "uniform",
    "the authors'": "the authors' structure",
    "found, seed 0": "searched",
}


def removed(row: dict[str, Any]) -> str:
    """The MACs that a structure lacks."""
    return f"{100 * -row['removed']:.1f} %"


def before_repair(run: dict[str, Any]) -> list[str]:
    """Test accuracies of a network before it is repaired; without labels the steps are scored by likeness."""
    if run["name"] in WITHOUT_LABELS:
        return ["-", "-"]
    steps = {step["name"]: step["test"] for step in run["recovery"]["steps"]}
    return [f"{pct(steps[name], 1)} %" for name in ("inherited", "recalibrated")]


@table(PAGE, "MACs", "search")
def untrained_resnet56() -> list[Row]:
    rows = []
    for rate in (0.5, 0.7):
        for file, order in RESNET56:
            result = raw(file)
            for run in (run for run in result["product"] if run["rate"] == rate):
                search = SEARCHES[run["name"]].format(result["evaluations"])
                rows.append((f"-{pct(rate, 0)} %", search, order, *before_repair(run), f"{pct(run['score'])} %"))
    return rows


@states(PAGE)
def resnet56_is_scored_on_all_test_images() -> Iterator[Claim]:
    runs = [run for file, _ in RESNET56 for run in raw(file)["product"]]
    (images,) = {run["n"] for run in runs}
    (error,) = {pct(run["standard_error"], 1) for run in runs}
    accuracy = pct(raw("checkpoints.json")["checkpoints"]["resnet56"]["accuracy"])
    words = "ResNet56 from the public checkpoint ({} %), all {:,} test images, standard error {} points"
    yield says(words, accuracy, images, error)


@states(PAGE)
def the_whole_command_takes() -> Iterator[Claim]:
    searched = {run["rate"]: run["seconds"] for run in raw("repair_resnet56_obs.json")["product"]}
    mimicked = {run["rate"]: run["seconds"] for run in raw("repair_resnet56_mimic.json")["product"]}
    yield says("{:.0f} and {:.0f} s on one H200 with nothing else running", searched[0.5], searched[0.7])
    yield says("{:.0f} s (-70 %) and {:.0f} s (-50 %)", mimicked[0.7], mimicked[0.5])


@states(PAGE)
def the_whole_command_on_a_cpu_takes() -> Iterator[Claim]:
    result = raw("repair_resnet56_cpu.json")
    curves, searched = result["product"]
    assert (curves["name"], searched["name"], searched["rate"]) == ("curves", "without labels", 0.5)
    words = "On two CPU cores the whole command took {:,.0f} s with a search of {} evaluations without labels"
    yield says(words, searched["seconds"], result["evaluations"])
    yield says("which delivered {} % at -50 %, and {:.0f} s", pct(searched["score"]), curves["seconds"])
    yield says("which delivered {} % (`repair_resnet56_cpu.json`)", pct(curves["score"]))


@states(PAGE)
def structures_that_are_repaired_again_differ() -> Iterator[Claim]:
    rows = raw("repair_resnet56_again.json")["again"]
    changes = [100 * (row["score"] - row["recorded"]) for row in rows]
    assert min(changes) < 0 < max(changes)
    yield says("change by between {:.2f} and {:+.2f} points", min(changes), max(changes))


@table(PAGE, "MACs", "structure")
def untrained_mobilenet() -> list[Row]:
    """Networks that are only recalibrated, from the comparison with the authors' structure, then repaired ones."""
    plain = {row["name"]: row for row in raw("released_structures.json")["rows"]}
    rows = [
        (removed(plain[name]), title, "l1", "recalibrated", f"{pct(plain[name]['test'], 1)} %")
        for name, title in OF_THE_AUTHORS.items()
    ]
    titles = {"aacp.prune": "searched, repaired estimate", "aacp.prune, curves": "curves"}
    for rate in (0.3, 0.2):
        for order in ("l1", "activation"):
            for row in raw(f"repair_mobilenet_{order}.json")["rows"]:
                if row["rate"] == rate:
                    rows.append((removed(row), titles[row["widths"]], order, "repaired", f"{pct(row['score'], 1)} %"))
    return rows


@states(PAGE)
def mobilenet_is_scored_on_test_pictures() -> Iterator[Claim]:
    files = (*MOBILENET.values(), "repair_mobilenet_l1.json", "repair_mobilenet_activation.json")
    results = [raw(file) for file in files]
    (unpruned,) = {result["unpruned"]["score"] for result in results}
    (error,) = {result["unpruned"]["standard_error"] for result in results}
    ((fitted, _, tested),) = {tuple(result["pictures"].values()) for result in results}
    words = "({} % of the {:,} test pictures; standard error {} points), fitted on {:,} other pictures"
    yield says(words, pct(unpruned, 1), tested, pct(error, 1), fitted)
    (plain,) = (row for row in raw("released_structures.json")["rows"] if row["name"] == "unpruned")
    yield says("in a run in which the unpruned network had {} %", pct(plain["test"], 1))


@table(PAGE, "MACs", "found by")
def mobilenet_beside_baselines() -> list[Row]:
    """What users have otherwise, and runs of the product; all channels in the order of l1."""
    parts = {part: raw(file)["rows"] for part, file in MOBILENET.items()}
    for part in ("mimic_30", "mimic_20"):  # their first rows repeat those of 30 and 20
        parts[part] = [row for row in parts[part] if "steps" in row["widths"]]
    rows = []
    for row in (row for part in parts.values() for row in part if row["importance"] == "l1"):
        weights = "repaired" if row["treatment"] == "as delivered" else row["treatment"]
        if "steps" in row["widths"]:
            weights = f"repaired, {row['plan']['mimic']} steps of mimicry"
        name = re.sub(", [0-9]+ steps$", "", row["widths"])
        rows.append((removed(row), name, weights, f"{pct(row['score'], 1)} %"))
    return rows


@states(PAGE)
def mimicry_of_mobilenet_takes() -> Iterator[Claim]:
    longest = [raw(MOBILENET[part])["rows"][-1] for part in ("mimic_30", "mimic_20")]
    (steps,) = {int(row["plan"]["mimic"]) for row in longest}
    yield says("A command with {:,} steps took up to {:.0f} s", steps, max(row["seconds"] for row in longest))


@states(PAGE)
def half_of_mobilenet_is_too_little_without_training() -> Iterator[Claim]:
    result = raw(MOBILENET["50"])
    repaired = [row for row in result["rows"] if row["importance"] == "l1" and row["treatment"] == "repaired"]
    uniform = next(row for row in repaired if row["widths"] == "uniform")
    words = "repaired uniform widths have {} of {} %"
    yield says(words, pct(uniform["score"], 1), pct(result["unpruned"]["score"], 1))
    searched = raw(MOBILENET["50_searched"])
    (found,) = searched["rows"]
    assert "--evaluations 20 " in searched["command"]
    yield says("is worse than uniform widths: {} %", pct(found["score"], 1))
    estimate, recovery = (raw(f"repair_mobilenet_50_searched/{name}.json") for name in ("structure", "recovery"))
    assert found["structure"] == estimate["counts"]
    words = "at a likeness of {:.2f}, which repair then raised to {:.2f}"
    yield says(words, estimate["score"], recovery["steps"][-1]["holdout"])
    (few,) = images_used(recovery["notes"])
    yield says("its repair used {} of the {:,} pictures", few, searched["pictures"]["fit"])
    used = [number for row in repaired for number in images_used(row["notes"])]
    yield says("that of the other rows {} to {}.", min(used), max(used))


@states(PAGE)
def a_search_is_not_better_than_a_repaired_ranking() -> Iterator[Claim]:
    found = [
        {(row["widths"].removesuffix(", 3000 steps"), row["treatment"]): row["score"] for row in raw(file)["rows"][:-1]}
        for file in (MOBILENET["20"], MOBILENET["30"])
    ]
    ranking = "global l1 ranking, relative to the group"
    searched = [raw(MOBILENET[part])["rows"][-1]["score"] for part in ("20", "30")]
    repaired, recalibrated = ([each[ranking, kind] for each in found] for kind in ("repaired", "recalibrated"))
    error = raw(MOBILENET["30"])["unpruned"]["standard_error"]
    assert all(abs(one - other) < 2**0.5 * error for one, other in zip(searched, repaired, strict=True))
    words = (
        "it ends at {} and {} %, the ranking relative to the group at {} and {} %, where the standard error of each "
    )
    yield says(words + "is {} points", *(pct(score, 1) for score in (*searched, *repaired, error)))
    yield says("Without repair the ranking has {} and {} %", *(pct(score, 1) for score in recalibrated))


@states(PAGE)
def orders_and_longer_searches_make_no_difference() -> Iterator[Claim]:
    scores = {(file, run["name"], run["rate"]): run for file, _ in RESNET56 for run in raw(file)["product"]}
    orders, obs, longest, mimic = RESNET56[:3], "repair_resnet56_obs_more.json", RESNET56[4][0], RESNET56[5][0]
    for rate in (0.5, 0.7):
        found = [scores[file, "as it is", rate]["score"] for file, _ in orders]
        short, long = (scores[file, "without labels", rate]["score"] for file in (obs, longest))
        error = 2**0.5 * scores[longest, "without labels", rate]["standard_error"]
        assert max(found) - min(found) < error
        assert abs(long - short) < error
        assert scores[mimic, "mimicked", rate]["score"] > max(short, long)
        assert short - scores[RESNET56[2][0], "as it is", rate]["score"] > -error
    more = scores[obs, "without labels", 0.7]["score"] - scores[RESNET56[2][0], "as it is", 0.7]["score"]
    yield says("and with obs at -70 % {} points higher", pct(more, 1))


def images_used(notes: list[str]) -> list[int]:
    """How many images a repair used that had too little memory for all."""
    return [int(number) for number in re.findall(r"images: (\d+) of them were used", " ".join(notes))]


@table(PAGE, "network and task", "unpruned")
def untrained_tasks() -> list[Row]:
    """Uniform widths at half the MACs, channels in the order of l1, without the residual streams."""
    rows = []
    for task in raw("repair_tasks.json")["tasks"]:
        found = {
            row["treatment"]: row
            for row in task["rows"]
            if (row["rate"], row["widths"], row["importance"]) == (0.5, "uniform", "l1")
        }
        shown = [task["unpruned"], *(found[step] for step in ("inherited", "recalibrated", "repaired"))]
        likeness = f"{found['repaired']['likeness']:.3f}"
        rows.append((task["title"], *(pct(row["score"]) for row in shown), likeness))
    return rows


@states(PAGE)
def curves_are_behind_a_search() -> Iterator[Claim]:
    """On MobileNetV2 by 17 points and more, which the table shows; on ResNet56 by about one."""
    found = {(run["rate"], run["name"]): run["score"] for run in raw("repair_resnet56_obs.json")["product"]}
    found |= {(run["rate"], run["name"]): run["score"] for run in raw("repair_resnet56_obs_more.json")["product"]}
    behind = [100 * (found[rate, "as it is"] - found[rate, "curves"]) for rate in (0.5, 0.7)]
    yield says("on ResNet56 they are {:.1f} and {:.1f} points behind", *behind)


@states(PAGE)
def repair_of_resnet50_takes() -> Iterator[Claim]:
    on_gpu, on_cpu = (raw(f"repair_cost_{device}.json") for device in ("cuda", "cpu"))
    words = "repair of ResNet50 with {} pictures of {} px took {:.1f} s on the H200 and {:.0f} s on two cores"
    seconds = [median(result["repair"]["seconds"]) for result in (on_gpu, on_cpu)]
    yield says(words, on_gpu["images"], on_gpu["pixels"], *seconds)
    yield says("on two cores, with a peak memory of {:.1f} GiB", on_cpu["repair"]["mib_peak"] / 1024)


@states(PAGE)
def an_estimate_with_repair_takes() -> Iterator[Claim]:
    """The first structures warm up; the ratio is that of the benchmark, which leaves them out too."""
    estimate = raw("repair_cost_estimate.json")["estimate"]
    plain, repaired = (1e3 * median(estimate[kind]["seconds"][5:]) for kind in ("plain", "repaired"))
    assert abs(repaired / plain - estimate["ratio"]) < 0.001
    assert estimate["calibration"] == estimate["holdout"]
    yield says("An estimate of ResNet56 on {:,} images of each kind", estimate["holdout"])
    yield says("{:.1f} ms without repair and {:.1f} ms with it", plain, repaired)
    yield says("(`repair_cost_estimate.json`), {:.2f} times as long", estimate["ratio"])
