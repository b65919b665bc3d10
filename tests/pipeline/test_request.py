"""The request of a run, as run.json records it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import aacp
from aacp.pipeline.job import TaskNames, pruning_run
from aacp.pipeline.request import _command, _written, plan_of, read_request, register_request, require_room
from aacp.pipeline.task import PruningTask
from aacp.pipeline.training_request import register_training
from pipeline import tiny_run
from pipeline.own_parts import energy

JOULES = aacp.CostKind("energy", energy, "J", suffixes={"J": 1.0, "mJ": 1e-3})


@pytest.mark.parametrize(
    "program",
    ["/home/me/.venv/bin/aacp", "/somewhere/src/aacp/cli.py", "/somewhere/src/aacp/__main__.py", "aacp"],
)
def test_our_commands_can_be_typed_again(program: str) -> None:
    assert _command([program, "prune", "my net"]) == "aacp prune 'my net'"


def test_a_program_of_the_users_keeps_its_name() -> None:
    assert _command(["work/prune.py", "--fast"]) == "work/prune.py --fast"


def test_a_setting_of_more_than_sixty_characters_is_shortened_to_sixty() -> None:
    assert _written("x" * 60) == "x" * 60
    assert _written("x" * 61) == "x" * 57 + "..."


@pytest.fixture
def task() -> PruningTask:
    part = (torch.zeros(20, 2), torch.arange(20) % 2)
    return PruningTask(torch.nn.Linear(2, 2), aacp.Data.of(part, part), None, torch.device("cpu"))


class Kept(torch.nn.Linear):
    """Keeps the outputs of its last run."""

    outputs: torch.Tensor | None = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self.outputs = super().forward(input) * self.factor
        return self.outputs


def test_what_a_network_keeps_of_its_last_run_does_not_belong_to_the_request(tmp_path: Path) -> None:
    part = (torch.zeros(40, 2), torch.arange(40) % 2)
    model, folder = Kept(2, 2), aacp.RunFolder(tmp_path)
    model.factor = torch.tensor(1.0)
    task = PruningTask(model, aacp.Data.of(part, part), None, torch.device("cpu"))
    budget = aacp.Budget.of({"params": 0.5})
    for images in (3, 5):
        model(torch.ones(images, 2))
        register_request(folder, task, budget, aacp.Plan())
        folder.write_json("structure.json", {})  # the run has begun
    model.factor = torch.tensor(2.0)
    with pytest.raises(aacp.RunMismatch, match="weights"):
        register_request(folder, task, budget, aacp.Plan())


def test_the_same_limit_resumes_a_run_whatever_suffixes_its_cost_has(task: PruningTask, tmp_path: Path) -> None:
    folder = aacp.RunFolder(tmp_path)
    budget = aacp.Budget(aacp.Limit(JOULES, at_most=0.003))
    register_request(folder, task, budget, aacp.Plan())
    folder.write_json("structure.json", {})  # the run has begun
    register_request(folder, task, budget, aacp.Plan())
    with pytest.raises(aacp.RunMismatch, match=r"limit on energy: at most 0.003, .* then, at most 4mJ, .* now"):
        register_request(folder, task, aacp.Budget(aacp.Limit(JOULES, at_most=0.004)), aacp.Plan())


def test_a_limit_on_a_cost_with_the_name_of_a_setting_is_compared(task: PruningTask, tmp_path: Path) -> None:
    folder = aacp.RunFolder(tmp_path)
    kind = aacp.CostKind("seed", energy)
    register_request(folder, task, aacp.Budget(aacp.Limit(kind, pruning_rate=0.3)), aacp.Plan())
    folder.write_json("structure.json", {})
    with pytest.raises(aacp.RunMismatch, match=r"limit on seed: 30 % less, .* then, 40 % less"):
        register_request(folder, task, aacp.Budget(aacp.Limit(kind, pruning_rate=0.4)), aacp.Plan())


def test_another_function_that_computes_a_cost_of_the_same_name_is_noticed(task: PruningTask, tmp_path: Path) -> None:
    folder = aacp.RunFolder(tmp_path)
    space = aacp.SearchSpace.from_widths([8, 8], 1)

    def limited(function: Callable[[aacp.Structure], float]) -> aacp.Budget:
        return aacp.Budget(aacp.Limit(aacp.cost_of(function, space, "area"), pruning_rate=0.5))

    register_request(folder, task, limited(lambda structure: 1.0 * sum(structure)), aacp.Plan())
    folder.write_json("structure.json", {})
    register_request(folder, task, limited(lambda structure: 1.0 * sum(structure)), aacp.Plan())
    with pytest.raises(aacp.RunMismatch, match="limit on area: 50 % less, computed by"):
        register_request(folder, task, limited(lambda structure: 2.0 * sum(structure)), aacp.Plan())


def scored_by(share: float) -> Callable[[torch.nn.Module, aacp.Batches], float]:
    def score(network: torch.nn.Module, batches: aacp.Batches) -> float:
        return share * aacp.accuracy(network, batches)

    return score


def test_another_score_of_the_same_name_is_noticed(task: PruningTask, tmp_path: Path) -> None:
    folder, budget = aacp.RunFolder(tmp_path), aacp.Budget.of({"params": 0.5})
    register_request(folder, replace(task, score=scored_by(0.3)), budget, aacp.Plan())
    folder.write_json("structure.json", {})
    register_request(folder, replace(task, score=scored_by(0.3)), budget, aacp.Plan())
    with pytest.raises(aacp.RunMismatch, match=r"metric source: .*score.* then, .*score.* now"):
        register_request(folder, replace(task, score=scored_by(0.7)), budget, aacp.Plan())


@pytest.mark.parametrize("before", ["", "my.module:score"], ids=["of an older version", "imported"])
def test_a_score_whose_code_cannot_be_compared_is_known_by_its_name(
    before: str, task: PruningTask, tmp_path: Path
) -> None:
    folder, budget = aacp.RunFolder(tmp_path), aacp.Budget.of({"params": 0.5})
    scored = replace(task, score=scored_by(0.3))
    first = register_request(folder, scored, budget, aacp.Plan())
    folder.write_json("run.json", replace(first, metric_source=before).to_json())
    folder.write_json("structure.json", {})
    register_request(folder, scored, budget, aacp.Plan())


def test_another_loss_of_the_same_name_is_noticed_by_a_search_that_trains_and_by_a_training(
    task: PruningTask, tmp_path: Path
) -> None:
    folder, budget = aacp.RunFolder(tmp_path), aacp.Budget.of({"params": 0.5})
    smoothed = [replace(task, loss=torch.nn.CrossEntropyLoss(label_smoothing=share)) for share in (0.1, 0.1, 0.2)]
    plan = aacp.Plan(max_drop=0.1, probe_epochs=1, recipe=aacp.Recipe(epochs=1, batch_size=2, lr=0.1))
    register_request(folder, smoothed[0], budget, plan)
    folder.write_json("structure.json", {})
    register_request(folder, smoothed[1], budget, plan)
    with pytest.raises(aacp.RunMismatch, match=r"loss source: .*CrossEntropyLoss"):
        register_request(folder, smoothed[2], budget, plan)
    (begun := register_training(folder, smoothed[0], plan, again=False).path / "training").mkdir()
    (begun / "training.safetensors").write_bytes(b"")
    register_training(folder, smoothed[1], plan, again=False)
    with pytest.raises(aacp.RunMismatch, match=r"loss source: .*CrossEntropyLoss"):
        register_training(folder, smoothed[2], plan, again=False)


def test_a_run_of_a_version_without_precisions_is_resumed_in_float32_alone(task: PruningTask, tmp_path: Path) -> None:
    folder = aacp.RunFolder(tmp_path)
    budget = aacp.Budget.of({"macs": 0.5})
    register_request(folder, task, budget, aacp.Plan())
    older = folder.read_json("run.json")
    assert older["deployment"].pop("precision") == "float32"
    folder.write_json("run.json", older)
    folder.write_json("structure.json", {})  # the run has begun
    assert plan_of(register_request(folder, task, budget, aacp.Plan())) == plan_of(read_request(folder))
    quantised = aacp.Plan(deployment=aacp.Deployment("latency.own_int8:OWN", precision="int8"))
    with pytest.raises(aacp.RunMismatch, match="deployment precision: float32 then, int8 now"):
        register_request(folder, task, budget, quantised)


def test_a_run_with_workers_that_is_repeated_without_them_names_the_option(task: PruningTask, tmp_path: Path) -> None:
    folder = aacp.RunFolder(tmp_path)
    budget = aacp.Budget.of({"macs": 0.5})
    register_request(folder, task, budget, aacp.Plan(workers=2))
    folder.write_json("structure.json", {})  # the run has begun
    with pytest.raises(aacp.RunMismatch, match=r"proposals \(8 with --workers\): 8 then, none now"):
        register_request(folder, task, budget, aacp.Plan())


def test_a_hold_out_of_another_size_is_another_run(task: PruningTask, tmp_path: Path) -> None:
    folder = aacp.RunFolder(tmp_path)
    named = replace(task, data_source="digits", holdout=0.25)
    budget = aacp.Budget.of({"macs": 0.5})
    register_request(folder, named, budget, aacp.Plan())
    assert read_request(folder).holdout == 0.25
    folder.write_json("structure.json", {})  # the run has begun
    with pytest.raises(aacp.RunMismatch, match=r"holdout: 0.25 then, 0.5 now"):
        register_request(folder, replace(named, holdout=0.5), budget, aacp.Plan())


def split_of(size: int, tests: int = 8, **options: float) -> aacp.Data:
    """Data of zeros as a user makes them in Python."""
    parts = [(torch.zeros(count, 2), torch.arange(count) % 2) for count in (size, tests)]
    return aacp.Data.of(*parts, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (split_of(40, seed=1), "holdout seed: 0 then, 1 now"),
        (split_of(40, holdout=0.5), "holdout size: 4 then, 20 now"),
        (split_of(40, tests=9), "test size: 8 then, 9 now"),
    ],
)
def test_a_run_is_not_resumed_with_another_hold_out_or_other_test_data(
    data: aacp.Data, message: str, task: PruningTask, tmp_path: Path
) -> None:
    folder = aacp.RunFolder(tmp_path)
    budget = aacp.Budget.of({"macs": 0.5})
    register_request(folder, replace(task, data=split_of(40)), budget, aacp.Plan())
    folder.write_json("structure.json", {})  # the run has begun
    with pytest.raises(aacp.RunMismatch, match=message):
        register_request(folder, replace(task, data=data), budget, aacp.Plan())
    given = replace(split_of(40), holdout_seed=None)
    register_request(folder, replace(task, data=given), budget, aacp.Plan())  # the same data, split by the user


def test_earlier_runs_may_have_moved_but_not_be_others(
    task: PruningTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, budget = aacp.RunFolder(tmp_path / "run"), aacp.Budget.of({"macs": 0.5})
    for place in ("a/earlier", "b/earlier", "run"):
        Path(place).mkdir(parents=True)
        Path(place, "run.json").write_text(f'{{"seed": {len(place)}, "of": "{place[0]}"}}')
    Path("run/run.json").unlink()

    def known_after(*paths: str) -> tuple[str, ...]:
        return register_request(folder, task, budget, aacp.Plan(), paths).known_from

    known_after("a/earlier")
    folder.write_json("search.json", {})  # the search has begun
    for path in ("a/earlier", "./a/earlier", str(tmp_path / "a/earlier")):
        assert known_after(path) == (path,)
    for others in (("b/earlier",), (), ("a/earlier", "b/earlier")):
        with pytest.raises(aacp.RunMismatch, match="known from"):
            known_after(*others)
    Path("a/earlier").rename("a/moved")
    Path("b/earlier").rename("c")
    Path("c").rename("earlier")
    assert known_after("earlier") == ("earlier",)
    folder.write_json("structure.json", {})  # the search is finished
    known_after("a/moved")


def test_a_run_is_not_resumed_with_inputs_of_another_shape(task: PruningTask, tmp_path: Path) -> None:
    """Its graph has the costs of the first shape, so that limits would not hold for another one."""
    folder = aacp.RunFolder(tmp_path)
    budget = aacp.Budget.of({"macs": 0.5})
    register_request(folder, replace(task, data=split_of(40)), budget, aacp.Plan())
    folder.write_json("structure.json", {})  # the run has begun
    parts = [(torch.zeros(count, 3, 2), torch.arange(count) % 2) for count in (40, 8)]
    with pytest.raises(aacp.RunMismatch, match="input shapes: 1x2 then, 1x3x2 now"):
        register_request(folder, replace(task, data=aacp.Data.of(*parts)), budget, aacp.Plan())
    older = folder.read_json("run.json")
    del older["input_shapes"]  # of an older version
    folder.write_json("run.json", older)
    register_request(folder, replace(task, data=aacp.Data.of(*parts)), budget, aacp.Plan())


def test_the_hold_out_of_a_run_of_an_older_version_was_chosen_by_its_seed(task: PruningTask, tmp_path: Path) -> None:
    folder = aacp.RunFolder(tmp_path)
    named = replace(task, data_source="digits", holdout_seed=0)
    budget = aacp.Budget.of({"macs": 0.5})
    register_request(folder, named, budget, aacp.Plan(seed=3))
    recorded = folder.read_json("run.json")
    assert recorded.pop("holdout_seed") == 0
    folder.write_json("run.json", recorded)
    assert read_request(folder).holdout_seed == 3
    folder.write_json("structure.json", {})  # the run has begun
    with pytest.raises(aacp.RunMismatch, match="holdout seed: 3 then, 0 now"):
        register_request(folder, named, budget, aacp.Plan(seed=3))
    register_request(folder, replace(named, holdout_seed=3), budget, aacp.Plan(seed=3))
    unsplit = replace(task, data=replace(task.data, holdout_seed=None))
    register_request(folder, unsplit, budget, aacp.Plan(seed=3))  # the same data as an object


def test_a_folder_with_other_files_is_rejected_before_anything_is_loaded_or_written(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    words = r"holds other files \(notes.txt\) and no run\. Give a new or an empty folder\."
    names, budget = TaskNames("no_network", "no_data"), aacp.Budget.of({"macs": 0.5})
    with pytest.raises(aacp.RunMismatch, match=words):
        pruning_run(names, budget, aacp.Plan(), str(tmp_path), ())
    with pytest.raises(aacp.RunMismatch, match=words):
        tiny_run.pruned(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_folder_of_a_training_is_rejected_before_anything_is_loaded(tmp_path: Path) -> None:
    recipe = aacp.Recipe(epochs=1, batch_size=8, lr=0.01)
    aacp.fit(tiny_run.network(), tiny_run.data().train, recipe, folder=tmp_path, device="cpu")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    names, budget = TaskNames("no_network", "no_data"), aacp.Budget.of({"macs": 0.5})
    with pytest.raises(aacp.RunMismatch, match=r"describes a training .*or a new one \(--run\)"):
        pruning_run(names, budget, aacp.Plan(), str(tmp_path), ())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_a_killed_writer_left_may_begin_a_run(tmp_path: Path) -> None:
    for name in (".lock", ".run.json.0123456789abcdef.part"):
        (tmp_path / name).touch()
    require_room(aacp.RunFolder(tmp_path))
    (tmp_path / "more").touch()
    with pytest.raises(aacp.RunMismatch, match=r"\(more\)"):
        require_room(aacp.RunFolder(tmp_path))


def test_hidden_files_of_other_programs_do_not_keep_a_run_from_beginning(task: PruningTask, tmp_path: Path) -> None:
    for name in (".gitignore", ".DS_Store"):
        (tmp_path / name).touch()
    folder = aacp.RunFolder(tmp_path)
    require_room(folder)
    register_request(folder, task, aacp.Budget.of({"macs": 0.5}), aacp.Plan())
    register_request(folder, task, aacp.Budget.of({"macs": 0.6}), aacp.Plan())  # nothing was computed for the first
    assert [limit.pruning_rate for limit in read_request(folder).limits] == [0.6]


def test_a_path_that_is_too_long_is_left_to_the_lock(tmp_path: Path) -> None:
    require_room(aacp.RunFolder(tmp_path / ("n" * 300)))


def test_the_folder_of_a_sweep_is_named_as_such_with_its_runs(task: PruningTask, tmp_path: Path) -> None:
    for name in ("macs-0.3", "macs-0.5"):
        (tmp_path / name).mkdir()
        register_request(aacp.RunFolder(tmp_path / name), task, aacp.Budget.of({"macs": 0.5}), aacp.Plan())
    words = rf"a sweep or a repetition, with the runs macs-0\.3, macs-0\.5\. Give .* such as {tmp_path}/macs-0\.3\."
    with pytest.raises(aacp.RunMismatch, match=words):
        read_request(aacp.RunFolder(tmp_path))
    with pytest.raises(aacp.RunMismatch, match=words):
        tiny_run.pruned(tmp_path)
