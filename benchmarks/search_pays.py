"""Does a search deliver a better network than uniform widths, and is it still better after a training?

For each arm and seed, one command prunes a network to the same limits, with the same last training on all training
images. The limits are shares of the MACs, of the parameters and of the measured latency. The arms:

    uniform           --method uniform: the same share of channels in every layer, residual streams untouched
    uniform-repaired  the same widths with repaired weights: --reconstruction repair --importance obs
    global-l1         one ranking of all channels by l1-norm relative to their group; global_l1.py describes and runs it
    random            --method random: the best of as many random structures as the search evaluates
    search            the default search by the estimate
    repaired          the default search by the repaired estimate: --reconstruction repair --importance obs
    finalists         the default search, then a comparison of its best by short trainings: --finalists and --rungs
    released          the search as the paper's authors released it, with its 2,000 evaluations, in their coordinates
    scratch           the default search; its structure is trained from new weights, twice as long
    released-scratch  the released search, likewise
    l2, activation, obs, random-channels
                      the default search, with channels in this order (the paper's Table 3) instead of l1
    torch-pruning, torch-pruning-global, modelopt
                      other tools, which peers.py describes and runs

The table has for each arm the mean and standard deviation over the seeds of the test accuracy after the last epoch, and
of its difference to uniform widths of the same seed. Neither the search nor the rungs use test images. The rungs cost
epochs in addition to the last training; the table states the epochs of both together.

With --epochs 0 nothing is trained: the networks are scored with inherited weights and recalibrated batch norms, or
repaired if the arm repairs. Arms of other tools, from new weights and with finalists need epochs.

With a limit on latency, a table is measured first. Then the searches run one after the other, with nothing else on the
device, because each measures its candidates end to end, as `aacp prune` always does. The uniform arm is the widest
uniform network that meets the limit by the table, and a measurement confirms that it does.

The weights should be those of a network that was not trained on the hold-out (`aacp train resnet56`). A public
checkpoint was trained on all training images, so its score on the hold-out says less.
Everything is kept in --runs: the same command resumes an interrupted benchmark, even in the middle of a training. It
exits with 1 until all commands are finished. Other settings need another folder. On another machine, which has no runs
yet, --known names the result of an earlier call with the same settings: its rows are taken over, and only other arms
and seeds are run.

    python benchmarks/search_pays.py --network resnet56 --weights FILE --data FOLDER [--arms search uniform]
        [--rate 0.5] [--params-rate 0.5] [--finalists 16] [--rungs 3,10,30] [--epochs 100] [--recipe NAME]
        [--lr 0.05] [--scratch-recipe NAME] [--teacher NAME --teacher-weights FILE] [--evaluations 200]
        [--seeds 0 1 2] [--at-once 3] [--limit 500] [--runs FOLDER] [--device cuda] [--out FOLDER] [--label _TEXT]
        [--known FILE]
    python benchmarks/search_pays.py --network vgg16 --weights FILE --data FOLDER --rate 0 --latency-rate 0.3
        [--runtime torch] [--runs-on cuda] [--batch 512] [--step 16] [--structures 48]
    python benchmarks/search_pays.py --smoke
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from statistics import mean

import repair_treatments as shared
from aacp.latency.energy import find_counters
from aacp.runs.finalists import Finalists, rung_sizes
from resumable import (
    AACP,
    add_options,
    add_teacher,
    add_to,
    file_name,
    is_late,
    parsed,
    require_same,
    run_once,
    seconds_of,
    set_deadline,
    spread,
    teacher_of,
)

UNIFORM = ["--method", "uniform"]
REPAIRED = ["--reconstruction", "repair", "--importance", "obs"]
RELEASED = ["--method", "released", "--scope", "paper"]
ARMS = {  # how each arm searches
    "uniform": UNIFORM,
    "uniform-repaired": UNIFORM + REPAIRED,
    "random": ["--method", "random"],
    "search": [],
    "repaired": REPAIRED,
    "finalists": [],
    "released": RELEASED,
    "scratch": [],
    "released-scratch": RELEASED,
    "l2": ["--importance", "l2"],
    "activation": ["--importance", "activation"],
    "obs": ["--importance", "obs"],
    "random-channels": ["--importance", "random"],
}
SCRIPTS = {  # arms that `aacp prune` does not run, by the script that does
    "global-l1": "global_l1.py",
    "torch-pruning": "peers.py",
    "torch-pruning-global": "peers.py",
    "modelopt": "peers.py",
}
# The options that rows of one result have in common.
SETTINGS = (
    *("network", "rate", "params_rate", "latency_rate", "runtime", "runs_on", "batch", "step", "finalists", "rungs"),
    *("epochs", "lr", "recipe", "scratch_recipe", "teacher", "evaluations", "images"),
)
FILES = {"weights": "--weights", "teacher_weights": "--teacher-weights"}  # settings too, with their options
# What older results do not state: before the rate was recorded, all numbers of epochs had the full one by default.
UNRECORDED = {"lr": 0.05, "images": 4096}
FROM_NEW_WEIGHTS = ("scratch", "released-scratch")
# Arms that --evaluations does not apply to.
OWN_LENGTH = ("uniform", "uniform-repaired", "released", "released-scratch")


# -- the commands -----------------------------------------------------------------------------------------------------


def place_of(options: argparse.Namespace, arm: str, seed: int) -> Path:
    """The run folder of a command."""
    return options.runs / f"{arm}-{seed}"


def evaluation_of(options: argparse.Namespace, arm: str, seed: int) -> Path:
    """The file that a command ends with: the evaluation after its last training."""
    training = "scratch" if arm in FROM_NEW_WEIGHTS else "finetuned" if options.epochs else "untrained"
    return place_of(options, arm, seed) / "trainings" / training / "evaluation.json"


def epochs_of(options: argparse.Namespace, arm: str) -> int:
    """The epochs of the last training; new weights get twice as many, as in the paper."""
    return options.epochs * (2 if arm in FROM_NEW_WEIGHTS else 1)


def subject(options: argparse.Namespace, arm: str, seed: int) -> list[str]:
    """The words that every command of an arm and a seed has: the network, the data, the seed and the folder."""
    words = [options.network, "--data", options.data]
    words += ["--weights", str(options.weights)] if options.weights else []
    words += ["--seed", str(seed), "--device", options.device]
    return [*words, "--run", str(place_of(options, arm, seed))]


def search_options(options: argparse.Namespace, arm: str) -> list[str]:
    """The options that say how an arm of aacp searches, and within which limits."""
    rates = {"macs": options.rate, "params": options.params_rate, "latency": options.latency_rate}
    words = [word for cost, rate in rates.items() if rate for word in (f"--prune-{cost}", str(rate))]
    if options.latency_rate:
        words += [*deployment(options), "--runs-on", options.runs_on, "--table", str(table_of(options))]
    words += ["--calibration", str(options.images), *step_of(options), *ARMS[arm]]
    if not options.epochs and "--reconstruction" not in ARMS[arm]:
        words += ["--reconstruction", "none"]
    return words + ([] if arm in OWN_LENGTH else ["--evaluations", str(options.evaluations)])


def command(options: argparse.Namespace, arm: str, seed: int) -> list[str]:
    """The command of an arm and a seed, from the search to the trained network."""
    words = subject(options, arm, seed)
    words += ["--epochs", str(epochs_of(options, arm))] if options.epochs else ["--no-training"]
    words += ["--lr", str(options.lr)] if options.lr and arm not in FROM_NEW_WEIGHTS else []
    if arm in SCRIPTS:
        script = str(Path(__file__).with_name(SCRIPTS[arm]))
        return [sys.executable, script, arm, *words, "--rate", str(options.rate), "--images", str(options.images)]
    words += [*search_options(options, arm), "--no-export"]
    words += ["--train-on-holdout"] if options.epochs else []
    recipe = options.scratch_recipe if arm in FROM_NEW_WEIGHTS else options.recipe
    words += ["--recipe", recipe] if recipe else []
    words += ["--scratch"] if arm in FROM_NEW_WEIGHTS else []
    words += teacher_of(options)
    if arm == "finalists":
        words += ["--finalists", str(options.finalists), "--rungs", options.rungs]
    return [*AACP, "prune", *words]


def run_alone(options: argparse.Namespace, jobs: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Measure the latency table and search, one command after the other; `aacp prune` then trains what was found.

    Returns:
        The arms and seeds whose search is finished; none if the time is over.
    """
    table = table_of(options)
    words = [*AACP, "measure", options.network, *deployment(options), "--device", options.runs_on, "--out", str(table)]
    run_once(options, table, table, [*words, *step_of(options), "--structures", str(options.structures)])
    for arm, seed in jobs if table.exists() else []:
        place = place_of(options, arm, seed)
        words = [*AACP, "search", *subject(options, arm, seed), *search_options(options, arm)]
        run_once(options, place, place / "structure.json", words)
    return [job for job in jobs if (place_of(options, *job) / "structure.json").exists() and not is_late(options)]


def deployment(options: argparse.Namespace) -> list[str]:
    """The options of the deployment that latency is measured in, without the device."""
    return ["--runtime", options.runtime, "--batch", str(options.batch)]


def step_of(options: argparse.Namespace) -> list[str]:
    """The option of the pruning step, if one is given."""
    return ["--step", options.step] if options.step else []


def table_of(options: argparse.Namespace) -> Path:
    """The latency table that all searches use."""
    return Path(options.runs / "latency.json")


def run(options: argparse.Namespace, arm: str, seed: int) -> None:
    """Run the command of an arm and a seed, as far as the time allows."""
    place = place_of(options, arm, seed)
    run_once(options, place, evaluation_of(options, arm, seed), command(options, arm, seed))


# -- the outcomes -----------------------------------------------------------------------------------------------------


def outcome(options: argparse.Namespace, arm: str, seed: int) -> shared.Row | None:
    """The result of a command; None if it is not finished."""
    place = place_of(options, arm, seed)
    file = evaluation_of(options, arm, seed)
    if not file.exists():
        return None
    clock = seconds_of(place)  # it is missing if this benchmark was killed
    row: shared.Row = {
        "arm": arm,
        "seed": seed,
        **delivered(place / "structure.json", file),
        "seconds": round(float(clock.read_text()), 1) if clock.exists() else None,
        "evaluations": sum(len(path.read_text().splitlines()) for path in place.rglob("history.jsonl")),
        "training_seconds": training_seconds(file.with_name("training") / "log.jsonl"),
    }
    if arm == "finalists":
        found = Finalists.from_json(json.loads((place / "finalists.json").read_text()))
        row |= {"summary": str(found), "finalists": found.to_json()}
    return row


def delivered(structure_file: Path, evaluation_file: Path) -> shared.Row:
    """The scores and the costs of a trained network, and its structure with its estimate."""
    evaluation = json.loads(evaluation_file.read_text())
    structure = json.loads(structure_file.read_text())
    measured = [limit for limit in structure.get("limits", ()) if limit["cost"] == "latency"]
    latency = {"latency": measured[0]["reached"] / measured[0]["full"]} if measured else {}
    return latency | {
        "test": evaluation["after"]["test"],
        "unpruned": evaluation["before"]["test"],
        "macs": evaluation["after"]["macs"] / evaluation["before"]["macs"],
        "params": evaluation["after"]["params"] / evaluation["before"]["params"],
        "counts": structure["counts"],
        "estimate": structure["score"],
    }


def training_seconds(log: Path) -> float:
    """The seconds of all epochs of a training."""
    lines = log.read_text().splitlines() if log.exists() else []  # nothing was trained
    return round(sum(json.loads(line)["seconds"] for line in lines), 1)


def rung_epochs(options: argparse.Namespace) -> int:
    """The epochs of all rungs together."""
    rungs = [int(epochs) for epochs in options.rungs.split(",")]
    return sum(size * epochs for size, epochs in zip(rung_sizes(options.finalists, len(rungs)), rungs, strict=True))


def summary(options: argparse.Namespace, rows: list[shared.Row]) -> shared.Row:
    """Print the table of all finished commands, and return its numbers by arm."""
    by_arm = {arm: {row["seed"]: row for row in rows if row["arm"] == arm} for arm in options.arms}
    result = {}
    lines = []
    for arm, found in by_arm.items():
        tests = [row["test"] for row in found.values()]
        if not tests:
            continue
        uniform = by_arm.get("uniform", {})
        pairs = [row["test"] - uniform[seed]["test"] for seed, row in found.items() if seed in uniform]
        epochs = epochs_of(options, arm) + (rung_epochs(options) if arm == "finalists" else 0)
        result[arm] = {"test": tests, "above_uniform": pairs, "epochs": epochs}
        known = [row["seconds"] for row in found.values() if row["seconds"] is not None]
        seconds = f"{mean(known):.0f}" if known else "-"
        lines.append([arm, str(len(tests)), spread(tests), spread(pairs), str(epochs), seconds])
    heads = ["", "seeds", "test accuracy, %", "above uniform, points", "epochs in all", "seconds"]
    print(shared.table(heads, lines), flush=True)
    for row in rows:
        if "summary" in row:
            print(f"seed {row['seed']}: {row['summary']}", flush=True)
    return result


def main() -> None:
    options = arguments()
    set_deadline(options)
    jobs = [(arm, seed) for seed in options.seeds for arm in options.arms]
    known = known_rows(options)
    require_same(options.runs, settings_of(options))
    counters = find_counters(options.device)
    begun = [counter.read() for counter in counters]
    missing = [job for job in jobs if job not in known]
    ready = run_alone(options, missing) if options.latency_rate else missing
    ready = sorted(ready, key=lambda job: -epochs_of(options, job[0]))  # the longest first, so that all end together
    with ThreadPoolExecutor(options.at_once) as pool:
        for done in as_completed([pool.submit(run, options, *job) for job in ready]):
            done.result()
            write(options, finished(options, jobs, known), {})  # a machine that is lost keeps nothing else
    rows = finished(options, jobs, known)
    used = sum(counter.since(before) for counter, before in zip(counters, begun, strict=True))
    joules = {"joules": add_to(options.runs / "joules", used) if counters else None}  # of everything on the device
    write(options, rows, joules | {"summary": summary(options, rows)})
    print(f"{len(rows)} of {len(jobs)} commands are finished", flush=True)
    sys.exit(len(rows) < len(jobs))


def finished(
    options: argparse.Namespace, jobs: Iterable[tuple[str, int]], known: Mapping[tuple[str, int], shared.Row]
) -> list[shared.Row]:
    """The rows of the commands that are finished, here or earlier."""
    return [row for job in jobs if (row := known.get(job) or outcome(options, *job)) is not None]


def write(options: argparse.Namespace, rows: list[shared.Row], about: shared.Row) -> None:
    """Write rows with the settings and the circumstances that they were measured in."""
    given = settings_of(options) | {name: getattr(options, name) for name in ("arms", "seeds", "at_once")}
    given["known"] = options.known.name if options.known else None
    result = shared.circumstances(options.device) | given | {"rows": rows} | about
    shared.write(options.out, f"search_pays_{case_of(options)}", result)


def known_rows(options: argparse.Namespace) -> dict[tuple[str, int], shared.Row]:
    """The rows of an earlier result by arm and seed; a result with other settings is rejected."""
    if options.known is None:
        return {}
    earlier = json.loads(options.known.read_text())
    found = recorded_settings(earlier)
    other = [name for name, value in settings_of(options).items() if found.get(name) != value]
    if other:
        sys.exit(f"{options.known} has another {', '.join(other)}. Give the options that it was measured with.")
    about = {key: earlier[key] for key in ("command", "versions", "hardware")}
    return {(row["arm"], row["seed"]): {"measured_by": about} | row for row in earlier["rows"]}


def recorded_settings(result: shared.Row) -> shared.Row:
    """The settings that a result was measured with; an older one names its files in the command alone."""
    words = result["command"].split()
    files = {name: words[words.index(option) + 1] for name, option in FILES.items() if option in words}
    return UNRECORDED | files | result


def settings_of(options: argparse.Namespace) -> shared.Row:
    """The settings that rows of one result have in common; of absolute paths only the last parts."""
    files = {name: file_name(getattr(options, name)) for name in FILES}
    return {name: getattr(options, name) for name in SETTINGS} | files


def case_of(options: argparse.Namespace) -> str:
    """The network, the limits and the epochs, for the name of the result."""
    if options.smoke:
        return "smoke"
    rates = [f"{100 * rate:.0f}" for rate in (options.rate, options.params_rate) if rate]
    rates += [f"latency_{100 * options.latency_rate:.0f}"] if options.latency_rate else []
    return f"{options.network.replace(':', '_')}_{'_'.join(rates)}_{options.epochs}_epochs{options.label}"


def arguments() -> argparse.Namespace:
    """The options of the command line; a smoke run is as small as possible."""
    parser = argparse.ArgumentParser()
    add_options(parser, network="resnet56", runs="runs/search_pays", seeds=(0, 1, 2), at_once=3)
    parser.add_argument("--arms", nargs="+", choices=(*ARMS, *SCRIPTS), default=["uniform", "search", "finalists"])
    parser.add_argument("--rate", type=float, default=0.5, help="share of the MACs to remove; 0 is no limit on MACs")
    parser.add_argument("--params-rate", type=float, help="share of the parameters to remove; only for aacp prune")
    parser.add_argument("--latency-rate", type=float, help="share of the latency to remove; only for aacp prune")
    parser.add_argument("--runtime", default="torch", help="runtime that latency is measured in")
    parser.add_argument("--runs-on", help="device of the runtime; by default that of --device")
    parser.add_argument("--batch", type=int, default=512, help="inputs in a timed batch")
    parser.add_argument("--step", help="pruning step, as in aacp prune; by default its own; only for aacp prune")
    parser.add_argument("--structures", type=int, default=48, help="structures in the latency table")
    parser.add_argument("--finalists", type=int, default=16)
    parser.add_argument("--rungs", default="3,10,30")
    parser.add_argument("--epochs", type=int, default=100, help="epochs of the last training; 0 trains nothing")
    parser.add_argument("--recipe", help="recipe of fine-tuning for aacp prune; by default its own")
    parser.add_argument("--lr", type=float, help="highest learning rate of fine-tuning; by default that of the recipe")
    parser.add_argument("--scratch-recipe", help="recipe from new weights for aacp prune; by default its own")
    add_teacher(parser)
    parser.add_argument("--evaluations", type=int, default=200, help="structures that each search evaluates")
    parser.add_argument("--images", type=int, default=4096, help="training images to recalibrate on")
    parser.add_argument("--label", default="", help="end of the name of the result file")
    parser.add_argument("--known", type=Path, help="an earlier result, whose rows are not measured again")
    options = parsed(parser, seeds=[0, 1], finalists=3, rungs="1,2", epochs=2, evaluations=6, images=64, at_once=1)
    if (options.recipe or options.teacher) and set(options.arms) & set(SCRIPTS):
        parser.error(
            f"{', '.join(SCRIPTS)} have the default recipe and teacher. Leave out --recipe and --teacher, or the arms."
        )
    if (options.params_rate or options.latency_rate or not options.rate) and set(options.arms) & set(SCRIPTS):
        parser.error(f"{', '.join(SCRIPTS)} take a limit on MACs alone. Leave out the other limits, or these arms.")
    if not options.epochs and set(options.arms) & {*SCRIPTS, *FROM_NEW_WEIGHTS, "finalists"}:
        parser.error("Arms of other tools, from new weights and with finalists need --epochs. Leave them out.")
    if options.latency_rate and "finalists" in options.arms:
        parser.error(
            "Finalists are timed while other trainings use the device, which changes their times. Leave out "
            "--latency-rate, or the arm finalists."
        )
    options.runs_on = options.runs_on or options.device
    return options


if __name__ == "__main__":
    main()
