"""Pruned: what a run ends with, to go on with and to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from aacp.artefact.header import ARTEFACT
from aacp.channels import ChannelGraph
from aacp.pipeline.delivery import ONNX
from aacp.report.cautions import cautions
from aacp.report.page import FILE
from aacp.report.run import read_run
from aacp.runs.files import ChosenStructure, Evaluation, OnnxRecord
from aacp.runs.folder import RunFolder


@dataclass(frozen=True)
class Pruned:
    """The smaller network, what it was cut to, and how it compares."""

    network: nn.Module
    graph: ChannelGraph
    choice: ChosenStructure
    evaluation: Evaluation
    exported: OnnxRecord | None  # sizes and timings of the ONNX files; None if not asked for or not installed
    folder: RunFolder
    unexported: str = ""  # why there are no ONNX files, if they were asked for and could not be made

    @property
    def file(self) -> Path:
        """The network, for `aacp.load`."""
        return self.folder.path / ARTEFACT

    @property
    def report(self) -> Path:
        return self.folder.path / FILE

    def __str__(self) -> str:
        before, after = self.evaluation.before, self.evaluation.after
        costs = ("macs", "params", "activation_bytes")
        lines = [f"{name}: {_change(getattr(before, name), getattr(after, name))}" for name in costs]
        scores = [(part, getattr(before, part), getattr(after, part)) for part in ("test", "holdout")]
        lines += [f"{part} score: {old:.4f} -> {new:.4f}" for part, old, new in scores if new is not None]
        lines += [str(timing) for timing in (self.exported.timings if self.exported else ())]
        if self.folder.path.is_dir():  # it may have been cleared away since
            lines += [remark.text for remark in cautions(read_run(self.folder.path))]
        return "\n".join([*lines, f"kept: {list(self.choice.counts)}", *self._places()])

    def _places(self) -> list[str]:
        """Where everything is."""
        onnx = [f"ONNX: {self.folder.path / ONNX['pruned']}"] if self.exported else []
        onnx += [f"no ONNX files: {self.unexported}"] if self.unexported else []
        return [f'network: aacp.load("{self.file}", into=MODEL)', *onnx, f"report: {self.report}"]


def _change(before: float, after: float) -> str:
    return f"{before:,} -> {after:,} ({after / before - 1:+.1%})"
