"""ONNX export: ONNX Runtime computes the same as torch, or no file is written."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.artefact.onnx import export_artefact
from aacp.disk.reading import sha256_of
from aacp.latency.check import time_networks
from aacp.runs.manifest import read_manifest
from graph.micro_networks import MICRO
from graph.oracles import half, tensors
from sampling import sampled

pytestmark = pytest.mark.slow

BY_NAME = {micro.name: micro for micro in MICRO}


def cut(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    micro = BY_NAME[name]
    model, example = micro.build(), micro.example()
    graph = aacp.trace(model, example)
    return aacp.shrink(model, graph, half(graph, seed=1)), example


def in_onnx_runtime(path: Path, example: Any) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return session.run(None, dict(zip(names, [t.numpy() for t in tensors(example)], strict=True)))


class Plain(nn.Module):
    """A batch norm, a dropout and a constant batch size in the code if `rows` is given."""

    def __init__(self, rows: int | None = None) -> None:
        super().__init__()
        self.conv, self.norm, self.drop, self.rows = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), rows

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(self.norm(self.conv(x)))
        return y if self.rows is None else y.reshape(self.rows, -1)


class Random(Plain):
    """A network that draws random numbers in evaluation mode too."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.1 * torch.randn_like(x))


def test_a_network_that_draws_random_numbers_cannot_be_compared(tmp_path: Path) -> None:
    words = r"outputs of the network differ from call to call, .*random\.onnx.* Let it draw no random numbers"
    with pytest.raises(aacp.ExportFailed, match=words):
        aacp.export_onnx(Random().eval(), tmp_path / "random.onnx", torch.randn(2, 3, 8, 8))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("nested_input", ("input_0.views.0", "input_0.views.1", "input_0.extra.depth"), ("output",)),
        ("feature_pyramid", ("input_0",), ("output.0", "output.1", "output.2")),
        ("resnext_bottleneck", ("input",), ("output",)),
    ],
)
def test_pruned_networks_compute_the_same_on_other_batches(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], tmp_path: Path
) -> None:
    network, example = cut(name)
    found = aacp.export_onnx(network, tmp_path / "a.onnx", example)
    assert found.inputs == inputs
    assert found.outputs == outputs
    assert found.file_bytes == (tmp_path / "a.onnx").stat().st_size
    assert found.largest_difference <= 1e-5 * found.largest_output
    graph = onnx.load(found.path).graph
    assert {one.type.tensor_type.shape.dim[0].dim_param for one in (*graph.input, *graph.output)} == {"batch"}
    other = torch.utils._pytree.tree_map(lambda leaf: torch.randn(3, *leaf.shape[1:]), example)
    for ours, theirs in zip(tensors(network(*other)), in_onnx_runtime(found.path, other), strict=True):
        torch.testing.assert_close(ours.detach(), torch.from_numpy(theirs), rtol=1e-4, atol=1e-5)


def test_the_model_is_not_touched_and_equal_models_give_equal_files(tmp_path: Path) -> None:
    model = Plain().train()
    model.norm.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = aacp.export_onnx(model, tmp_path / "new" / "a.onnx", torch.randn(1, 3, 8, 8), opset=20)
    second = aacp.export_onnx(model, tmp_path / "b.onnx", torch.randn(1, 3, 8, 8), opset=20)
    assert [module.training for module in (model, model.conv, model.norm)] == [True, True, False]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert first.path.read_bytes() == second.path.read_bytes()
    assert onnx.load(first.path).opset_import[0].version == first.opset == 20
    assert str(Path(__file__).parent).encode() not in first.path.read_bytes()  # nobody's source code is named
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b.onnx", "new"]
    assert "any batch size, at most" in str(first)


def test_a_network_that_fixes_its_batch_size_is_exported_for_that_of_the_example(tmp_path: Path) -> None:
    x = torch.randn(1, 3, 8, 8)
    found = aacp.export_onnx(Plain(rows=2), tmp_path / "a.onnx", {"x": x})
    assert (found.inputs, found.checked_batches, found.dynamic_batch) == (("x",), (1,), False)
    assert str(found).endswith("\nThe batch size is fixed at 1: the network's code depends on it.")
    assert in_onnx_runtime(found.path, x)[0].shape == (2, 2 * 6 * 6)
    fixed = aacp.export_onnx(Plain(), tmp_path / "b.onnx", x, dynamic_batch=False)
    assert (fixed.checked_batches, fixed.dynamic_batch, fixed.notes) == ((1,), False, ())


class Detector(nn.Module):
    """A detection head: it keeps the grid of its last shape, and joins two scales, of which one is half the other."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse, self.up = (
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.Conv2d(8, 8, 3, 2, 1),
            nn.Upsample(scale_factor=2),
        )
        self.head = nn.Conv2d(16, 6, 1)
        self.shape, self.grid = None, torch.empty(0)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        fine = self.fine(x)
        y = self.head(torch.cat((fine, self.up(self.coarse(fine))), dim=1))
        if self.shape != y.shape:
            rows, columns = (torch.arange(size) + 0.5 for size in y.shape[2:])
            self.grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"))
            self.shape = y.shape
        return {"boxes": (y[:, :2].sigmoid() + self.grid).flatten(2), "classes": y[:, 2:].flatten(2)}


@pytest.mark.parametrize("ran_on", sampled([2, None, 1, 5], 4))
def test_a_head_that_keeps_the_grid_of_its_last_batch_is_exported_for_any_batch_size(
    ran_on: int | None, tmp_path: Path
) -> None:
    model = Detector().eval()
    if ran_on is not None:
        model(torch.randn(ran_on, 3, 16, 24))
    grid = model.grid
    found = aacp.export_onnx(model, tmp_path / "a.onnx", torch.randn(2, 3, 16, 24))
    assert (found.dynamic_batch, found.notes, found.checked_batches) == (True, (), (1, 2, 5))
    assert model.grid is grid  # a fake tensor in the user's network would break its next call
    x = torch.randn(3, 3, 16, 24)
    for ours, theirs in zip(model(x).values(), in_onnx_runtime(found.path, x), strict=True):
        torch.testing.assert_close(ours.detach(), torch.from_numpy(theirs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ran_on", sampled([[1, 3, 16, 24], None, [1, 3, 32, 48]], 3))
def test_height_and_width_are_free_in_the_steps_that_the_network_accepts(
    ran_on: tuple[int, ...] | None, tmp_path: Path
) -> None:
    model = Detector().eval()
    if ran_on is not None:
        model(torch.randn(ran_on))
    found = aacp.export_onnx(model, tmp_path / "a.onnx", torch.randn(1, 3, 16, 24), dynamic_size=True)
    assert (found.dynamic_size, found.size_step, found.notes) == (True, 4, ())
    assert "any batch size, other heights and widths in steps of 4, at most" in str(found)
    (entry,) = onnx.load(found.path).graph.input
    assert [dim.dim_param or dim.dim_value for dim in entry.type.tensor_type.shape.dim] == [
        "batch",
        3,
        "height",
        "width",
    ]
    for shape in ((3, 3, 16, 24), (1, 3, 64, 20), (2, 3, 8, 100), (1, 3, 32, 48)):
        x = torch.randn(shape)
        for ours, theirs in zip(model(x).values(), in_onnx_runtime(found.path, x), strict=True):
            torch.testing.assert_close(ours.detach(), torch.from_numpy(theirs), rtol=1e-4, atol=1e-5)


class Padded(nn.Module):
    """A network with another path for odd heights, which an export of an even one does not contain."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x if x.shape[2] % 2 == 0 else x * 2)


def test_sizes_at_which_the_network_takes_another_path_are_not_promised(tmp_path: Path) -> None:
    found = aacp.export_onnx(Padded(), tmp_path / "a.onnx", torch.randn(1, 3, 8, 8), dynamic_size=True)
    assert found.size_step == 2


def test_a_network_that_accepts_one_size_only_is_exported_for_it_with_a_note(tmp_path: Path) -> None:
    fixed = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten(), nn.Linear(2 * 8 * 6, 4))
    found = aacp.export_onnx(fixed, tmp_path / "a.onnx", torch.randn(1, 3, 8, 6), dynamic_size=True)
    (note,) = found.notes
    assert note.startswith("The file accepts only the sizes of the example: height 8, width 6. The file agrees")
    assert "mat1" in note
    assert (found.dynamic_batch, found.dynamic_size, found.size_step) == (True, False, None)
    (entry,) = onnx.load(found.path).graph.input
    assert [dim.dim_param or dim.dim_value for dim in entry.type.tensor_type.shape.dim] == ["batch", 3, 8, 6]
    x = torch.randn(3, 3, 8, 6)
    np.testing.assert_allclose(in_onnx_runtime(found.path, x)[0], fixed(x).detach().numpy(), atol=1e-5)


class Sorting(nn.Module):
    """Which operators run depends on the values of the input, so torch.export cannot follow it."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if float(x.sum()) > 0 else x


def test_a_network_that_cannot_be_exported_is_an_error_that_prints_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(aacp.ExportFailed, match=r"^Sorting cannot be converted to ONNX: "):
        aacp.export_onnx(Sorting(), tmp_path / "a.onnx", torch.randn(1, 3, 8, 6), dynamic_size=True)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_numbers_that_onnx_runtime_cannot_convolve_are_an_error_whose_advice_works(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    network, example = Plain().to(dtype), torch.randn(1, 3, 8, 8, dtype=dtype)
    with pytest.raises(aacp.ExportFailed, match=r"cannot open a.onnx: .*float64 or bfloat16, .*network.float\(\)"):
        aacp.export_onnx(network, tmp_path / "a.onnx", example)
    aacp.export_onnx(network.float(), tmp_path / "a.onnx", example.float())


def test_weights_beyond_two_gigabytes_go_to_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aacp.artefact.onnx_program.SINGLE_FILE_BYTES", 100)
    wide = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 4, 1))
    found = aacp.export_onnx(wide, tmp_path / "a.onnx", torch.randn(1, 3, 8, 8))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.onnx", "a.onnx.data"]
    assert found.file_bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    x = torch.randn(4, 3, 8, 8)
    np.testing.assert_allclose(in_onnx_runtime(found.path, x)[0], wide(x).detach().numpy(), atol=1e-5)


def test_an_export_that_computes_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert_another(exported: Any, *args: Any, **options: Any) -> Any:
        program = convert(exported, *args, **options)
        bias = program.model.graph.initializers["network.conv.bias"]
        bias.const_value = onnx_ir.tensor(bias.const_value.numpy() + np.float32(0.01), name="network.conv.bias")
        return program

    convert = torch.onnx.export
    monkeypatch.setattr(torch.onnx, "export", convert_another)
    with pytest.raises(aacp.ExportFailed, match=r"output of a.onnx is 0.01 away from torch on a batch of 1"):
        aacp.export_onnx(Plain(), tmp_path / "a.onnx", torch.randn(1, 3, 8, 8))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_package_that_is_missing_is_named_with_what_to_install(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(aacp.MissingPackage, match=rf"^{package} is not installed.*pip install 'aacp\[onnx\]'"):
        aacp.export_onnx(Plain(), tmp_path / "a.onnx", torch.randn(1, 3, 8, 8))


def test_mistakes_are_rejected_before_the_exporter_runs(tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"Opset 9 cannot be written here. Choose one from 18 to"):
        aacp.export_onnx(Plain(), tmp_path / "a.onnx", torch.randn(1, 3, 8, 8), opset=9)
    with pytest.raises(aacp.InvalidExample, match="Plain does not run on the example"):
        aacp.export_onnx(Plain(), tmp_path / "a.onnx", torch.randn(1, 4, 8, 8))
    (tmp_path / "no.onnx").write_text("nothing")
    with pytest.raises(aacp.ExportFailed, match=r"ONNX Runtime cannot open no.onnx"):
        time_networks({"a": tmp_path / "no.onnx"}, torch.randn(1, 3, 8, 8))


def test_an_artefact_is_exported_and_timed_beside_the_original(tmp_path: Path) -> None:
    model, x = aacp.build_model("digits_resnet"), torch.randn(1, 1, 8, 8)
    graph = aacp.trace(model, x)
    network = aacp.shrink(model, graph, half(graph, seed=0))
    aacp.save(network, graph, tmp_path / "pruned.safetensors", model="digits_resnet", example=x)
    after = export_artefact(tmp_path, batch=2)
    assert (after.path, after.dynamic_batch, after.checked_batches) == (tmp_path / "pruned.onnx", False, (2,))
    x2, threads = torch.cat((x, x)), torch.get_num_threads()
    np.testing.assert_allclose(in_onnx_runtime(after.path, x2)[0], network.eval()(x2).detach().numpy(), atol=1e-5)
    of_two = aacp.Deployment(batch=2, threads=1)
    timed = time_networks({"again": after.path, "after": after.path}, x, of_two, turns=3)
    assert [len(timing.seconds) for timing in timed.values()] == [3, 3]
    in_torch = time_networks({"before": model, "after": network}, x, replace(of_two, runtime="torch"), turns=3)
    assert aacp.speedup(in_torch["before"], in_torch["after"]).median > 0
    assert torch.get_num_threads() == threads
    with pytest.raises(aacp.InvalidOption, match="4x1x8x8 is a batch of 4, but the batch size is 2"):
        export_artefact(tmp_path, batch=2, shape=(4, 1, 8, 8))
    with pytest.raises(aacp.InvalidOption, match="takes 1 input"):
        time_networks({"onnx": after.path}, (x, x), of_two)


def test_a_delivered_file_is_not_replaced_by_one_with_other_options(tmp_path: Path) -> None:
    model, x = aacp.build_model("digits_resnet"), torch.randn(1, 1, 8, 8)
    graph = aacp.trace(model, x)
    network = aacp.shrink(model, graph, half(graph, seed=0))
    aacp.save(network, graph, tmp_path / "pruned.safetensors", model="digits_resnet", example=x)
    (tmp_path / "export.json").write_text("{}")
    (tmp_path / "pruned.onnx").write_text("delivered")
    assert export_artefact(tmp_path, batch=2, opset=19).path == tmp_path / "pruned-batch2-opset19.onnx"
    assert export_artefact(tmp_path, shape=(1, 1, 16, 16)).path == tmp_path / "pruned-shape1x1x16x16.onnx"
    assert (tmp_path / "pruned.onnx").read_text() == "delivered"
    assert export_artefact(tmp_path).path == tmp_path / "pruned.onnx"


def test_a_file_that_is_exported_again_is_listed_however_its_folder_is_written(tmp_path: Path, monkeypatch) -> None:
    model, x = aacp.build_model("digits_resnet"), torch.randn(1, 1, 8, 8)
    graph = aacp.trace(model, x)
    run = tmp_path / "run"
    run.mkdir()
    network = aacp.shrink(model, graph, half(graph, seed=0))
    aacp.save(network, graph, run / "pruned.safetensors", model="digits_resnet", example=x)
    (run / "pruned.onnx").write_bytes(b"another export")
    aacp.RunFolder(run).listing.begin()
    monkeypatch.chdir(tmp_path)
    exported = export_artefact("run", run / "pruned.onnx")
    listed = read_manifest(run)
    assert listed is not None
    assert listed.entries["pruned.onnx"].sha256 == sha256_of(exported.path)


def test_the_exporters_talk_is_not_the_users(tmp_path: Path, monkeypatch, caplog) -> None:
    def talk(*_: Any, **__: Any) -> None:
        logging.getLogger("torch.onnx._internal").warning("Something that you do not need is not installed.")
        raise RuntimeError("enough")

    monkeypatch.setattr(torch.onnx, "export", talk)
    with pytest.raises(aacp.ExportFailed, match="enough"):
        aacp.export_onnx(Plain(), tmp_path / "plain.onnx", torch.randn(2, 3, 5, 5))
    assert "is not installed" not in caplog.text
    logging.getLogger("torch.onnx._internal").warning("Afterwards it may.")
    assert "Afterwards it may." in caplog.text


@pytest.mark.parametrize("batch", [0, -1, 2.5, 10**400])
def test_a_batch_size_that_no_file_can_have_is_rejected_before_the_file_is_read(batch: float, tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match="batch is"):
        export_artefact(tmp_path / "nowhere.safetensors", batch=batch)
