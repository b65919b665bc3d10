"""A very small network with its data, for runs of less than a second, and user functions with mistakes in them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import aacp

CLASSES = 4
# A run of all stages but the export.
SEARCH = ["faults.subjects:net", "--data", "faults.subjects:data", "--prune-macs", "0.4", "--evaluations", "4",
          "--calibration", "16", "--device", "cpu"]  # fmt: skip
TRAINING = ["--epochs", "2", "--batch-size", "8", "--lr", "0.01", "--no-export"]
PRUNE = ["prune", *SEARCH, *TRAINING]
TRAIN = ("train", "faults.subjects:net", "--data", "faults.subjects:data", *TRAINING[:-1], "--device", "cpu", "--run",
         "trained")  # fmt: skip
MIMIC = ["prune", *SEARCH, "--no-training", "--mimic", "30", "--no-export"]


class Net(nn.Module):
    """Two convolutions with batch norms, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, stride=2)
        self.bn2 = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.head(x.mean((2, 3)))


def net() -> nn.Module:
    """The network, by name: `faults.subjects:net`."""
    return Net()


def tensors(images: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random images whose brightest quarter is their label."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(images) % CLASSES
    pixels = torch.randn(images, 1, 8, 8, generator=generator)
    for index, label in enumerate(labels.tolist()):
        pixels[index, 0, 4 * (label // 2) : 4 * (label // 2) + 4, 4 * (label % 2) : 4 * (label % 2) + 4] += 1.0
    return pixels, labels


def part(images: int, seed: int) -> TensorDataset:
    return TensorDataset(*tensors(images, seed))


def data() -> aacp.Data:
    """The data, by name: `faults.subjects:data`."""
    return aacp.Data(part(32, 0), part(16, 1), part(16, 2), "quarters")


def batch() -> Tensor:
    return tensors(4, 3)[0]


def graph() -> aacp.ChannelGraph:
    return aacp.trace(Net(), batch())


PLAN = aacp.Plan(
    evaluations=4, calibration_images=16, export=False, recipe=aacp.Recipe(epochs=1, batch_size=8, lr=0.01)
)
BUDGET = {"macs": 0.4}


def prune(**changes: Any) -> Any:
    """A run of the library in the folder `new`, with some of its arguments changed."""
    given = {
        "model": Net(),
        "data": data(),
        "budget": BUDGET,
        "folder": "new",
        "plan": PLAN,
        "device": "cpu",
        **changes,
    }
    return aacp.prune(**given)


def data_with_workers() -> aacp.Data:
    """The same data, read by a worker process."""
    loader = DataLoader(part(32, 0), batch_size=8, num_workers=1, shuffle=True)
    return aacp.Data(loader, part(16, 1), part(16, 2), "quarters")


class Exact(aacp.Runtime):
    """A device whose clock counts in powers of two, so that repeated measurements agree to the last bit."""

    name = "exact"
    version = "1.0"
    devices = ("npu",)
    ticks = 0

    def prepare(self, network: nn.Module | Path, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        assert isinstance(network, nn.Module)
        weights = sum(value.numel() for value in network.parameters())

        def run() -> None:
            self.ticks += 1_000 + weights

        return run

    def clock(self) -> float:
        return self.ticks * 2.0**-20


class ExactFiles(Exact):
    """The same device, with files that hold the number of weights."""

    name = "exact_files"
    suffix = ".weights"

    def export(self, network: nn.Module, path: Path, example: Any) -> Any:
        path.write_text(str(sum(value.numel() for value in network.parameters())))
        return SimpleNamespace(path=path, file_bytes=path.stat().st_size, largest_difference=None)


def time_on_device(folder: str) -> None:
    """Write the results.json of a folder, as such a device finds it."""
    place = Path(folder)
    manifest = json.loads((place / "manifest.json").read_text())
    files = {each["file"]: each["sha256"] for each in (manifest["original"], *manifest["networks"])}
    seconds = {name: (1_000 + int((place / name).read_text())) * 2.0**-20 for name in files}
    turns = {name: [[seconds[manifest["original"]["file"]], seconds[name]]] * 20 for name in files}
    names = [each["file"] for each in manifest["networks"]]
    networks = {name: {"sha256": files[name], "repeats": [9, 9], "turns": turns[name]} for name in names}
    digest = hashlib.sha256((place / "manifest.json").read_bytes()).hexdigest()
    header = {"format": 1, "kind": manifest["kind"], "manifest": digest, "runtime": manifest["runtime"]}
    device = {"version": "1.0", "machine": "a board", "clock_resolution": 2.0**-20}
    (place / "results.json").write_text(json.dumps({**header, **device, "networks": networks}))


EXACT = Exact()  # for faults.subjects:EXACT
EXACT_FILES = ExactFiles()
MEASURE = ["measure", "faults.subjects:net", "--input", "1x1x8x8", "--runtime", "faults.subjects:EXACT",
           "--device", "npu", "--structures", "8", "--seconds", "0.01"]  # fmt: skip
# For a device that is not here: its networks are exported, and a run uses the table of what it finds.
ON_BOARD = ["--runtime", "faults.subjects:EXACT_FILES", "--threads", "1"]
EXPORT = ["measure", "faults.subjects:net", "--input", "1x1x8x8", *ON_BOARD, "--device", "npu", "--structures", "8",
          "--export-only"]  # fmt: skip
PRUNE_FOR_BOARD = ["prune", "faults.subjects:net", "--data", "faults.subjects:data", "--prune-latency", "0.1",
                   *ON_BOARD, "--runs-on", "npu", "--evaluations", "4", "--calibration", "16", "--device", "cpu",
                   "--no-training", "--reconstruction", "none"]  # fmt: skip


# -- functions of users with mistakes in them -------------------------------------------------------------------------


def metric(network: nn.Module, batches: aacp.Batches) -> float:
    """A score without a mistake."""
    return aacp.accuracy(network, batches)


def other_data() -> aacp.Data:
    """The same data under another name."""
    found = data()
    return aacp.Data(found.train, found.holdout, found.test, "other quarters")


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss without a mistake."""
    return nn.functional.cross_entropy(outputs, targets)


def exits(*arguments: Any) -> Any:
    sys.exit(0)


def exits_with_text(*arguments: Any) -> Any:
    sys.exit("bye")


def raises(*arguments: Any) -> Any:
    raise RuntimeError("the user's own mistake")


def raises_key_error(*arguments: Any) -> Any:
    return {}["missing"]


def raises_os_error(*arguments: Any) -> Any:
    raise OSError(28, "No space left on device", "theirs.txt")


def asserts(*arguments: Any) -> Any:
    raise AssertionError


def recurses(*arguments: Any) -> Any:
    return recurses(*arguments)


def no_memory(*arguments: Any) -> Any:
    raise MemoryError


def returns_none(*arguments: Any) -> Any:
    return None


def returns_text(*arguments: Any) -> Any:
    return "0.9"


def returns_nan(*arguments: Any) -> Any:
    return float("nan")


def returns_infinity(*arguments: Any) -> Any:
    return float("inf")


def returns_minus_infinity(*arguments: Any) -> Any:
    return float("-inf")


def returns_nan_tensor(*arguments: Any) -> Any:
    return torch.tensor(float("nan"))


def returns_two_numbers(*arguments: Any) -> Any:
    return torch.tensor([0.5, 0.5])


def returns_complex(*arguments: Any) -> Any:
    return 1j


def returns_class(*arguments: Any) -> Any:
    return Net


def returns_dictionary(*arguments: Any) -> Any:
    return {"accuracy": 0.5}


def takes_nothing() -> Any:
    return 0.5


calls = 0


def nan_later(network: nn.Module, batches: aacp.Batches) -> float:
    """A score that is not a number from its sixth call on: after the search, in evaluation or training."""
    global calls
    calls += 1
    return float("nan") if calls > 6 else 0.5


def raises_later(network: nn.Module, batches: aacp.Batches) -> float:
    """A score that raises from its sixth call on."""
    global calls
    calls += 1
    if calls > 6:
        raise ValueError("too late")
    return 0.5


def deletes_folder(network: nn.Module, batches: aacp.Batches) -> float:
    """A score during which the run folder disappears."""
    shutil.rmtree("new", ignore_errors=True)
    return 0.5


def begins_anew(network: nn.Module, batches: aacp.Batches) -> float:
    """A score during which the run folder is replaced by one of another run."""
    if Path("new").exists():
        shutil.rmtree("new")
        shutil.copytree("half", "new")
    return 0.5


# -- networks ---------------------------------------------------------------------------------------------------------


class Lazy(nn.Module):
    """Its first layer has no shape before the first input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.LazyConv2d(8, 3, padding=1)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv1(x)).mean((2, 3)))


class Raising(Net):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("the network's own mistake")


class Exiting(Net):
    def forward(self, x: Tensor) -> Tensor:
        sys.exit(0)


class WithoutOutput(Net):
    def forward(self, x: Tensor) -> Tensor:
        super().forward(x)
        return None  # type: ignore[return-value]


class InPlace(Net):
    """Writes into its input."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(2))


class NoConvolution(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((1, 2, 3), keepdim=False)[:, None].repeat(1, CLASSES)


def lazy() -> nn.Module:
    return Lazy()


def meta() -> nn.Module:
    with torch.device("meta"):
        return Net()


def with_nan() -> nn.Module:
    network = Net()
    with torch.no_grad():
        network.conv1.weight[0] = float("nan")
    return network


def raising() -> nn.Module:
    return Raising()


def exiting() -> nn.Module:
    return Exiting()


def without_output() -> nn.Module:
    return WithoutOutput()


def no_convolution() -> nn.Module:
    return NoConvolution()


def half_precision() -> nn.Module:
    return Net().half()


def scripted() -> nn.Module:
    return torch.jit.trace(Net().eval(), batch())  # type: ignore[no-any-return]


# -- data -------------------------------------------------------------------------------------------------------------


def _changed(which: str, inputs: Tensor | None = None, labels: Tensor | None = None) -> aacp.Data:
    """The data with the inputs or the labels of one part replaced."""
    parts = {}
    for number, (name, images) in enumerate({"train": 32, "holdout": 16, "test": 16}.items()):
        found = tensors(images, number)
        if name == which:
            found = (found[0] if inputs is None else inputs, found[1] if labels is None else labels)
        parts[name] = TensorDataset(*found)
    return aacp.Data(**parts, name="changed")


def _with(value: float, images: int, seed: int) -> Tensor:
    inputs = tensors(images, seed)[0]
    inputs[3, 0, 2, 2] = value
    return inputs


def nan_in_train() -> aacp.Data:
    return _changed("train", _with(float("nan"), 32, 0).expand(32, 1, 8, 8) * float("nan"))


def nan_in_holdout() -> aacp.Data:
    return _changed("holdout", _with(float("nan"), 16, 1))


def nan_in_test() -> aacp.Data:
    return _changed("test", _with(float("nan"), 16, 2))


def infinity_in_test() -> aacp.Data:
    return _changed("test", _with(float("inf"), 16, 2))


def infinity_in_holdout() -> aacp.Data:
    return _changed("holdout", _with(float("inf"), 16, 1))


def fractional_labels() -> aacp.Data:
    return _changed("train", labels=torch.full((32,), 0.7))


def fractional_test_labels() -> aacp.Data:
    return _changed("test", labels=torch.full((16,), 0.7))


def labels_out_of_range() -> aacp.Data:
    return _changed("train", labels=torch.full((32,), 99))


def test_labels_out_of_range() -> aacp.Data:
    return _changed("test", labels=torch.full((16,), 99))


def negative_labels() -> aacp.Data:
    return _changed("holdout", labels=torch.full((16,), -2))


def wrong_shape() -> aacp.Data:
    return _changed("train", torch.randn(32, 3, 8, 8))


def wrong_shape_in_test() -> aacp.Data:
    return _changed("test", torch.randn(16, 3, 8, 8))


def empty_train() -> aacp.Data:
    return aacp.Data(part(0, 0), part(16, 1), part(16, 2), "empty")


def empty_holdout() -> aacp.Data:
    return aacp.Data(part(32, 0), part(0, 1), part(16, 2), "empty")


def empty_test() -> aacp.Data:
    return aacp.Data(part(32, 0), part(16, 1), part(0, 2), "empty")


class Endless(IterableDataset[Any]):
    """Examples without an end."""

    def __iter__(self) -> Iterator[Any]:
        inputs, labels = tensors(1, 0)
        while True:
            yield inputs[0], labels[0]


class Failing(torch.utils.data.Dataset[Any]):
    """Fails at its eleventh example."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        if index == 10:
            raise ValueError("example 10 is damaged")
        return torch.zeros(1, 8, 8), index % CLASSES


def endless() -> aacp.Data:
    return aacp.Data(DataLoader(Endless(), batch_size=8), part(16, 1), part(16, 2), "endless")


def endless_holdout() -> aacp.Data:
    return aacp.Data(part(32, 0), DataLoader(Endless(), batch_size=8), part(16, 2), "endless")


def endless_test() -> aacp.Data:
    return aacp.Data(part(32, 0), part(16, 1), DataLoader(Endless(), batch_size=8), "endless")


def failing() -> aacp.Data:
    return aacp.Data(Failing(), part(16, 1), part(16, 2), "failing")


def failing_test() -> aacp.Data:
    return aacp.Data(part(32, 0), part(16, 1), Failing(), "failing")


def failing_in_workers() -> aacp.Data:
    return aacp.Data(DataLoader(Failing(), batch_size=8, num_workers=1), part(16, 1), part(16, 2), "failing")


def single_part() -> Any:
    return part(32, 0)


def three_loose_parts() -> Any:
    return part(32, 0), part(16, 1), part(16, 2), part(16, 3)


def huge_labels() -> aacp.Data:
    """Ten thousand million labels that share one element of memory."""
    inputs = torch.zeros(1, 1, 8, 8).expand(10**10, 1, 8, 8)
    return aacp.Data((inputs, torch.zeros(1, dtype=torch.long).expand(10**10)), part(16, 1), part(16, 2), "huge")


def colour_net() -> nn.Module:
    """The network for pictures with three channels and two classes."""
    network = Net()
    network.conv1 = nn.Conv2d(3, 8, 3, padding=1)
    network.head = nn.Linear(8, 2)
    return network


# -- kills of worker processes and of those that started them ----------------------------------------------------------


def _kill_in_worker() -> None:
    """In a process that an attempt of the forker has started: a kill at the n-th call that changes files.

    Attempts are forked and do not import this module again, so only the processes that they start come here.
    """
    given = os.environ.get("AACP_FAULTS_WORKER_KILL")
    if given:
        from faults.injection import Injection

        fault, at, below = given.split(" ", 2)
        Injection(fault, int(at), False, below, Path(os.devnull)).install()


_kill_in_worker()
