"""Networks that aacp has cut, trained by loops that know nothing of it: the programs of examples/loops."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

import aacp

LOOPS = Path(__file__).parent.parent.parent / "examples" / "loops"
# Trainers warn about few workers, missing loggers and the like.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(LOOPS))
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("with_plain_torch", "torch"),
        ("with_lightning", "lightning"),
        ("with_accelerate", "accelerate.accelerator"),  # `accelerate` alone is also a folder of these tests
        ("with_transformers", "transformers"),
    ],
)
def test_a_cut_network_is_trained_saved_and_loaded(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(package, reason=f"the example uses the loop of {package}, which is not installed")
    monkeypatch.chdir(tmp_path)
    module = example(name, monkeypatch)
    file = module.main(tmp_path / "run", epochs=3, evaluations=4, images=480)
    header = aacp.Artefact.read(file)
    printed = capsys.readouterr().out.splitlines()[-1]
    unpruned, trained = map(float, re.findall(r"(?:unpruned|trained) ([\d.]+)", printed))
    assert header.structure != header.graph.full
    assert aacp.macs(header.graph)(header.structure) <= 0.5 * aacp.macs(header.graph)(header.graph.full)
    assert unpruned > 0.5  # ten classes: guessing gives 0.1
    assert trained > 0.5


@pytest.mark.parametrize("path", sorted(LOOPS.glob("with_*.py")), ids=lambda path: path.stem)
def test_an_example_says_how_it_is_run(path: Path) -> None:
    assert f"python examples/loops/{path.name}" in path.read_text().split('"""')[1]


def test_the_teacher_of_a_loop_is_neither_trained_nor_part_of_a_module() -> None:
    torch.manual_seed(0)
    teacher, student = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}

    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = student
            self.teaching = aacp.Distillation(teacher.train(), share=0.25, temperature=2.0)

    holder = Holder()
    inputs, labels = torch.randn(8, 4), torch.arange(8) % 3
    outputs = student(inputs)
    plain = torch.nn.functional.cross_entropy(outputs, labels)
    loss = holder.teaching(inputs, outputs, plain)
    loss.backward()
    soft, answer = (teacher(inputs) / 2).softmax(1), (outputs / 2).softmax(1)
    torch.testing.assert_close(loss, 0.75 * plain + 0.25 * 4 * (soft * (soft / answer).log()).sum(1).mean())
    assert list(holder.state_dict()) == ["student.weight", "student.bias"]
    assert teacher.training
    assert teacher.weight.grad is None
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_a_teacher_is_asked_in_evaluation_mode_and_by_argument_names() -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = torch.nn.Dropout(0.9)

        def forward(self, *, image: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"image": self.drop(image)}

    inputs = {"image": torch.randn(4, 1, 3, 3)}
    answer = aacp.Distillation(Named().train()).answer(inputs)
    assert torch.equal(answer["image"], inputs["image"])


def test_what_is_not_a_network_or_a_share_is_rejected() -> None:
    with pytest.raises(aacp.InvalidOption, match="The teacher is a int"):
        aacp.Distillation(5)  # type: ignore[arg-type]
    with pytest.raises(aacp.InvalidOption, match="share is 2"):
        aacp.Distillation(torch.nn.Linear(1, 2), share=2)
