"""A lease of a GPU machine that begins bare, takes 64 MiB with a call, and is taken back half a minute after a call.

`prepare` joins the data and the bases into pieces, each of which fits into a call, and removes the files from the
checkout that no plan reads. On the machine, `bring` puts the pieces together, `begin` starts plans of gpu.py that run
on between calls, and `look` waits and packs what is measured. `record` adds it to benchmarks/results, without paths of
the machine; a later `look` replaces results that were unfinished. `restore` brings the files of the checkout back.

Here, before, which writes data/1, data/2 and so on:
    python benchmarks/lease.py prepare PARTS BUILDER [--also PATH ...]
There, once for each piece, with its folder data/PIECE; then plans, in a state with a name; then what came of them, into
the folder of the variable OUT:
    python benchmarks/lease.py bring PIECE
    python benchmarks/lease.py begin NAME PLAN ... [--low]
    python benchmarks/lease.py look SECONDS [--weights]
Here, after each `look`, with the folder of what came back, and at the end `restore`:
    python benchmarks/lease.py record FOLDER && git add benchmarks/results/*.json && git commit -m MESSAGE
    python benchmarks/lease.py restore

PARTS holds CIFAR-10 as the program BUILDER fetched it, which assembles it on the machine. --also sends further files
for --small of gpu.py, or folders that `look` packed in another lease: a state of that name continues. With --low,
commands of other plans go first on the GPU. The weights of unfinished trainings of a state are packed if their archive
has up to 4 MB; with --weights, larger ones too. All plans end LEASE_SECONDS (1800) after the first `bring`, less the
time to pack. Write down all calls of a lease before the first one, and give them without a pause: a machine that is
idle for half a minute is lost with all it holds. Look every few minutes: a call that is cut off here brings nothing
back.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import gpu

ROOT = Path(__file__).parent.parent
PIECE = 56_000_000  # bytes; the rest of a call is the checkout
LEASE = Path.home() / "lease"
STARTING = 60  # seconds from the request for a machine to the first command
SMALL = 4_000_000  # bytes of weights that every look brings back
ENDING = 90  # seconds to interrupt the plans and to pack
UNUSED = ("docs", "examples", "benchmarks/results/*/*")
KEPT_EPOCHS = 30  # the run folders of longer trainings are raw output; of shorter ones the result alone is kept
RUN_FILES = {  # where `aacp prune` keeps the files of a run, and their names in benchmarks/results
    "run.json": "run.json",
    "structure.json": "structure.json",
    "history.jsonl": "history.jsonl",
    "finalists.json": "finalists.json",
    "trainings/*/evaluation.json": "evaluation.json",
    "trainings/*/training/log.jsonl": "training-log.jsonl",
}


# -- here, before -----------------------------------------------------------------------------------------------------


def prepare(parts: Path, builder: Path, also: list[Path]) -> None:
    """Write the pieces, and remove what no plan reads."""
    if git("status", "--porcelain", "--", *UNUSED):
        sys.exit(
            "There are changes in docs, examples or benchmarks/results. Commit them first: these files are removed."
        )
    sent = {"parts": parts, "builder": builder.parent, **{f"small/{path.name}": path for path in also}}
    for base in sorted((ROOT / "benchmarks/results/bases").glob("*/weights.safetensors")):
        sent[str(base.relative_to(ROOT))] = base
    data = ROOT / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    whole = data / "whole.tar"
    with tarfile.open(whole, "w") as archive:  # not compressed: images and weights do not get smaller
        for name, path in sent.items():
            archive.add(path, name)
    with whole.open("rb") as source:
        for number, piece in enumerate(iter(lambda: source.read(PIECE), b""), start=1):
            (data / str(number)).mkdir()
            (data / str(number) / "piece").write_bytes(piece)
            print(f"data/{number}: {len(piece) / 1e6:.1f} MB")
    whole.unlink()
    pieces = len([*data.iterdir()])
    for folder in data.iterdir():
        (folder / "pieces").write_text(str(pieces))
    for file in git("ls-files", "--", *UNUSED).splitlines():
        (ROOT / file).unlink()


def git(*words: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


# -- there ------------------------------------------------------------------------------------------------------------


def bring(number: str) -> None:
    """Keep a piece; put all together when the last one is there."""
    LEASE.mkdir(exist_ok=True)
    begun = LEASE / "begun"
    if not begun.exists():
        begun.write_text(str(time.time() - STARTING))
    here = ROOT / "data" / number
    shutil.copyfile(here / "piece", LEASE / f"piece-{int(number):03}")
    pieces = sorted(LEASE.glob("piece-*"))
    print(f"{len(pieces)} of {(here / 'pieces').read_text()} pieces", flush=True)
    if len(pieces) < int((here / "pieces").read_text()):
        return
    code = LEASE / "aacp"  # a copy, because every call writes the checkout again
    code.mkdir(exist_ok=True)
    for path in ROOT.iterdir():
        if path.name in (".git", ".venv", "data"):
            continue
        if path.is_dir():
            shutil.copytree(path, code / path.name, dirs_exist_ok=True)
        else:
            shutil.copy2(path, code / path.name)
    whole = LEASE / "whole.tar"
    whole.write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    with tarfile.open(whole) as archive:
        archive.extractall(LEASE, filter="data")
    shutil.copytree(LEASE / "benchmarks", code / "benchmarks", dirs_exist_ok=True)
    builder = next((LEASE / "builder").glob("*.py"))
    subprocess.run([sys.executable, builder, "assemble", LEASE / "parts", LEASE / "cifar10"], check=True)


def begin(name: str, plans: list[str], *, is_low: bool) -> None:
    """Start plans in a session of their own, which goes on after this call; a file says that they have ended."""
    states = LEASE / "states"
    states.mkdir(exist_ok=True)
    whole_lease = float(os.environ.get("LEASE_SECONDS", "1800"))
    limit = float((LEASE / "begun").read_text()) + whole_lease - ENDING - time.time()
    words = [sys.executable, "benchmarks/gpu.py", *plans, "--limit", f"{limit:.0f}"]
    words += ["--together"] if len(plans) > 1 else []  # a plan that measures times rejects it
    words += ["--data", str(LEASE / "cifar10"), "--small", str(LEASE / "small"), "--state", str(states / name)]
    earlier = LEASE / "small" / name
    words += ["--from", str(earlier)] if earlier.is_dir() else []
    priority = {"CUDA_MPS_CLIENT_PRIORITY": "1"} if is_low else {}  # 0, the default, is served first
    ended = states / f"{name}.ended"
    ended.unlink(missing_ok=True)
    apart = ["setsid", "--fork", "sh", "-c", '"$@"; echo $? > "$0"', str(ended), *words]
    with (states / f"{name}.log").open("ab") as log:
        subprocess.run(
            apart, cwd=LEASE / "aacp", env=os.environ | priority, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            check=True,
        )  # fmt: skip
    print(f"{name} runs for {limit:.0f} s: {' '.join(plans)}", flush=True)


def look(seconds: float, out: Path, *, with_weights: bool) -> None:
    """Wait until all plans are done or the seconds are over; say how far they are; pack what they measured."""
    end = time.time() + seconds
    logs = sorted((LEASE / "states").glob("*.log"))
    while time.time() < end and not all(log.with_suffix(".ended").exists() for log in logs):
        time.sleep(1)
    print(f"{time.time() - float((LEASE / 'begun').read_text()):.0f} s of the lease", flush=True)
    for log in logs:
        state, ended = log.with_suffix(""), log.with_suffix(".ended")
        print(f"{state.name} {'ended with ' + ended.read_text().strip() if ended.exists() else 'runs'}")
        print(log.read_text()[-2000:])
        for epochs in sorted(state.glob("runs/*/*/trainings/*/training/log.jsonl")):
            step, run = epochs.relative_to(state / "runs").parts[:2]
            print(f"{step}/{run}: {len(epochs.read_text().splitlines())} epochs")
        gpu.pack(state, out / state.name, most=math.inf if with_weights else SMALL)


# -- here, afterwards -------------------------------------------------------------------------------------------------


def restore() -> None:
    """Bring back what `prepare` removed."""
    git("checkout", "--", *UNUSED)


def record(folder: Path) -> None:
    """Add the results that came back to benchmarks/results, with the run folders of long trainings."""
    for archive in sorted(folder.rglob("measured.tgz")):
        with tempfile.TemporaryDirectory() as place, tarfile.open(archive) as source:
            source.extractall(place, filter="data")
            for result in sorted(Path(place, "results").glob("*.json")):
                record_result(result, Path(place, "runs"))


def record_result(result: Path, runs: Path) -> None:
    """Add a result and, if its trainings were long, the run folders of the rows that were measured in this lease."""
    results = ROOT / "benchmarks/results"
    text = without_places(result.read_text())
    (results / result.name).write_text(text)
    found = json.loads(text)
    print(f"{result.name}: {len(found.get('rows', []))} rows")
    step = re.search(r"--runs (\S+)", found["command"])  # search_pays.py writes the last part of an absolute path
    if step is None or not isinstance(found.get("epochs"), int) or found["epochs"] < KEPT_EPOCHS:
        return
    for row in found["rows"]:
        run = runs / step[1] / f"{row['arm']}-{row['seed']}"
        for pattern, name in RUN_FILES.items():
            for file in run.glob(pattern):
                kept = results / result.stem / run.name / name
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(without_places(file.read_text()))


def without_places(text: str) -> str:
    """A text in which no path begins at the root of the machine."""
    return re.sub(r"/[\w./-]*/lease/(?:aacp/|states/[\w-]+/)?", "", text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("prepare", "bring", "begin", "look", "restore", "record"))
    parser.add_argument("words", nargs="*")
    parser.add_argument("--also", nargs="+", type=Path, default=[], help="files and folders to send as well")
    parser.add_argument("--low", action="store_true", help="other plans go first on the GPU")
    parser.add_argument("--weights", action="store_true", help="pack large weights of unfinished trainings too")
    options = parser.parse_intermixed_args()
    match options.action, options.words:
        case "prepare", [parts, builder]:
            prepare(Path(parts), Path(builder), options.also)
        case "bring", [number]:
            bring(number)
        case "begin", [name, *plans] if plans:
            begin(name, plans, is_low=options.low)
        case "look", [seconds]:
            look(float(seconds), Path(os.environ["OUT"]), with_weights=options.weights)
        case "restore", []:
            restore()
        case "record", [folder]:
            record(Path(folder))
        case _:
            parser.error(f"{options.action} takes other words. The first lines of benchmarks/lease.py name them.")


if __name__ == "__main__":
    main()
