"""All measurements that need a GPU, in calls of at most ten minutes: the same call continues where the last one ended.

A plan is a list of steps. A step has a name, a command, the seconds that it is expected to take in all, and the steps
that must be done before it. A step whose command ended with 0 is done and does not run again. At the deadline, commands
that still run are interrupted and waited for, never killed: under MPS, killing one process can stop all others on the
GPU. Everything is kept in --state: `done`, `logs`, `runs`, `results`, `bases`. At the end it is packed into --out:
measured.tgz holds all but weights, and weights.tar, in parts of 15 MB, holds the weights that unfinished trainings and
later steps need. A call on another machine, which has no --state yet, unpacks both from --from.

    python benchmarks/gpu.py --list
    python benchmarks/gpu.py PLAN ... [--limit 540] [--data FOLDER] [--small FOLDER] [--state FOLDER]
        [--from FOLDER] [--out FOLDER] [--together]

--data is the folder of the CIFAR-10 binaries. --small is the folder of the public checkpoints. For the plan imagenette
it also has what imagenette.py writes: the folder imagenette and the weights imagenette.safetensors. For the plan
imagenet-50 it has the folder val3000 of pictures for repair_mobilenet.py, and its weights. Plans run in the order in
which they are given, or all at once with --together; ONE+OTHER is a plan with the steps of both. A step may be given in
place of a plan. The steps of a plan that measures times run one after the other and beside no other plan; commands of
other plans share the GPU under MPS. PLAN@0 or PLAN@0,1 runs these seeds of the steps that have three, in a share of
their time; a later call with all seeds takes over what is finished.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
BASE_FOLDERS = {"vgg16": "vgg16_half"}  # folders of bases that have another name than their network
PART = 15_000_000  # bytes
LEFT_OUT = (".onnx", ".html")  # a report has 1.5 MB, and `aacp report` writes it again
TO_STOP = 30  # seconds before the deadline at which commands with {limit} stop by themselves
START = 25  # seconds until a command computes on the GPU; commands that share it start together
LEAST = 30  # a step that resumes begins only if more seconds than this are left
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Step:
    """A command; {data}, {small}, {state}, {out}, {runs}, {limit} and {seeds} are filled in when it begins.

    Args:
        name: its name in the plan.
        seconds: what it is expected to take in all.
        command: the command.
        after: the names of steps that must be done before.
        resumes: whether an interrupted command continues; otherwise it begins only if its seconds are left.
        makes: a file; the step is done if it exists.
        seeds: the seeds that it runs, if its command has {seeds}.
    """

    name: str
    seconds: int
    command: str
    after: tuple[str, ...] = ()
    resumes: bool = True
    makes: str = ""
    seeds: tuple[int, ...] = SEEDS


@dataclass(frozen=True)
class Plan:
    """Steps in order.

    Args:
        steps: the steps.
        at_once: how many of them run at once.
        is_shared: whether commands share the GPU.
        is_timed: whether some of its commands measure times, so that no command of another plan may run beside them.
    """

    steps: tuple[Step, ...]
    at_once: int = 1
    is_shared: bool = True
    is_timed: bool = False


def base(network: str) -> str:
    """The weights in the repository that the benchmarks of a network start from."""
    return f"benchmarks/results/bases/{BASE_FOLDERS.get(network, network)}/weights.safetensors"


ARMS = "--arms uniform search repaired"
CIFAR10 = "cifar10:{data}"
IMAGENETTE = "imagefolder:{small}/imagenette"
MOBILENET_V2 = "{small}/imagenette.safetensors"
IMAGENET = "{small}/mobilenet_v2-b0353104.pth"
RESNET18 = "{state}/bases/resnet18/weights.safetensors"
TRAINED_FOR_200 = "{state}/bases/mobilenet_v2_200/half.safetensors"
# The rate of plans that were partly measured when fewer than 100 epochs had the full learning rate.
FULL_RATE = "--lr 0.05"


def pays(name: str, seconds: int, network: str, options: str, at_once: int = 9, weights: str = "") -> Step:
    """A step of search_pays.py, from the base of a network or from other weights."""
    command = (
        f"python benchmarks/search_pays.py --network {network} --weights {weights or base(network)} "
        f"--data {{data}} {options} "
        f"--at-once {at_once} --seeds {{seeds}} --limit {{limit}} --runs {{runs}} --out {{out}} --device cuda"
    )
    return Step(name, seconds, command)


def table_1(network: str, rate: float, epoch: float, estimate: float, seeds: int = 3, known: str = "") -> Step:
    """Rows of the paper's Table 1 with their baselines: six arms, three seeds, 30 epochs, 60 from new weights.

    Args:
        network: the network.
        rate: the share of the MACs to remove.
        epoch: the seconds of the GPU for an epoch, if nine commands share it.
        estimate: the seconds of the GPU for an evaluation of a search, if nine commands share it.
        seeds: how many seeds are not measured yet.
        known: the option that takes over the others.
    """
    epochs = 5 * 30 + 60
    evaluations = 2 * 1 + 3 * 200 + 2000  # uniform and global-l1; random, search and scratch; released
    seconds = seeds * (6 / 9 * START + epochs * epoch + evaluations * estimate)
    options = f"--arms uniform global-l1 random released search scratch --rate {rate} --epochs 30 {FULL_RATE}{known}"
    return pays(f"{network}-{100 * rate:.0f}", 10 * round(seconds / 10), network, options)


def on_imagenette(
    name: str, network: str, weights: str, rate: float, epochs: int, missing: int = 9, known: str = ""
) -> Step:
    """A step of search_pays.py with a network of imagenette.py; of nine commands only those that are missing run."""
    command = (
        f"python benchmarks/search_pays.py --network imagenette:{network} --weights {weights} "
        f"--data {IMAGENETTE} {ARMS} --rate {rate} --epochs {epochs} --at-once 2 --seeds {{seeds}} --limit {{limit}} "
        "--runs {runs} --out {out} --device cuda" + known
    )
    return Step(name, -(-missing // 2) * (110 + 8 * epochs), command)


def recorded(case: str, label: str = "") -> str:
    """A result of search_pays.py in the repository."""
    return f"benchmarks/results/search_pays_{case}_epochs{label}.json"


def continuing(case: str, label: str = "") -> str:
    """The option by which a step takes over the rows of a result in the repository, and measures the others."""
    return f" --known {recorded(case, label)}"


def with_recipes_of_the_paper(network: str, seconds: int) -> Step:
    """A step with the search and the recipes of the paper, with all their epochs."""
    options = (
        "--arms released released-scratch --rate 0.5 --epochs 160 --recipe cifar10-finetune "
        "--scratch-recipe cifar10-scratch --label _paper"
    )
    return pays(f"{network}-paper", seconds, network, options + continuing(f"{network}_50_160", "_paper"), 6)


def untrained(name: str, weights: str, result: str, after: tuple[str, ...] = (), data: str = CIFAR10) -> Step:
    """A step of untrained.py, from the weights of a network."""
    command = f"python benchmarks/untrained.py {result} --weights {weights} --data {data} --out {{out}} --device cuda"
    return Step(name, 90, command, after, resumes=False)


def base_training(name: str, network: str, seconds: int, recipe: str, epochs: int = 100) -> tuple[Step, Step]:
    """Two steps: a base is trained, then its weights are kept in half precision."""
    folder = f"{{state}}/bases/{name}"
    command = (
        f"python -m aacp.cli train {network} --data {CIFAR10} --recipe {recipe} --epochs {epochs} --seed 0 "
        f"--device cuda --run {folder}"
    )
    smaller = f"python benchmarks/half_precision.py {folder}/weights.safetensors {folder}/half.safetensors"
    return Step(name, seconds, command), Step(f"{name}-half", 10, smaller, (name,), resumes=False)


def short_trainings(name: str, network: str, rate: float, seconds: int, options: str, at_once: int = 9) -> Step:
    """A step of short_trainings.py, from the base of a network."""
    command = (
        f"python benchmarks/short_trainings.py --network {network} --weights {base(network)} --data {{data}} "
        f"--rate {rate} {options} --at-once {at_once} --limit {{limit}} --runs {{runs}} --out {{out}} --device cuda"
    )
    return Step(name, seconds, command)


def timing(name: str, seconds: int, command: str) -> Step:
    """A step that measures times, and begins anew if it is interrupted."""
    return Step(name, seconds, command, resumes=False)


MOBILENET_200 = base_training("mobilenet_v2_200", "mobilenet_v2", 400, "base", epochs=200)
REPAIRED = "--starts repaired --seeds 0"
# Comparisons of teachers: the unpruned network, or one that is better.
UNTAUGHT = f"{REPAIRED} --epochs 30 {FULL_RATE}"
TAUGHT = f"{UNTAUGHT} --teacher strong_recipes:wide_resnet --teacher-weights {base('wide_resnet')}"
COLDER = "--recipe strong_recipes:COOL strong_recipes:COLD --label _cold"
VGG16_1 = pays("vgg16-1", 60, "vgg16", f"{ARMS} --rate 0.7 --epochs 1 {FULL_RATE}")
# The default rate of 1 and of 10 epochs, which has to be in the name of the result beside that of the full rate.
LOW_RATE = "--lr 0.005 --label _lr_0.005"
LATENCY = "--arms uniform search --rate 0 --latency-rate 0.3 --epochs 10"
ESTIMATE = "python benchmarks/psae_speed.py"
SEARCH = "python benchmarks/psae_search.py"
RANKING = "python benchmarks/psae_ranking.py"
PUBLIC = "--weights {small}/resnet56-4bfd9763.th"
PREDICTION = "python benchmarks/latency_prediction.py"
# Given with large batches, because the time of one image is that of its kernel launches, whatever the widths.
ON_GPU = "--device cuda --runtimes torch --learn 96 --seconds 0.15 --out {out}"
PRUNE = (
    "python benchmarks/prune_cifar10.py " + PUBLIC + " --data {data} --seeds 0 1 --at-once 4 --runs {runs} --out {out}"
)

# The seconds are from earlier runs, in benchmarks/results, or extrapolated from them; those of tests and of latency are
# guesses.
PLANS = {
    "tests": Plan(
        (
            timing(
                "tests", 300, "python -m pytest -p no:benchmark -p no:cacheprovider -q -m gpu -n 4 -W ignore "
                "tests/accelerate tests/data tests/graph tests/latency tests/repair tests/train",
            ),
        )
    ),
    "table1": Plan(
        (
            table_1("vgg16", 0.5, epoch=0.5, estimate=0.018),
            table_1("vgg16", 0.7, epoch=0.5, estimate=0.018),
            table_1("resnet56", 0.5, epoch=0.7, estimate=0.022),
        )
    ),
    "fig6": Plan(
        (
            Step(
                "fig6", 1200, f"python benchmarks/fig6.py --weights {base('vgg16')} --data {{data}} --epochs 10 "
                f"{FULL_RATE} --at-once 6 --seeds {{seeds}} --limit {{limit}} --runs {{runs}} --out {{out}} "
                "--device cuda",
            ),
        )
    ),
    "mobilenet": Plan(
        (
            *(
                pays(f"mobilenet-{rate}", 400, "mobilenet_v2", f"{ARMS} --rate 0.{rate // 10} --epochs 10", 6)
                for rate in (30, 70)
            ),
            pays("mobilenet-10-low", 400, "mobilenet_v2", f"{ARMS} --rate 0.5 --epochs 10 {LOW_RATE}", 6),
            pays("mobilenet-1-low", 150, "mobilenet_v2", f"{ARMS} --rate 0.5 --epochs 1 {LOW_RATE}", 6),
        )
    ),
    "imagenette": Plan(
        tuple(
            step
            for rate, others in ((30, (1, continuing("imagenette_mobilenet_v2_30_10"))), (50, ()), (70, ()))
            for step in (
                on_imagenette(f"imagenette-{rate / 100}", "mobilenet_v2", MOBILENET_V2, rate / 100, 10, *others),
                untrained(
                    f"imagenette-{rate}-0", MOBILENET_V2,
                    f"{{out}}/search_pays_imagenette_mobilenet_v2_{rate}_10_epochs.json",
                    (f"imagenette-{rate / 100}",), IMAGENETTE,
                ),
            )
        )
    ),
    "imagenet-50": Plan(
        (
            Step(
                "imagenet-50", 420, f"python benchmarks/repair_mobilenet.py --weights {IMAGENET} --pictures "
                "{small}/val3000 --rates 0.5 --evaluations 200 --orders activation --mimic 3000 "
                "--parts baselines product --label _50_gpu --out {out} --device cuda",
                resumes=False,
            ),
        )
    ),
    "imagenette-resnet18": Plan(
        (
            Step(
                "base-resnet18", 250, makes=RESNET18, command="python -m aacp.cli train imagenette:resnet18 "
                f"--data {IMAGENETTE} --recipe base --epochs 60 --seed 0 --device cuda "
                "--run {state}/bases/resnet18",
            ),
            *(
                replace(
                    on_imagenette(f"resnet18-{rate}-{epochs}", "resnet18", RESNET18, rate, epochs),
                    after=("base-resnet18",),
                )
                for rate, epochs in ((0.3, 10), (0.5, 10), (0.5, 50))
            ),
        )
    ),
    "finalists": Plan(
        (
            pays(
                "finalists", 400, "resnet56",
                f"--arms finalists --finalists 8 --rungs 3,10 --rate 0.7 --epochs 10 {FULL_RATE} --label _finalists",
            ),
        )
    ),
    "paper": Plan((with_recipes_of_the_paper("vgg16", 1150), with_recipes_of_the_paper("resnet56", 2050))),
    "table1-rest": Plan(
        (
            table_1("resnet110", 0.4, epoch=1.4, estimate=0.044, seeds=2, known=continuing("resnet110_40_30")),
            table_1("resnet110", 0.65, epoch=1.4, estimate=0.044, seeds=2, known=continuing("resnet110_65_30")),
        )
    ),
    "latency-limit": Plan(
        (
            pays("vgg16-latency", 600, "vgg16", f"{LATENCY} --batch 512"),
            pays("resnet56-latency", 700, "resnet56", f"{LATENCY} --batch 2048"),
            pays("mobilenet-latency", 700, "mobilenet_v2", f"{LATENCY} --batch 2048"),
        ),
        is_timed=True,  # the searches; the trainings after them share the GPU
    ),
    "two-limits": Plan(
        (
            pays("vgg16-70-90", 520, "vgg16", f"{ARMS} --rate 0.7 --params-rate 0.9 --epochs 100"),
            pays("resnet56-70-70", 230, "resnet56", f"{ARMS} --rate 0.7 --params-rate 0.7 --epochs 10"),
            pays("mobilenet-50-60", 400, "mobilenet_v2", f"{ARMS} --rate 0.5 --params-rate 0.6 --epochs 10", 6),
        )
    ),
    "few-epochs": Plan(
        (
            pays("resnet56-10-low", 230, "resnet56", f"{ARMS} --rate 0.7 --epochs 10 {LOW_RATE}"),
            pays("vgg16-10-low", 110, "vgg16", f"{ARMS} --rate 0.7 --epochs 10 {LOW_RATE}"),
            pays("resnet56-1-low", 100, "resnet56", f"{ARMS} --rate 0.7 --epochs 1 {LOW_RATE}"),
            pays("vgg16-1-low", 60, "vgg16", f"{ARMS} --rate 0.7 --epochs 1 {LOW_RATE}"),
        )
    ),
    "epochs-0": Plan(
        (
            VGG16_1,
            untrained("resnet56-0", base("resnet56"), recorded("resnet56_70_10")),
            untrained("mobilenet-0", base("mobilenet_v2"), recorded("mobilenet_v2_50_10")),
            untrained("vgg16-0", base("vgg16"), "{out}/search_pays_vgg16_70_1_epochs.json", ("vgg16-1",)),
        ),
        at_once=3,
    ),
    "bases": Plan(  # makes half.safetensors of bases that the repository keeps, to be copied to their folders there
        (
            *base_training("vgg16", "vgg16", 200, "base"),
            *base_training("wide_resnet", "strong_recipes:wide_resnet", 250, "strong_recipes:TEACHER"),
            *MOBILENET_200,
        ),
        at_once=2,
    ),
    "records": Plan(  # the default recipe, for at least 100 epochs
        (
            pays("vgg16-60", 330, "vgg16", "--arms uniform repaired --rate 0.6 --epochs 100", 6),
            pays(
                "resnet56-50-200", 450, "resnet56",
                "--arms uniform repaired --rate 0.5 --epochs 200" + continuing("resnet56_50_200"), 3,
            ),
        ),
        at_once=2,
    ),
    "records-mobilenet": Plan(
        (
            *MOBILENET_200,
            *(
                replace(
                    pays(
                        f"mobilenet-{rate}-100", seconds, "mobilenet_v2",
                        f"--arms uniform repaired --rate 0.{rate} --epochs 100 --label _base_200", 6, TRAINED_FOR_200,
                    ),
                    after=("mobilenet_v2_200-half",),
                )
                for rate, seconds in ((42, 2700), (60, 1900))
            ),
        ),
        at_once=2,
    ),
    "short": Plan(
        (
            short_trainings("short-resnet56", "resnet56", 0.7, 450, "--seeds 0 1"),
            short_trainings("short-mobilenet_v2", "mobilenet_v2", 0.5, 700, "--seeds 0 1", 6),
        )
    ),
    "rates": Plan(  # rates and recipes of longer trainings
        (
            short_trainings(
                "rates-resnet56", "resnet56", 0.5, 700, f"{REPAIRED} --epochs 30 100 --lr 0.05 0.016 "
                "--recipe finetune-mixed strong_recipes:DECAYED strong_recipes:AVERAGED",
            ),
        )
    ),
    "taught": Plan(  # whether a better teacher than the unpruned network helps
        (
            short_trainings(
                "untaught-resnet56", "resnet56", 0.5, 50, f"{UNTAUGHT} --recipe finetune-mixed --label _untaught",
            ),
            short_trainings(
                "taught-resnet56", "resnet56", 0.5, 90, f"{TAUGHT} --recipe finetune-mixed strong_recipes:PATIENT "
                "strong_recipes:BLENDED --label _taught",
            ),
            short_trainings(
                "untaught-vgg16", "vgg16", 0.6, 30, f"{UNTAUGHT} --recipe finetune-mixed --label _untaught",
            ),
            short_trainings(
                "taught-vgg16", "vgg16", 0.6, 60,
                f"{TAUGHT} --recipe finetune-mixed strong_recipes:BLENDED --label _taught",
            ),
            short_trainings("cold-resnet56", "resnet56", 0.5, 60, f"{TAUGHT} {COLDER}"),
            short_trainings("cold-vgg16", "vgg16", 0.6, 60, f"{TAUGHT} {COLDER}"),
        ),
        at_once=4,
    ),
    "epochs-300": Plan(
        (
            pays("vgg16-300", 1400, "vgg16", f"{ARMS} --rate 0.7 --epochs 300"),
            pays("resnet56-300", 1900, "resnet56", f"{ARMS} --rate 0.7 --epochs 300"),
        )
    ),
    "speed": Plan(
        (
            timing(
                "train-speed", 300, "python benchmarks/train_speed.py --data {data} " + PUBLIC + " --epochs 3 "
                '--out {out}/train_speed.json --way captured plain "captured, compiled" "captured, torch\'s norms" '
                '"captured, torch\'s convolutions" "captured, autocast weights" "captured, not widened"',
            ),
            timing("estimate-resnet56", 120, f"{ESTIMATE} resnet56 {PUBLIC} --data cifar10:{{data}} --out {{out}}"),
            timing(
                "estimate-mobilenet", 200, f"{ESTIMATE} torchvision:mobilenet_v2 --data noise:224 --rate 0.3 "
                f"--structures 50 --reference 30 --weights {IMAGENET} --out {{out}}",
            ),
            timing("first-estimate", 60, f"python benchmarks/first_estimate.py {PUBLIC} --data {{data}} --out {{out}}"),
            timing("search", 300, f"{SEARCH} resnet56 {PUBLIC} --data cifar10:{{data}} --out {{out}}"),
            timing(
                "ranking", 400, f"{RANKING} resnet56 {PUBLIC} --data cifar10:{{data}} --epochs 4 "
                "--history benchmarks/results/psae_search_resnet56.json --out {out}",
            ),
            timing("latency-mobilenet", 150, f"{PREDICTION} --networks torchvision:mobilenet_v2 --batch 256 {ON_GPU}"),
            timing("latency-vgg16", 120, f"{PREDICTION} --networks vgg16 --batch 512 {ON_GPU}"),
            timing("latency-resnet20", 120, f"{PREDICTION} --networks resnet20 --batch 2048 {ON_GPU}"),
        ),
        is_shared=False,
        is_timed=True,
    ),
    "prune": Plan(
        tuple(
            Step(f"prune-{rate}-{epochs}", seconds, f"{PRUNE} --rate {rate} --epochs {epochs}")
            for epochs, seconds in ((10, 220), (100, 1100))
            for rate in ("0.5", "0.7")
        ),
        at_once=2,
    ),
    "recipes": Plan(
        (
            Step(
                "recipes", 900, "python benchmarks/train_recipes.py --data {data} " + PUBLIC + " --at-once 3 "
                "--runs {runs} --out {out}/train_recipes.json",
            ),
        )
    ),
}  # fmt: skip


def all_plans() -> dict[str, Plan]:
    """The plans, and for each step of another name a plan that has this step and those that must be done before it."""
    alone = {step.name: replace(plan, steps=needed(step, plan)) for plan in PLANS.values() for step in plan.steps}
    return alone | PLANS


def needed(step: Step, plan: Plan) -> tuple[Step, ...]:
    """A step of a plan after all the steps that must be done before it."""
    before = [other for earlier in plan.steps if earlier.name in step.after for other in needed(earlier, plan)]
    return (*dict.fromkeys(before), step)


def names_in(text: str) -> dict[str, str]:
    """The names of plans, which are joined by +, and the seeds that follow each after an @, or nothing."""
    return {name: seeds for name, _, seeds in (part.partition("@") for part in text.split("+"))}


def plan_named(text: str) -> Plan:
    """The plan of a name; the plan of several names, joined by +, has the steps of all, each step once."""
    plans = [with_seeds(all_plans()[name], seeds) for name, seeds in names_in(text).items()]
    steps = dict.fromkeys(step for plan in plans for step in plan.steps)
    is_timed = any(plan.is_timed for plan in plans)
    at_once = 1 if is_timed else max(plan.at_once for plan in plans)
    return Plan(tuple(steps), at_once, all(plan.is_shared for plan in plans), is_timed)


def with_seeds(plan: Plan, seeds: str) -> Plan:
    """A plan whose steps of several seeds run those of a text such as 0,1; without a text, all of them."""
    chosen = tuple(int(seed) for seed in seeds.split(",")) if seeds else SEEDS
    steps = (replace(step, seeds=chosen) if "{seeds}" in step.command else step for step in plan.steps)
    return replace(plan, steps=tuple(steps))


# -- one call ---------------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """One call of this program: its folders, its time, and the steps that it runs."""

    data: Path
    small: Path
    state: Path
    limit: float
    begun: float = field(default_factory=time.monotonic)

    def stop(self, *_: object) -> None:
        """Make now the deadline, because this program was interrupted."""
        self.limit = time.monotonic() - self.begun

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.begun + self.limit - time.monotonic()

    def filled(self, text: str, step: Step) -> str:
        """A text of a step with the folders of this machine and the seconds that are left."""
        return text.format(
            data=self.data, small=self.small, state=self.state, out=self.state / "results",
            runs=self.state / "runs" / step.name, limit=max(0, round(self.left - TO_STOP)),
            seeds=" ".join(map(str, step.seeds)),
        )  # fmt: skip

    def mark(self, step: Step) -> Path:
        """The file that says that a step is done; with other seeds it is not done yet."""
        others = () if step.seeds == SEEDS else ("seeds", *map(str, step.seeds))
        return self.state / "done" / "_".join([step.name, *others])

    def is_done(self, step: Step) -> bool:
        """Whether the command of a step ended with 0 in this or an earlier call, or the file that it makes exists."""
        made = bool(step.makes) and Path(self.filled(step.makes, step)).exists()
        return made or self.mark(step).exists()

    def may_begin(self, step: Step, plan: Plan) -> bool:
        """Whether a step is not done, the steps before it are done, and there is time for it."""
        is_ready = all(self.is_done(other) for other in plan.steps if other.name in step.after)
        return is_ready and not self.is_done(step) and self.left > (LEAST if step.resumes else step.seconds)

    def start(self, step: Step) -> subprocess.Popen[bytes]:
        """Start the command of a step in its own process group."""
        words = [sys.executable if word == "python" else word for word in shlex.split(self.filled(step.command, step))]
        print(f"{self.limit - self.left:5.0f} s  {step.name} begins", flush=True)
        with (self.state / "logs" / f"{step.name}.log").open("ab") as log:
            return subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def end(self, step: Step, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Record how a step ended."""
        if process.returncode == 0:
            self.mark(step).touch()
        with (self.state / "seconds").open("a") as file:
            file.write(f"{step.name} {seconds:.0f} {process.returncode}\n")
        outcome = "is done" if process.returncode == 0 else f"stopped with {process.returncode}"
        print(f"{self.limit - self.left:5.0f} s  {step.name} {outcome} after {seconds:.0f} s", flush=True)

    def run(self, plans: Sequence[Plan]) -> None:
        """Run the steps of plans at the same time until all are done, or none can begin, or the time is over."""
        begun: set[Step] = set()
        running: dict[Step, tuple[subprocess.Popen[bytes], float]] = {}
        is_interrupted = False
        while True:
            for plan in plans:
                free = plan.at_once - sum(step in running for step in plan.steps)
                ready = [step for step in plan.steps if step not in begun and self.may_begin(step, plan)]
                for step in ready[: max(0, free)]:  # other plans may have begun more of its steps than it may run
                    if all(step.name != other.name for other in running):  # with other seeds, it has the same folder
                        begun.add(step)
                        running[step] = self.start(step), time.monotonic()
            if not running:
                return
            time.sleep(0.2)
            if self.left <= 0 and not is_interrupted:
                is_interrupted = True
                for process, _ in running.values():
                    os.killpg(process.pid, signal.SIGINT)
            for step, (process, since) in list(running.items()):
                if process.poll() is not None:
                    del running[step]
                    self.end(step, process, time.monotonic() - since)


@contextmanager
def sharing(is_shared: bool) -> Iterator[None]:
    """Let processes run on the GPU at the same time if this machine has MPS; print before and after whether it runs.

    Only the call that started the daemon ends it: an ended daemon rejects new processes until the last one is done.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if not is_shared or control is None:
        print("The GPU is not shared." if not is_shared else "There is no nvidia-cuda-mps-control.", flush=True)
        yield
        return
    status = subprocess.run([control, "-d"], check=False).returncode
    print(f"MPS: the daemon ended with {status}, {servers(control)}", flush=True)
    try:
        yield
    finally:
        print(f"MPS: {servers(control)}", flush=True)  # a server starts with the first command on the GPU
        if status == 0:
            subprocess.run([control], input=b"quit\n", check=False)


def servers(control: str) -> str:
    """The answer of MPS to the question which of its servers run."""
    asked = subprocess.run([control], input=b"get_server_list\n", capture_output=True, check=False)
    answer = " ".join((asked.stdout + asked.stderr).decode(errors="replace").split())
    return f"get_server_list ended with {asked.returncode}: {answer or 'no server'}"


# -- the state, from one machine to another ---------------------------------------------------------------------------


def pack(state: Path, out: Path, *, most: float = math.inf) -> None:
    """Write all files but ONNX, reports and weights to one archive, and weights that are still needed to another.

    Args:
        state: Folder of the state.
        out: Folder for the archives.
        most: Weights of more bytes together are left out.
    """
    out.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in state.rglob("*") if path.is_file() and path.suffix not in LEFT_OUT)
    weights = [path for path in files if path.suffix == ".safetensors"]
    needed = [path for path in weights if not is_spent(path)]
    whole = out / "weights.tar"
    archive_files(whole, needed, state)  # before the logs: resuming leaves out the epochs of a log that came later
    if needed and whole.stat().st_size <= most:
        with whole.open("rb") as source:
            for number, part in enumerate(iter(lambda: source.read(PART), b"")):
                (out / f"weights.tar.{number:03}").write_bytes(part)
    whole.unlink()
    archive_files(out / "measured.tgz", [path for path in files if path not in weights], state)


def archive_files(place: Path, files: list[Path], state: Path) -> None:
    """Write files of a state to an archive; only .tgz is compressed: for weights it would take long and save little."""
    with tarfile.open(place, "w:gz" if place.suffix == ".tgz" else "w") as archive:
        for path in files:
            with suppress(FileNotFoundError):  # a command that runs has renamed it
                archive.add(path, path.relative_to(state))


def is_spent(weights: Path) -> bool:
    """Whether weights are not needed to continue: of a training that ended, or of a network that was evaluated."""
    is_trained = weights.name == "training.safetensors" and weights.with_name("weights.safetensors").exists()
    return is_trained or any((folder / "evaluation.json").exists() for folder in weights.parents)


def unpack(source: Path, state: Path) -> None:
    """Unpack what `pack` wrote, unless there is a state already."""
    if state.exists():
        return
    state.mkdir(parents=True)
    extract(source / "measured.tgz", state)
    parts = sorted(source.glob("weights.tar.*"))
    if parts:  # else they were too large
        whole = state / "weights.tar"
        whole.write_bytes(b"".join(part.read_bytes() for part in parts))
        extract(whole, state)
        whole.unlink()


def extract(archive: Path, folder: Path) -> None:
    """Extract all files of an archive into a folder."""
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("plans", nargs="*", metavar="PLAN", help=", ".join(PLANS))
    parser.add_argument("--list", action="store_true", help="print all steps, and what is done")
    parser.add_argument("--limit", type=float, default=540, help="seconds after which this call ends")
    parser.add_argument("--data", type=Path, default=Path("~/data/cifar10"), help="folder of the CIFAR-10 binaries")
    parser.add_argument("--small", type=Path, default=Path("data/small"), help="folder of checkpoints")
    parser.add_argument("--state", type=Path, default=Path("~/measured"), help="where everything is kept")
    parser.add_argument("--from", dest="source", type=Path, help="what an earlier call packed on another machine")
    parser.add_argument("--out", type=Path, help="where to pack the state")
    parser.add_argument("--together", action="store_true", help="run all plans at once")
    options = parser.parse_args()
    named = [item for text in options.plans for item in names_in(text).items()]
    if {name for name, _ in named} - set(all_plans()) or not (named or options.list):
        parser.error(f"Give one or more of these plans, or steps of them: {', '.join(PLANS)}.")
    if not {seed for _, seeds in named if seeds for seed in seeds.split(",")} <= {str(seed) for seed in SEEDS}:
        parser.error("The seeds after an @ are 0, 1 and 2, with commas between them.")
    plans = [plan_named(text) for text in options.plans]
    if options.together and any(plan.is_timed for plan in plans):
        parser.error("A plan that measures times needs the GPU for itself. Leave --together out.")
    data, small, state = (path.expanduser().absolute() for path in (options.data, options.small, options.state))
    call = Call(data, small, state, options.limit)
    if options.list:
        for name, plan in PLANS.items():
            for step in plan.steps:
                print(f"{name}, {step.name}, {step.seconds} s{', done' * call.is_done(step)}: {step.command}")
        return
    if options.source:
        unpack(options.source, state)
    for folder in ("done", "logs", "runs", "results", "bases"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    # A process in the background of a shell ignores interrupts unless it has a handler.
    signal.signal(signal.SIGINT, call.stop)
    os.environ |= {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'benchmarks'}", "PYTHONUNBUFFERED": "1"}
    # Keep compiled Python files: a machine may have none of torch, and every command would compile them for seconds.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(state.with_name(f"{state.name}-python"))
    for group in [plans] if options.together else [[plan] for plan in plans]:
        with sharing(all(plan.is_shared for plan in group)):
            call.run(group)
    if options.out:
        pack(state, options.out)
    left = dict.fromkeys(step.name for plan in plans for step in plan.steps if not call.is_done(step))
    sys.exit(f"Not done yet: {', '.join(left)}. Give the same command again; logs are in {state}/logs." if left else 0)


if __name__ == "__main__":
    main()
