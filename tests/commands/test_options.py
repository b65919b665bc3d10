"""Options that would be ignored are rejected before anything is loaded or a folder is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from aacp.cli import main
from aacp.commands.parameters import part
from aacp.latency.deployment import Deployment
from aacp.pipeline.job import TaskNames
from latency_bench import save_table_of_here

ASKED = ("digits_resnet", "--data", "digits", "--prune-macs", "0.5")
TABLE = ("--table", "TABLE")  # the path of a table of the default deployment takes the place of its name
RECIPE = [("--recipe", "base"), ("--epochs", "1"), ("--lr", "0.1"), ("--batch-size", "32"), ("--train-on-holdout",)]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_table_of_here(tmp_path_factory.mktemp("tables") / "table.json")


@pytest.fixture(autouse=True)
def _nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TaskNames, "load", loaded)


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("command", "given", "because"),
    [
        *(("sweep", option, "without --train a sweep only searches. Give --train, or") for option in RECIPE),
        *(("prune", (*option, "--no-training"), "nothing is trained. Train, or leave out") for option in RECIPE),
        ("prune", ("--scratch", "--no-training"), "nothing is trained. Train, or leave out --scratch."),
        ("prune", ("--loss", "a:b", "--no-training"), "nothing is trained. Train, or leave out --loss."),
        ("prune", ("--shrink", "params"), "without --max-drop the limits decide. Give --max-drop, or"),
        ("prune", ("--shrink", "macs"), "without --max-drop the limits decide"),  # as it would be anyway, but given
        ("prune", ("--probe-epochs", "0"), "without --max-drop the limits decide"),
    ],
)
def test_an_option_that_would_be_ignored_is_wrong_usage(command, given, because: str, tmp_path: Path) -> None:
    code, err = run(command, *ASKED, *given, "--run", tmp_path / "run")
    assert (code, "Traceback" in err) == (2, False)
    assert f"{given[0]} would be ignored: " in err
    assert because in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("command", "device"), [("prune", "runs_on"), ("measure", "device")])
def test_a_deployment_has_the_same_defaults_on_the_command_line(command: str, device: str) -> None:
    given = {option.name: option.default for option in main.commands[command].params}
    fields = {name: given[device if name == "device" else name] for name in vars(Deployment())}
    assert Deployment(**fields) == Deployment()


def test_several_are_named_in_one_go(tmp_path: Path) -> None:
    _, err = run("sweep", *ASKED, "--lr", "0.1", "--epochs", "1", "--run", tmp_path / "run")
    assert "--epochs and --lr would be ignored" in err


@pytest.mark.parametrize(
    ("command", "given", "words"),
    [
        ("prune", TABLE, "table TABLE would be ignored, since nothing limits"),
        ("search", TABLE, "table TABLE would be ignored, since nothing limits"),
        ("sweep", TABLE, "table TABLE would be ignored, since nothing limits"),
        ("prune", ("--max-drop", "1"), "A limit on macs would be ignored, since max_drop"),
        ("prune", ("--scratch", "--recipe", "finetune"), "a training from scratch has none"),
        (
            "prune",
            ("--max-drop", "1", "--no-training", "--probe-epochs", "1"),
            "probe_epochs is 1, but there is no recipe",
        ),
    ],
)
def test_what_the_library_rejects_is_an_error_in_one_line(command, given, words: str, tmp_path: Path) -> None:
    code, err = run(command, *ASKED, *given, "--run", tmp_path / "run")
    assert (code, err.count("\n"), err.startswith("InvalidOption: ")) == (1, 1, True)
    assert words in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("command", "given"),
    [
        ("prune", ()),
        ("prune", ("--no-training",)),
        ("prune", ("--no-training", "--no-export", "--threads", "1", "--runtime", "torch")),  # for an export later on
        ("prune", ("--max-drop", "1", "--shrink", "params", "--probe-epochs", "2", "--scratch")),
        ("prune", ("--max-drop", "1", "--shrink", "latency", *TABLE)),
        ("prune", ("--max-latency", "3ms", *TABLE)),
        ("search", ("--loss", "a:b", "--threads", "1")),  # for aacp finetune, which continues from the folder
        ("sweep", ("--loss", "a:b", "--no-export")),
        ("sweep", ("--train", "--epochs", "1", "--train-on-holdout")),
    ],
)
def test_what_has_a_use_now_or_later_is_not_rejected(
    command: str, given: tuple[str, ...], table: Path, tmp_path: Path
) -> None:
    options = [table if option == "TABLE" else option for option in given]
    code, err = run(command, *ASKED, *options, "--run", tmp_path / "run")
    assert (code, "Interrupted" in err) == (130, True)  # it got as far as loading the data


@pytest.mark.parametrize(
    ("given", "difference"),
    [
        (("--threads", "1"), "threads 2, but threads 1 is requested"),
        (("--batch", "4"), "batch 1, but batch 4 is requested"),
        (("--runtime", "torch"), "runtime 'onnxruntime', but runtime 'torch' is requested"),
        (("--precision", "int8"), "precision 'float32', but precision 'int8' is requested"),
    ],
)
@pytest.mark.parametrize("command", ["prune", "search", "sweep"])
def test_a_table_of_another_deployment_is_rejected_before_anything_is_loaded(
    command: str, given: tuple[str, ...], difference: str, table: Path, tmp_path: Path
) -> None:
    limit = ("--prune-latency", "0.3", "--table", table)
    code, err = run(command, *ASKED, *limit, *given, "--run", tmp_path / "run")
    assert (code, f"DeviceMismatch: The latency table was measured with {difference}. Request" in err) == (1, True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("given", ["50", "50%"])
def test_a_rate_in_percent_is_answered_with_how_to_write_it(given: str) -> None:
    code, said = run("prune", *ASKED, "--prune-macs", given)
    advice = "Write 0.5 to remove 50 %, or give the most to keep with --max-macs."
    assert (code, advice in " ".join(said.split())) == (2, True)


@pytest.mark.parametrize("command", ["prune", "search", "sweep"])
def test_a_scope_that_does_not_exist_is_wrong_usage(command: str) -> None:
    code, said = run(command, *ASKED, "--scope", "outer")
    assert (code, "'outer' is not known. Choose from all, inner, paper." in said) == (2, True)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (("--precision", "int-8"), "Give int8, or choose from float32."),
        (("--recipe", "finetun"), "Give finetune, or choose from base, "),
        (("--recipe", "Finetune-Mixed"), "or package.module:NAME of your own."),
        (("--init", "networks"), "Give network, or choose from he."),
        (("--scope", "iner"), "Give inner, or choose from all, paper."),
        (("--shrink", "mac"), "Give macs, or choose from params, "),
    ],
)
def test_a_misspelt_choice_is_answered_with_the_nearest(given: tuple[str, ...], meant: str) -> None:
    code, said = run("prune", *ASKED, *given)
    assert (code, meant in " ".join(said.split())) == (2, True)


@pytest.mark.parametrize(
    ("given", "sentences"),
    [
        (
            ("--teacher-weights", "t.pt"),
            "--teacher-weights is the file of a teacher's weights, but no --teacher says which network they belong to. "
            "Add --teacher MODEL, or leave out --teacher-weights.",
        ),
        (
            ("--teacher", "resnet20"),
            "--teacher has no weights, and an untrained network has nothing to teach. Add --teacher-weights FILE, or "
            "leave out --teacher.",
        ),
    ],
)
@pytest.mark.parametrize("command", ["prune", "sweep --train", "finetune", "train"])
def test_half_of_a_teacher_is_rejected_with_what_to_add(
    command: str, given: tuple[str, ...], sentences: str, tmp_path: Path
) -> None:
    name, *options = command.split()
    others = {"finetune": (tmp_path,), "train": ("vgg16", "--data", "digits")}.get(
        name, (*ASKED, "--prune-macs", "0.5")
    )
    code, said = run(name, *others, *options, *given)
    assert (code, sentences in " ".join(said.split())) == (2, True)


@pytest.mark.parametrize("given", ["-1", "many", "1.5", "nan"])
def test_a_hold_out_that_is_neither_a_share_nor_a_number_is_rejected(given: str) -> None:
    code, said = run("prune", *ASKED, "--holdout", given)
    assert code == 2
    assert "Write a share such as 0.1, or a number such as 5000." in said


@pytest.mark.parametrize(("given", "held"), [("0.1", 0.1), ("5000", 5000), ("0", 0), ("1", 1), ("1e3", 1000)])
def test_a_hold_out_is_a_share_below_one_or_a_whole_number(given: str, held: float) -> None:
    found = part(given)
    assert (found, type(found)) == (held, type(held))
