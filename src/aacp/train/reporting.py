"""Report the epochs of a run: in its log file, as progress, and to TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aacp.disk.folders import create_folder
from aacp.errors import InvalidOption
from aacp.runs.files import LOG
from aacp.runs.folder import RunFolder
from aacp.runs.scores import Epoch
from aacp.train.recipe import Recipe
from aacp.user.events import Event, emit
from aacp.user.progress import progress_bar, report_progress
from aacp.user.values import counted, score_text

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Listener = Callable[[Epoch], None]


@dataclass(frozen=True, eq=False)
class Report:
    """Passes every epoch to the log file and to listeners, in the first process only."""

    folder: RunFolder | None
    is_first: bool
    listeners: list[Listener]

    def __call__(self, epoch: Epoch) -> None:
        if not self.is_first:
            return
        if self.folder is not None:
            self.folder.append(LOG, epoch.to_json())
        for listener in self.listeners:
            listener(epoch)
        emit(
            Event("epoch", "train", epoch.epoch, _numbers(epoch), "" if self.folder is None else str(self.folder.path))
        )

    def finished_epochs(self, done: int) -> list[Epoch]:
        """The first `done` epochs of the log; later lines, whose epochs left no state, are removed from it."""
        if self.folder is None:
            return []
        if done and self.is_first:
            report_progress(f"{counted(done, 'epoch')} done before")
        records = self.folder.read_log(LOG)
        epochs = [Epoch.from_json(record) for record in records]
        kept = [epoch for epoch in epochs if epoch.epoch <= done]
        if self.is_first and len(kept) < len(records):
            self.folder.write_log(LOG, [epoch.to_json() for epoch in kept])
        return kept


@contextmanager
def report(
    recipe: Recipe, own_batches: bool, folder: RunFolder | None, fabric: Fabric, tensorboard: bool
) -> Iterator[Report]:
    """The report of a run.

    Args:
        recipe: the settings, shown first.
        own_batches: whether the user's loader makes the batches.
        folder: where the log is written, if anywhere.
        fabric: determines which process is the first.
        tensorboard: whether to write TensorBoard files to the folder.
    """
    with ExitStack() as stack:
        listeners: list[Listener] = []
        if fabric.is_global_zero:
            report_progress(f"training: {recipe}{'; batches as the loader gives them' if own_batches else ''}")
            listeners.append(stack.enter_context(_shown(recipe)))
        if tensorboard and fabric.is_global_zero:
            listeners.append(stack.enter_context(_tensorboard(folder)))
        yield Report(folder, fabric.is_global_zero, listeners)


def summary_line(epoch: Epoch) -> str:
    """The results of an epoch in one line."""
    accuracy = "" if epoch.accuracy is None else f", training accuracy {epoch.accuracy:.4f}"
    holdout = "" if epoch.holdout is None else f", hold-out {score_text(epoch.holdout)}"
    limit = f"; {epoch.limit}" if epoch.limit else ""
    return f"loss {score_text(epoch.loss)}{accuracy}{holdout}, {epoch.images_per_second:,.0f} examples/s{limit}"


@contextmanager
def _shown(recipe: Recipe) -> Iterator[Listener]:
    """A progress bar with the remaining time; without a terminal, one line for each epoch."""
    with progress_bar(recipe.epochs) as update:
        if update is None:
            yield lambda epoch: report_progress(f"epoch {epoch.epoch}/{recipe.epochs}: {summary_line(epoch)}")
        else:
            yield lambda epoch: update(epoch.epoch, summary_line(epoch))


@contextmanager
def _tensorboard(folder: RunFolder | None) -> Iterator[Listener]:
    if folder is None:
        raise InvalidOption("TensorBoard reads files, but the run has no folder for them. Give a folder.")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InvalidOption("TensorBoard is not installed. Install it with: pip install tensorboard.") from error
    create_folder(folder.path / "tensorboard")  # which rejects a link in its place
    writer: Any = SummaryWriter(str(folder.path / "tensorboard"))
    try:
        yield lambda epoch: _write(writer, epoch)
    finally:
        writer.close()


def _write(writer: Any, epoch: Epoch) -> None:
    for name, value in _numbers(epoch).items():
        writer.add_scalar(name, value, epoch.epoch)


def _numbers(epoch: Epoch) -> dict[str, float]:
    """The numbers of an epoch that can be drawn over its epochs."""
    return {
        name: value for name, value in epoch.to_json().items() if name not in ("epoch", "limit") and value is not None
    }
