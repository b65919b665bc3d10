import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner

import aacp
from aacp.channels.graph import ChannelGraph
from aacp.cli import main
from aacp.pipeline import training


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.slow
def test_trace_prints_groups_and_costs() -> None:
    code, out, _ = run("trace", "timm:test_resnet", "--input", "1x3x32x32", "--frozen", "layer4", "--scope", "inner")
    assert code == 0
    assert "MACs" in out
    assert "frozen by hand (layer4)" in out
    assert "residual stream" in out
    assert "network output" in out


@pytest.mark.slow
def test_trace_shows_ties_and_rejects_what_cannot_be_tied() -> None:
    shape = ("trace", "digits_resnet", "--input", "1x1x8x8")
    code, out, _ = run(*shape, "--tie", "layer1.0.conv1, layer2.0.conv1")
    assert code == 0
    assert "free, tied to layer2.0.conv1" in out
    code, _, error = run(*shape, "--tie", "layer1.0.conv1,linear")
    assert (code, "InvalidOption: Group 'linear' cannot be tied" in error) == (1, True)
    code, _, error = run(*shape, "--scope", "paper")
    assert (code, "only for resnet56, resnet110, vgg16" in error) == (1, True)


@pytest.mark.slow
def test_trace_prints_json_that_reads_back() -> None:
    code, out, _ = run("trace", "timm:test_resnet", "--input", "1x3x32x32", "--json")
    data = json.loads(out)
    assert code == 0
    assert set(data["costs"]) == {"macs", "params", "channel_count", "weight_bytes", "activation_bytes"}
    assert ChannelGraph.from_json(data["graph"]).full is not None


@pytest.mark.parametrize(
    ("name", "likely"), [("grey", "1x1x32x32"), ("audio", "1x1x16000")], ids=["one channel", "one dimension"]
)
def test_trace_names_the_option_for_the_input_that_it_had_to_guess(name: str, likely: str, own_networks) -> None:
    code, out, err = run("trace", f"guessing:{name}")
    assert (code, out) == (1, "")
    assert "does not run on 1x3x224x224, which was tried" in err
    assert f"Give the shape, such as --input {likely}." in err


def test_trace_says_which_input_it_guessed(own_networks) -> None:
    code, out, err = run("trace", "guessing:colour")
    assert (code, "MACs" in out) == (0, True)
    assert "1x3x224x224 was used; --input gives another." in err
    assert run("trace", "guessing:colour", "--input", "1x3x8x8")[2] == ""


def test_trace_takes_one_input_for_each_argument_of_the_network(own_networks) -> None:
    code, out, err = run("trace", "guessing:Pair", "--input", "1x3x8x8", "--input", "1x5")
    assert (code, err) == (0, "")
    assert "image" in out
    assert run("trace", "guessing:Pair", "--input", "1x3x8x8")[0] == 1


@pytest.fixture
def own_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of networks that do not name the size of their inputs."""
    (tmp_path / "guessing.py").write_text(
        "from torch import nn\n"
        "def colour():\n    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=8), nn.ReLU(), nn.Conv2d(4, 2, 1))\n"
        "def grey():\n    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1))\n"
        "def audio():\n    return nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Conv1d(4, 2, 1))\n"
        "class Pair(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.image, self.table = nn.Conv2d(3, 8, 3), nn.Linear(5, 8)\n"
        "        self.last = nn.Linear(8, 2)\n"
        "    def forward(self, image, table):\n"
        "        return self.last(self.image(image).mean((2, 3)) + self.table(table))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "guessing", raising=False)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("trace", "timm:nope"), 1, "UnknownModel: timm has no model 'nope'"),
        (("trace", "timm:test_resnet", "--input", "1x4x32x32"), 1, "InvalidExample: "),
        pytest.param(("trace", "timm:test_resnet", "--frozen", "zzz"), 1, "InvalidOption: ", marks=pytest.mark.slow),
        (("trace", "timm:test_resnet", "--input", "1xy"), 2, "not a shape"),
        (("trace", "timm:test_resnet", "--input", "0x3x8x8"), 2, "below 1"),
        (("trace",), 2, "Missing argument"),
        (("export", "nowhere"), 1, "BrokenArtefact: There is no file or folder nowhere. Name a run folder"),
        (("export", "nowhere", "--batch", "0"), 2, "not in the range"),
    ],
)
def test_mistakes_end_in_one_line_and_a_code(arguments: tuple[str, ...], code: int, message: str) -> None:
    found, out, err = run(*arguments)
    assert found == code
    assert message in err
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.slow
def test_export_writes_a_checked_file_and_says_so(tmp_path: Path) -> None:
    model, x = aacp.build_model("digits_resnet"), torch.randn(1, 1, 8, 8)
    graph = aacp.trace(model, x)
    aacp.save(model, graph, tmp_path / "whole", example=x)
    code, out, err = run("export", str(tmp_path / "whole"), "--model", "digits_resnet", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["path"] == str(tmp_path / "whole.onnx")
    assert (tmp_path / "whole.onnx").stat().st_size == json.loads(out)["file_bytes"]
    code, out, err = run("export", str(tmp_path / "whole"), "--model", "digits_resnet", "--dynamic-size")
    assert (code, err) == (0, "")
    assert "any batch size, other heights and widths in steps of 1, at most" in out
    code, out, err = run("export", str(tmp_path / "whole"))
    assert (code, out) == (1, "")
    assert "BrokenArtefact: " in err
    assert "does not say how to build its network" in err


def test_the_package_can_be_run_as_a_program() -> None:
    given = [sys.executable, "-m", "aacp", "prnue"]
    result = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.startswith("Usage: aacp [OPTIONS] COMMAND")) == (2, True)


def test_help_does_not_pay_for_torch() -> None:
    program = (
        "import sys; from aacp.cli import main; main(['--help'], standalone_mode=False); print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.rstrip().endswith("False")


@pytest.mark.slow
def test_prune_meets_its_limits_and_the_same_command_again_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported: list[object] = []
    monkeypatch.setattr(
        training, "export_both", lambda *arguments: exported.append(arguments)
    )  # tests/pipeline sees to that
    command = ["prune", "digits_resnet", "--data", "digits", "--prune-macs", "0.5", "--evaluations", "12", "--json"]
    command += ["--epochs", "1", "--calibration", "64", "--run", str(tmp_path), "--device", "cpu"]
    (code, out, err), (_, again, _) = run(*command), run(*command)
    assert code == 0, err
    found = json.loads(out)
    assert found["after"]["macs"] <= 0.5 * found["before"]["macs"]
    (limit,) = found["limits"]
    assert (limit["original"], limit["reached"]) == (found["before"]["macs"], found["after"]["macs"])
    assert (limit["requested"], limit["outcome"]) == (0.5 * found["before"]["macs"], "met")
    assert found["metric"] == "accuracy"
    assert all(Path(found["files"][name]).is_file() for name in ("network", "report"))
    assert json.loads(again) == found
    assert len(exported) == 2  # the export is on by default
    code, _, err = run(*command, "--seed", "1")
    assert code == 1
    assert "RunMismatch" in err


def test_prune_without_a_limit_says_what_to_give(tmp_path: Path) -> None:
    code, _, err = run("prune", "digits_resnet", "--data", "digits", "--run", str(tmp_path))
    assert code == 2
    assert "Give one or more, such as --prune-macs 0.5" in err


@pytest.mark.parametrize("group", [main, main.commands["bench"]], ids=["aacp", "bench"])
def test_no_command_is_described_by_a_sentence_that_an_abbreviation_cuts_short(group: click.Group) -> None:
    for command in group.commands.values():
        shortened = command.get_short_help_str(limit=60)
        assert shortened.endswith("...") or len(shortened.split()) >= 6, shortened


def test_every_option_says_what_it_is_for_and_shows_its_default() -> None:
    for command in main.commands.values():
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, (command.name, option.name)
                has_default = isinstance(option.default, (str, int, float)) and not option.is_flag
                assert option.show_default or not has_default, (command.name, option.name)


# What these options set is not used, or is that of the run, unless they are given.
WITHOUT_DEFAULT = set(
    "cache data finalists max_channels max_drop max_latency max_macs max_memory max_params max_size mimic model "
    "prune_channels prune_latency prune_macs prune_memory prune_params prune_size teacher_weights weights".split()
)


@pytest.mark.parametrize("name", ["prune", "search", "sweep", "finetune", "scratch"])
def test_what_happens_without_an_option_is_stated(name: str) -> None:
    options = [each for each in main.commands[name].params if isinstance(each, click.Option)]
    values = [each for each in options if not (each.is_flag or each.multiple or each.required)]
    assert {each.name for each in values if not each.show_default} <= WITHOUT_DEFAULT


def test_ctrl_c_ends_with_130_wherever_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aacp.zoo.models.build_model", interrupted)
    result = CliRunner().invoke(main, ["trace", "resnet20"])
    assert (result.exit_code, result.stderr) == (130, "Interrupted.\n")
