"""The file of the deployment's runtime is delivered beside the ONNX files, reported, and verified by its checksum."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import aacp
from aacp.cli import main
from aacp.latency.runtimes import registry
from plain_network import plain_network

pytestmark = pytest.mark.slow

WITH_FILES = [name for name in registry.BUILT_IN if name != "onnxruntime" and registry.find_runtime(name).suffix]


@pytest.mark.parametrize("name", WITH_FILES)
def test_a_lost_or_damaged_file_is_noticed_and_written_again(name: str, tmp_path: Path) -> None:
    runtime = registry.find_runtime(name)
    for needed in (runtime, registry.find_runtime("onnxruntime")):
        if not needed.is_installed:
            pytest.skip(f"{needed.name} is not installed")
    plan = aacp.Plan(
        evaluations=4,
        calibration_images=64,
        recipe=None,
        reconstruction=None,
        deployment=aacp.Deployment(name, threads=1),
    )
    model = plain_network()  # ncnn has no operator for the slices of the shortcuts of a digits_resnet

    def pruned() -> aacp.Pruned:
        return aacp.prune(model, aacp.load_data("digits"), {"macs": 0.3}, tmp_path, plan=plan)

    found = pruned()
    assert found.exported is not None
    (files,) = found.exported.others
    folder = found.training.path
    written = sorted(path.name for path in folder.glob("pruned.*") if path.suffix not in (".onnx", ".safetensors"))
    assert files.file == f"pruned{runtime.suffix}" in written
    assert files.after_bytes == sum((folder / each).stat().st_size for each in written) < files.before_bytes
    assert found.exported.timings[-1].runtime.startswith(f"{runtime.title} {runtime.version}")
    assert files.file in (tmp_path / "report.html").read_text()
    assert _checked(tmp_path) == 0
    for each in written:
        whole = (folder / each).read_bytes()
        (folder / each).unlink()
        assert _checked(tmp_path) != 0
        (folder / each).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert _checked(tmp_path) != 0
    again = pruned()
    assert again.exported is not None
    assert _checked(tmp_path) == 0
    example = torch.randn(1, 1, 8, 8)
    (output,) = runtime.prepare(folder / files.file, example, device="cpu", threads=1)()
    torch.testing.assert_close(torch.as_tensor(output), again.network.cpu()(example).detach(), rtol=1e-3, atol=1e-3)


def _checked(folder: Path) -> int:
    return CliRunner().invoke(main, ["check", str(folder)]).exit_code
