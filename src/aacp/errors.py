"""The errors of aacp as a tree of classes.

AACPError
├── InvalidOption      an argument is outside its range
│   ├── InfeasibleBudget   no structure of the space meets every limit
│   └── InvalidLoss        a loss function raises an exception or returns something that cannot be minimised
├── UnknownModel       the name of a model does not lead to a network
├── UnknownData        the name of a data set does not lead to data
├── UntrustedCode      a run folder or file names code, and the user has not said that it may be executed
├── InvalidWeights     a file of weights cannot be read or does not fit the network
├── UntraceableModel   the network cannot be turned into a channel graph
│   ├── InvalidExample     the network does not run on the example input
│   └── NothingToPrune     every channel is frozen, or there is no convolution
├── GraphMismatch      a graph and a network do not belong together
├── DeviceMismatch     a latency table was measured on another machine, runtime or setting
├── InconclusiveMeasurement  measured latencies are too noisy or too inaccurate to decide anything
├── BrokenArtefact     the file of a pruned network cannot be read or does not fit the network
├── ExportFailed       a network cannot be exported, or its export computes something else
├── MissingPackage     an optional package is not installed
├── InvalidData        data is empty, or does not fit the network or the task
│   └── CorruptImage       a file cannot be read as an image
├── InvalidScore       a score function raises an exception or returns something that is not a number
├── RunMismatch        a run folder or a saved search belongs to a different request
│   └── DamagedRun         a file of a run folder is damaged; also a DamagedFile
├── RunLocked          another process is writing to the run folder
├── UnreadableFile     a file cannot be opened or read, or is not a regular file
│   ├── MissingFile        there is no such file
│   └── DamagedFile        the content of a file is not what its format requires
├── DiskError          a file cannot be written, replaced or removed
├── NothingToReport    a run folder does not exist or contains nothing to show
├── Diverged           a loss became infinite or NaN
├── UserCodeFailed     a function or module that the user named raised an exception or ended the program
├── WorkerFailed       one of several processes failed or ended before its work was done
└── InvalidStructure   channel counts or indices that the graph or the space does not allow

A message has two sentences: what is wrong, with the values, and what to do.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

QUOTED_ERROR = re.compile(r"[\w.]*(Error|Exception): \S")  # the last line of a traceback: "ValueError: ..."
MARK = "<--- HERE"  # ends the line below the line of code that failed in TorchScript


class AACPError(Exception):
    """The base class of all errors that aacp raises."""


class InvalidOption(AACPError, ValueError):
    """An argument is outside its range."""


class InfeasibleBudget(InvalidOption):
    """No structure of the space meets every limit."""


class InvalidLoss(InvalidOption):
    """A loss function raises an exception or returns something that cannot be minimised."""


class UnknownModel(AACPError, LookupError):
    """The name of a model does not lead to a network."""


class UnknownData(AACPError, LookupError):
    """The name of a data set does not lead to data."""


class UntrustedCode(AACPError):
    """A run folder or file names code, and the user has not said that it may be executed."""


class InvalidWeights(AACPError):
    """A file of weights cannot be read or does not fit the network."""


class UntraceableModel(AACPError):
    """The network cannot be turned into a channel graph."""


class InvalidExample(UntraceableModel):
    """The network does not run on the example input."""


class NothingToPrune(UntraceableModel):
    """Every channel is frozen, or there is no convolution."""


class GraphMismatch(AACPError):
    """A graph and a network do not belong together."""


class DeviceMismatch(AACPError):
    """A latency table was measured on another machine, runtime or setting."""


class InconclusiveMeasurement(AACPError):
    """Measured latencies are too noisy or too inaccurate to decide anything."""


class BrokenArtefact(AACPError):
    """The file of a pruned network cannot be read or does not fit the network."""


class ExportFailed(AACPError):
    """A network cannot be exported, or its export computes something else."""


class MissingPackage(AACPError, ImportError):
    """An optional package is not installed."""


class InvalidData(AACPError, ValueError):
    """Data is empty, or does not fit the network or the task."""


class CorruptImage(InvalidData):
    """A file cannot be read as an image."""

    def __init__(self, message: str) -> None:
        # A worker of a DataLoader passes an error on as the text of its traceback, whose last line is the message.
        super().__init__(message.strip().split("\n")[-1].removeprefix(f"{__name__}.CorruptImage: "))


class InvalidScore(AACPError):
    """A score function raises an exception or returns something that is not a number."""


class RunMismatch(AACPError):
    """A run folder or a saved search belongs to a different request."""


class RunLocked(AACPError):
    """Another process is writing to the run folder."""


class UnreadableFile(AACPError, OSError):
    """A file cannot be opened or read, or is not a regular file."""


class MissingFile(UnreadableFile):
    """There is no such file."""


class DamagedFile(UnreadableFile):
    """The content of a file is not what its format requires."""


class DamagedRun(RunMismatch, DamagedFile):
    """A file of a run folder is damaged."""


class DiskError(AACPError, OSError):
    """A file cannot be written, replaced or removed."""


class NothingToReport(AACPError):
    """A run folder does not exist or contains nothing to show."""


class Diverged(AACPError, ArithmeticError):
    """A loss became infinite or NaN."""


class UserCodeFailed(AACPError):
    """A function or module that the user named raised an exception or ended the program."""


class WorkerFailed(AACPError):
    """One of several processes failed or ended before its work was done."""


class InvalidStructure(AACPError, ValueError):
    """Channel counts or indices that the graph or the space does not allow."""


def first_line(error: BaseException) -> str:
    """The class of an exception and the line of its message that says what is wrong, for quotation in another message.

    That is the first line, unless it only introduces others: the error at the end of a traceback that the message
    quotes (TorchScript, workers of a DataLoader), a line of code that it marks, or a line after a colon
    (`load_state_dict`).
    """
    lines = [line.strip().rstrip(". ") for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    quoted = [line for line in lines[1:] if QUOTED_ERROR.match(line)]
    if quoted:
        return quoted[-1]
    marked = [line for line, mark in pairwise(lines) if mark.endswith(MARK)]
    introduced = marked[-1:] or (lines[1:2] if lines[0].endswith(":") else [])
    return f"{type(error).__name__}: {': '.join([lines[0].rstrip(':'), *introduced])}"


def is_device_failure(error: BaseException) -> bool:
    """Whether torch raised this because a device has no memory left or failed; torch is not imported for the answer.

    A failed assertion does not count: it is about values that a kernel was given, such as a label above the classes.
    """
    text = str(error)
    return type(error).__name__ == "OutOfMemoryError" or ("CUDA error" in text and "device-side assert" not in text)


@contextmanager
def failing_as(
    kind: type[AACPError], what: str, remedy: str, described: Callable[[BaseException], str] = first_line
) -> Iterator[None]:
    """Raise whatever code of others raises as an error of aacp; errors of aacp and of devices stay as they are.

    Args:
        kind: the class of the error.
        what: its first sentence, to which the cause is added.
        remedy: its second sentence.
        described: what makes the cause of an exception.
    """
    try:
        yield
    except AACPError:
        raise
    except Exception as error:
        if is_device_failure(error):
            raise
        raise kind(f"{what}: {described(error)}. {remedy}") from error
