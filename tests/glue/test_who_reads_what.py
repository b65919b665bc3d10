"""One record of whole runs: which part of the data every stage reads, and for what.

The test data decides nothing. It is read to score two networks: the unpruned one before the run begins (so that test
data on which it cannot be scored is rejected before the search, not after it), and the delivered one at the end.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

import aacp
from aacp.latency.runtimes import onnxruntime
from aacp.pipeline.checking import check_folder
from aacp.train import mimic
from glue.recorder import Recorder
from glue.subjects import SIZES, Tiny, data, inherited, watermarks

pytestmark = pytest.mark.slow

CALIBRATION = 64  # of the 176 training images
BUDGET = {"macs": 0.5}
TORCH = aacp.Deployment("torch", threads=1)
Run = Callable[..., Recorder]

# What holds for every run. Tracing, exporting and the choice of a memory layout only use one example of the hold-out.
PREFLIGHT = {"score unpruned": {"holdout", "test"}}
EVALUATION = {"score pruned": {"holdout", "test"}}


@pytest.fixture(scope="module")
def run(model: nn.Module, recipe: aacp.Recipe, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A function that prunes with a plan and gives the record of the run."""
    plan = aacp.Plan(evaluations=4, recipe=recipe, calibration_images=CALIBRATION, export=False)

    def recorded(budget=BUDGET, *, with_loss: bool = False, teacher: nn.Module | None = None, **changes) -> Recorder:
        recorder = Recorder(tmp_path_factory.mktemp("run"), model)
        chosen = replace(plan, **changes)
        loss = recorder.loss if with_loss else None
        with recorder.recording():
            aacp.prune(
                model, recorder.data, budget, recorder.folder, plan=chosen, score=recorder.score, loss=loss,
                teacher=teacher, device="cpu",
            )  # fmt: skip
        return recorder

    return recorded


@pytest.fixture(scope="module")
def finetuned(run: Run) -> Recorder:
    return run(with_loss=True)


def test_fine_tuning_sees_training_data_and_the_search_the_hold_out(finetuned: Recorder) -> None:
    assert finetuned.passes() == {
        "preflight": {**PREFLIGHT, "run unpruned": {"train"}},  # a trial of the loss function
        "search": {
            "run pruned": {"train"},  # recalibration of the candidates
            "score pruned": {"holdout"},  # the estimates
            "run unpruned": {"train"},  # the teacher, whose outputs must be comparable
            "train unpruned": {"train"},  # a trial step of training, with the network as it is
            "train pruned": {"train"},  # and with half of it
        },
        "delivery": {
            "run pruned": {"train"},  # recalibration
            "run unpruned": {"train"},  # the teacher
            "train pruned": {"train"},
            "score pruned": {"holdout"},  # after every epoch
        },
        "evaluation": EVALUATION,
    }
    assert set(finetuned.losses) == {"preflight", "search", "delivery"}


def test_every_read_of_every_stage_is_known(finetuned: Recorder) -> None:
    assert finetuned.reads() == {
        "preflight": {"train", "holdout", "test"},
        "tracing": {"holdout"},  # the example
        "search": {"train", "holdout"},
        "delivery": {"train", "holdout"},
        "evaluation": {"holdout", "test"},
    }


def test_as_many_images_are_read_as_were_planned(finetuned: Recorder) -> None:
    sample = finetuned.positions("search", "run pruned", "train")
    assert len(sample) == CALIBRATION
    assert finetuned.positions("delivery", "run pruned", "train") >= sample
    assert max(sample) > CALIBRATION  # drawn from all training images, not the first ones
    assert finetuned.positions("search", "score pruned", "holdout") == set(range(SIZES["holdout"]))
    assert len(finetuned.positions("delivery", "train pruned", "train")) == SIZES["train"] // 16 * 16
    for stage, kind in (("preflight", "score unpruned"), ("evaluation", "score pruned")):
        for part in ("holdout", "test"):
            assert finetuned.positions(stage, kind, part) == set(range(SIZES[part])), (stage, part)


def test_a_search_on_few_images_reads_what_one_on_all_images_reads(run: Run, finetuned: Recorder) -> None:
    found = run(with_loss=True, screening=0.25)
    assert found.passes() == finetuned.passes()
    kinds = (("run pruned", "train"), ("score pruned", "holdout"))
    for kind, part in kinds:
        few = found.positions("search", kind, part)
        assert few >= finetuned.positions("search", kind, part)  # all of them, for the promising structures
    assert found.scored == finetuned.scored  # on test data


def test_the_hold_out_is_trained_on_after_the_search_if_that_was_planned(run: Run) -> None:
    found = run(train_on_holdout=True)
    both = {"train", "holdout"}
    assert found.passes()["search"]["train pruned"] == {"train"}
    assert found.passes()["search"]["score pruned"] == {"holdout"}
    assert found.passes()["delivery"]["train pruned"] == both
    assert found.passes()["delivery"]["run unpruned"] == both  # the teacher
    assert len(found.positions("delivery", "train pruned", "holdout")) > SIZES["holdout"] // 2
    assert "score pruned" not in found.passes()["delivery"]  # it would say nothing
    assert found.passes()["evaluation"] == {"score pruned": {"test"}}
    assert found.reads()["evaluation"] == {"holdout", "test"}  # one example of the hold-out, see above
    assert json.loads((found.training / "evaluation.json").read_text())["after"]["holdout"] is None


def test_training_from_scratch_has_no_teacher_and_sees_training_data(
    run: Run, model: nn.Module, recipe: aacp.Recipe
) -> None:
    found = run(with_loss=True, from_scratch=True, recipe=replace(recipe, distillation=0.0, lr=1e-12))
    delivery = found.passes()["delivery"]
    assert delivery["train pruned"] == {"train"}
    assert delivery["score pruned"] == {"holdout"}
    assert "run unpruned" not in delivery
    assert "delivery" in found.losses
    assert found.passes()["evaluation"] == EVALUATION
    # Without a rate, fresh weights stay what they were drawn as: none of them is inherited.
    delivered = aacp.load(found.folder, into=Tiny())
    assert not torch.isin(delivered.conv1.weight, model.conv1.weight).any()


def test_without_distillation_nobody_teaches_and_without_a_rate_the_inherited_weights_stay(
    run: Run, model: nn.Module, recipe: aacp.Recipe
) -> None:
    found = run(recipe=replace(recipe, distillation=0.0, lr=1e-12), importance="bn")
    assert "run unpruned" not in found.passes()["delivery"]
    assert found.passes()["delivery"]["train pruned"] == {"train"}
    graph = aacp.ChannelGraph.from_json(json.loads((found.folder / "graph.json").read_text()))
    counts = json.loads((found.folder / "structure.json").read_text())["counts"]
    expected = inherited(model, graph, counts, importance="bn")
    delivered = aacp.load(found.folder, into=Tiny())
    for name, weight in delivered.named_parameters():
        assert torch.equal(weight, expected.get_parameter(name)), name


def test_a_teacher_that_was_given_teaches_instead_of_the_unpruned_network(run: Run) -> None:
    teacher = Listening()
    found = run(teacher=teacher)
    assert Listening.answers > 0
    assert "run unpruned" not in found.passes()["delivery"]


class Listening(Tiny):
    """A teacher that counts the calls of itself and of its copies; it has one weight more than the network."""

    answers = 0

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        Listening.answers += 1
        return super().forward(x)


def test_probing_trains_on_training_data_and_judges_by_the_hold_out(run: Run) -> None:
    found = run({}, with_loss=True, max_drop=0.5, probe_epochs=1, evaluations=2, train_on_holdout=True)
    assert found.passes()["search"] == {
        "run pruned": {"train"},
        "run unpruned": {"train"},  # the teacher of the probes
        "score pruned": {"holdout"},
        "train unpruned": {"train"},
        "train pruned": {"train"},  # the hold-out judges the probes, whatever the last training may see
    }
    assert len(found.positions("search", "train pruned", "train")) > CALIBRATION  # more than the trial step
    assert len(found.positions("search", "run unpruned", "train")) > CALIBRATION  # of which the teacher has a part too
    assert found.losses["search"] > 2  # the two trial steps, and those of the probes
    assert found.reads()["search"] == {"train", "holdout"}
    assert found.passes()["delivery"]["train pruned"] == {"train", "holdout"}
    trained = [path for path in (found.folder / "probes").iterdir() if (path / "training").is_dir()]
    assert len(trained) > 1


def test_finalists_are_trained_on_training_data_and_judged_by_the_hold_out(run: Run) -> None:
    """Also if the last training takes the hold-out too."""
    found = run(with_loss=True, finalists=3, rungs=(1,), train_on_holdout=True)
    assert found.passes()["search"] == {
        "run pruned": {"train"},
        "run unpruned": {"train"},  # the teacher of the finalists
        "score pruned": {"holdout"},
        "train unpruned": {"train"},
        "train pruned": {"train"},
    }
    assert found.reads()["search"] == {"train", "holdout"}
    assert len(found.positions("search", "train pruned", "train")) == SIZES["train"] // 16 * 16
    assert len(found.positions("search", "run unpruned", "train")) > CALIBRATION  # more than the trial step
    assert found.losses["search"] == 2 + 3 * (SIZES["train"] // 16)  # two trial steps, and three trainings
    assert found.passes()["delivery"]["train pruned"] == {"train", "holdout"}


def test_probes_are_compared_with_the_unpruned_score_on_the_hold_out(
    model: nn.Module, recipe: aacp.Recipe, tmp_path: Path
) -> None:
    """The unpruned network scores 1 on the hold-out and nothing on test data; whatever is pruned scores 0.4."""
    unpruned = {"holdout": 1.0, "test": 0.0}

    def score(network: nn.Module, batches: aacp.Batches) -> float:
        part, _ = watermarks(next(batches.inputs())).pop()
        return unpruned[part] if network.conv3.out_channels + network.conv2.out_channels == 32 else 0.4

    plan = aacp.Plan(
        evaluations=1, recipe=recipe, calibration_images=16, export=False, frozen=("conv1",), max_drop=0.5,
        probe_epochs=1,
    )  # fmt: skip
    with pytest.raises(aacp.InfeasibleBudget):
        aacp.prune(model, data(), {}, tmp_path, plan=plan, score=score, device="cpu")


def test_probing_without_training_trains_nothing(run: Run) -> None:
    found = run({}, max_drop=0.5, evaluations=2, recipe=None, reconstruction=None)
    assert found.passes() == {
        "preflight": PREFLIGHT,
        "search": {
            "run pruned": {"train"},
            "run unpruned": {"train"},
            "score pruned": {"holdout"},  # the unpruned network was scored in the preflight
        },
        "delivery": {"run pruned": {"train"}},
        "evaluation": EVALUATION,
    }


@pytest.fixture(scope="module")
def table(model: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A latency table, measured hastily."""
    example = data().holdout[0][0][None]
    graph = aacp.trace(model, example)
    file = tmp_path_factory.mktemp("table") / "latency.json"
    space = aacp.SearchSpace(graph, 1 / 8)
    effort = {"structures": 8, "held_out": 3, "seconds_per_structure": 0.01}
    aacp.measure_latency(model, graph, space, TORCH, example=example, file=file, **effort)
    return str(file)


def test_latency_and_export_use_one_example_of_the_hold_out(run: Run, table: str) -> None:
    changes = {"recipe": None, "reconstruction": None, "export": True, "deployment": TORCH, "latency_table": table}
    found = run({**BUDGET, "latency": "10s"}, **changes)
    assert (found.folder / "checks.jsonl").exists()
    assert (found.training / "pruned.onnx").exists()
    assert found.passes() == {
        "preflight": PREFLIGHT,
        "search": {
            "run pruned": {"train"},
            "run unpruned": {"train"},  # one image, which shows the memory layout that the network can run in
            "score pruned": {"holdout"},
        },
        "delivery": {"run pruned": {"train"}},
        "evaluation": EVALUATION,
    }
    assert len(found.positions("search", "run unpruned", "train")) == 1
    assert found.reads()["export"] == {"holdout"}
    assert found.reads()["search"] == {"train", "holdout"}
    assert len(found.positions("delivery", "run pruned", "train")) == CALIBRATION


def test_with_accuracy_as_the_score_the_same_parts_are_read(
    model: nn.Module, recipe: aacp.Recipe, tmp_path: Path
) -> None:
    """Accuracy has shorter ways of its own: a search may stop looking at a candidate early."""
    recorder = Recorder(tmp_path, model)
    plan = aacp.Plan(evaluations=4, recipe=None, reconstruction=None, calibration_images=CALIBRATION, export=False)
    with recorder.recording():
        aacp.prune(model, recorder.data, BUDGET, tmp_path, plan=plan, device="cpu")
    assert recorder.passes()["search"] == {
        "run pruned": {"train", "holdout"},
        "run unpruned": {"train", "holdout"},  # its statistics are compared with recalibrated ones
    }
    assert recorder.passes()["delivery"] == {"run pruned": {"train"}}
    assert recorder.passes()["evaluation"] == {"run pruned": {"holdout", "test"}}
    assert recorder.reads()["search"] == {"train", "holdout"}


def test_repair_and_mimicry_see_calibration_images_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mimic, "varied", lambda inputs: inputs)  # images are recognised by their values
    found = run(recipe=None, mimic=4)
    assert found.reads() == {
        "preflight": {"train", "holdout", "test"},
        "tracing": {"holdout"},
        "search": {"train", "holdout"},
        "delivery": {"holdout"},  # the example; the calibration images were read in the search and are kept
        "evaluation": {"holdout", "test"},
    }
    delivery = found.passes()["delivery"]
    assert {part for parts in delivery.values() for part in parts} == {"train"}
    assert "run unpruned" in delivery  # the original, which is mimicked
    sample = found.positions("search", "run pruned", "train")
    assert len(sample) == CALIBRATION
    for kind in delivery:
        assert found.positions("delivery", kind, "train") <= sample
    assert found.passes()["evaluation"]["score pruned"] == {"holdout", "test"}


# -- int8 -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QuantisedRun:
    """A run in int8: who read what, the images of every calibration by stage, and how the network was called."""

    recorder: Recorder
    calibrated: dict[str, set[tuple[str, int]]]
    found: aacp.Pruned


INT8_PLAN = aacp.Plan(
    evaluations=4, recipe=None, reconstruction=None, calibration_images=CALIBRATION,
    deployment=aacp.Deployment(threads=1, precision="int8"),
)  # fmt: skip


@pytest.fixture(scope="module")
def quantised(model: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuantisedRun]:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    recorder = Recorder(tmp_path_factory.mktemp("int8"), model)
    calibrated: dict[str, set[tuple[str, int]]] = defaultdict(set)
    genuine = onnxruntime.quantize_file

    def watched(source: Path, target: Path, images: Sequence[tuple[torch.Tensor]]) -> int:
        for (inputs,) in images:
            calibrated[recorder.stage()] |= watermarks(inputs)
        return genuine(source, target, images)

    with pytest.MonkeyPatch.context() as patch, recorder.recording():
        patch.setattr(onnxruntime, "quantize_file", watched)
        found = aacp.prune(
            model, recorder.data, BUDGET, recorder.folder, plan=INT8_PLAN, score=recorder.score, device="cpu"
        )
        yield QuantisedRun(recorder, calibrated, found)


def test_networks_in_int8_are_calibrated_on_training_images_and_scored_once_on_test_data(
    quantised: QuantisedRun,
) -> None:
    assert set(quantised.calibrated) == {"search", "export"}
    assert {part for part, _ in quantised.calibrated["search"]} == {"train"}
    assert len(quantised.calibrated["export"]) == CALIBRATION
    assert {part for part, _ in quantised.calibrated["export"]} == {"train"}
    sample = quantised.recorder.positions("search", "run pruned", "train")
    assert {position for _, position in quantised.calibrated["export"]} == sample
    reads = quantised.recorder.reads()
    assert reads["search"] == {"train", "holdout"}
    assert reads["export"] == {"train", "holdout", "test"}  # of the hold-out, the example
    passes = quantised.recorder.passes()["export"]  # of torch: the comparison with the files
    assert passes == {"run unpruned": {"train"}, "run pruned": {"train"}}
    # Without training, the evaluation also scores the network before its last step of recovery.
    assert quantised.recorder.scored == Counter(
        {("preflight", "test"): 1, ("evaluation", "test"): 2, ("export", "test"): 2}
    )


def test_the_network_in_int8_is_delivered_scored_and_reported(quantised: QuantisedRun, model: nn.Module) -> None:
    record = quantised.found.exported
    assert record is not None
    assert record.in_int8 is not None
    scores = record.in_int8.quantized
    assert scores is not None
    folder = quantised.recorder.training
    assert (folder / "pruned.int8.onnx").stat().st_size == record.in_int8.after_bytes
    assert scores.calibration_images == CALIBRATION
    # An oracle of its own: ONNX Runtime on all test images at once.
    test = quantised.recorder.data.test
    images = torch.stack([test[position][0] for position in range(len(test))])
    labels = torch.tensor([test[position][1] for position in range(len(test))])
    for name, expected in (("original", scores.before_test), ("pruned", scores.after_test)):
        session = onnxruntime.open_session(folder / f"{name}.int8.onnx")
        (outputs,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
        assert float((torch.from_numpy(outputs).argmax(1) == labels).float().mean()) == pytest.approx(expected)
    assert scores.after_likeness is not None
    assert 0.9 < scores.after_likeness < 1
    assert [("int8" in timing.runtime) for timing in record.timings] == [False, False, True]
    summary = str(quantised.found)
    assert f"test score in int8: {scores.before_test:.4f} -> {scores.after_test:.4f}" in summary
    sizes = f"{record.in_int8.after_bytes:,} bytes, in float {record.after_bytes:,} bytes"
    assert f"pruned.int8.onnx, {sizes}" in summary
    page = (quantised.recorder.folder / "report.html").read_text()
    assert all(words in page for words in ("test, int8", "pruned.int8.onnx", f"calibrated on {CALIBRATION} training"))


def test_a_finished_run_in_int8_is_whole_and_another_call_computes_nothing(
    quantised: QuantisedRun, model: nn.Module
) -> None:
    folder = quantised.recorder.folder
    states = {Path(file.file).name: file.state for file in check_folder(folder).files}
    assert states["pruned.int8.onnx"] == states["original.int8.onnx"] == "whole"
    before = Counter(quantised.recorder.scored)
    again = aacp.prune(
        model, quantised.recorder.data, BUDGET, folder, plan=INT8_PLAN, score=quantised.recorder.score, device="cpu"
    )
    assert again.exported == quantised.found.exported
    assert quantised.recorder.scored == before
    file = quantised.recorder.training / "pruned.int8.onnx"
    file.write_bytes(file.read_bytes()[:-1])
    assert not check_folder(folder).is_whole
