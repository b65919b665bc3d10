"""Pruned: the result of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.cost.kinds import cost_unit
from aacp.cost.quantities import cost_change
from aacp.data.likeness import LIKENESS
from aacp.disk.records import plain
from aacp.pipeline.reporting import report_line
from aacp.report.cautions import cautions
from aacp.report.page import FILE
from aacp.report.run import Run, read_outline
from aacp.runs.chosen import TO_BE_CHECKED, ChosenStructure, DeviceCheck, LimitResult
from aacp.runs.exports import PRUNED_ONNX, ExportRecord
from aacp.runs.files import ARTEFACT, CHECK_FOLDER, DEVICE_CHECK, RECOVERY
from aacp.runs.folder import RunFolder
from aacp.runs.scores import Evaluation, Recovery
from aacp.user.notebook import html_table
from aacp.user.values import score_text


@dataclass(frozen=True)
class Pruned:
    """The pruned network, its structure, and how it compares with the original.

    Args:
        network: the pruned network, in evaluation mode, on the device of the run.
        graph: the channel graph that it was cut along.
        choice: the structure that the search found, with its limits.
        evaluation: scores and costs before and after.
        exported: sizes and timings of the ONNX files; None if they were not requested or could not be made.
        folder: the run folder.
        training: the folder of the training inside the run folder, which holds the files of the network.
        unexported: why requested ONNX files could not be made.
        unreported: why there is no report of this state of the run.
    """

    network: nn.Module
    graph: ChannelGraph
    choice: ChosenStructure
    evaluation: Evaluation
    exported: ExportRecord | None
    folder: RunFolder
    training: RunFolder
    unexported: str = ""
    unreported: str = ""

    @property
    def file(self) -> Path:
        """The network, for `aacp.load`."""
        return self.training.path / ARTEFACT

    @property
    def report(self) -> Path:
        """The page about the run."""
        return self.folder.path / FILE

    def __str__(self) -> str:
        before, after = self.evaluation.before, self.evaluation.after
        run = self._outline()
        score = LIKENESS if run is not None and run.metric == LIKENESS else "score"
        lines = self._costs()
        scores = [("test", before.test, after.test), ("holdout", before.holdout, after.holdout)]
        lines += [
            f"{part} {score}: {score_text(old)} -> {score_text(new)}"
            for part, old, new in scores
            if old is not None and new is not None
        ]
        lines += self._scores_in_int8(score)
        lines += [f"finalists: {run.finalists}"] if run is not None and run.finalists is not None else []
        lines += self._recovery(score)
        lines += [str(timing) for timing in (self.exported.timings if self.exported else ())]
        lines += [str(self.exported.resources)] if self.exported and self.exported.resources else []
        lines += [remark.text for remark in cautions(run)] if run is not None else []
        return "\n".join([*lines, f"kept: {self.graph.channels_of(self.choice.counts)}", *self._places()])

    def to_json(self) -> dict[str, Any]:
        """Return what the summary says as plain data, which `aacp prune --json` prints."""
        run = self._outline()
        exported = self.exported
        in_int8 = exported.in_int8 if exported else None
        found = {
            "metric": run.metric if run is not None else "",
            "estimate": self.choice.score,
            "limits": [limit.described() for limit in self.limits],
            "latency": [timing.described() for timing in (exported.timings if exported else ())],
            "int8": in_int8.quantized if in_int8 else None,
            "resources": exported.resources if exported else None,
            "recovery": self._recovered,
            "remarks": [remark.text for remark in cautions(run)] if run is not None else [],
            "kept": self.graph.channels_of(self.choice.counts),
            "folder": str(self.folder.path),
            "files": {
                "network": str(self.file),
                "exported": self._exported_paths(),
                "check": str(self._check_folder) if self._check_folder.is_dir() else None,
                "report": None if self.unreported else str(self.report),
            },
            "no_export": self.unexported,
            "no_report": self.unreported,
        }
        return {**self.evaluation.to_json(), **{name: plain(value) for name, value in found.items()}}

    def _outline(self) -> Run | None:
        """This result and what its folder says about the run; None if the folder has been removed since."""
        if not self.folder.path.is_dir():
            return None
        run = read_outline(self.folder.path, self.training.path)
        return replace(run, choice=self.choice, evaluation=self.evaluation, exported=self.exported)

    def __repr__(self) -> str:
        macs = self._change("macs")
        return f"<Pruned {self.graph.model}, {macs}, in {self.folder.path}>"

    def _repr_html_(self) -> str:
        """The lines of the summary as a table, for notebooks."""
        rows = [line.partition(": ")[::2] for line in str(self).splitlines() if ": " in line]
        return html_table(f"{self.graph.model}, pruned", ("", "before and after"), rows)

    def _costs(self) -> list[str]:
        """Each cost before and after, with its limit if it has one; latency only if it is limited."""
        before = self.evaluation.before.costs
        after = self.evaluation.after.costs
        lines = {name: self._change(name) for name in before if name in after}
        lines |= {limit.cost: str(limit) for limit in self.limits}
        found = self.device_check
        lines |= {found.limit.cost: str(found)} if found is not None else {}
        return list(lines.values())

    def _change(self, cost: str) -> str:
        """One cost before and after."""
        before = self.evaluation.before.costs[cost]
        return cost_change(cost, before, self.evaluation.after.costs[cost], cost_unit(cost))

    @property
    def limits(self) -> tuple[LimitResult, ...]:
        """The limits and what was reached; a latency that a device has checked is the one that was measured there."""
        checked = {} if self.device_check is None else {self.device_check.limit.cost: self.device_check.limit}
        return tuple(checked.get(limit.cost, limit) for limit in self.choice.limits)

    @property
    def device_check(self) -> DeviceCheck | None:
        """What the device found that the latency table is of, if its results were read."""
        found = self.training.read(DEVICE_CHECK, DeviceCheck.from_json)
        return found if found is not None and found.counts == self.choice.counts else None

    def _scores_in_int8(self, score: str) -> list[str]:
        """The score of the quantised networks on test data, or why there is none."""
        files = self.exported.in_int8 if self.exported else None
        if files is None or files.quantized is None:
            return []
        found = files.quantized
        if found.before_test is None or found.after_test is None:
            return [f"test {score} in int8: {found.note}"]
        return [f"test {score} in int8: {score_text(found.before_test)} -> {score_text(found.after_test)}"]

    def _recovery(self, score: str) -> list[str]:
        """What each step gave a network that was not trained, and what could not be repaired."""
        found = self._recovered
        if found is None:
            return []
        return [f"holdout {score}, step by step: {found}", *(f"note: {note}" for note in found.notes)]

    @property
    def _recovered(self) -> Recovery | None:
        return self.training.read(RECOVERY, Recovery.from_json)

    def _places(self) -> list[str]:
        """The files of the result."""
        files = [f'network: aacp.load("{self.file}", into=MODEL)', *self._exported_files()]
        files += [f"export failed: {self.unexported}"] if self.unexported else []
        files += self._check_to_run()
        return [*files, report_line(self.folder.path, self.unreported)]

    def _exported_files(self) -> list[str]:
        if self.exported is None:
            return []
        found = [f"ONNX: {self.training.path / PRUNED_ONNX}"]
        for other in self.exported.others:
            path = self.training.path / other.file
            if other.quantized is None:
                found.append(f"{other.format}: {path}")
            else:
                sizes = f"{other.after_bytes:,} bytes, in float {self.exported.float_bytes:,} bytes"
                found.append(f"in int8: {path}, {sizes}")
        return found

    def _exported_paths(self) -> list[dict[str, str]]:
        """The files of the pruned network, each with its format and precision."""
        if self.exported is None:
            return []
        files = [("ONNX", "float32", PRUNED_ONNX)]
        files += [(other.format, other.precision, other.file) for other in self.exported.others]
        names = ("format", "precision", "file")
        return [dict(zip(names, (*about, str(self.training.path / name)), strict=True)) for *about, name in files]

    @property
    def _check_folder(self) -> Path:
        return self.training.path / CHECK_FOLDER

    def _check_to_run(self) -> list[str]:
        """How to check the latency on the device, if that was not done yet."""
        if self.device_check is not None or all(limit.outcome != TO_BE_CHECKED for limit in self.choice.limits):
            return []
        folder = self._check_folder
        if not folder.is_dir():
            return ["check on the device: not possible without the files of an export"]
        reading = f"aacp check {self.folder.path} --from results.json"
        return [f"check on the device: copy {folder} there, run its runner.py, then {reading}"]
