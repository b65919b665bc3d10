"""Everything that can go wrong, as a tree of names.

AACPError
├── InvalidOption      an argument is outside its range
│   └── InfeasibleBudget   no structure of the space meets every limit
├── UnknownModel       a model name leads nowhere
├── UnknownData        a name of data leads nowhere
├── InvalidWeights     a file of weights cannot be read or does not fit the network
├── UntraceableModel   the network cannot be turned into a channel graph
│   ├── InvalidExample     the network does not run on the example
│   └── NothingToPrune     every channel is frozen, or there is no convolution
├── GraphMismatch      a graph and a network do not belong together
├── DeviceMismatch     a latency table of another machine, runtime or setting
├── BrokenArtefact     a file of a pruned network cannot be read, or does not fit the network
├── ExportFailed       a network cannot be exported, or its export computes something else
├── MissingPackage     an optional package is not installed
├── InvalidData        data that is empty, or does not fit the network or the task
│   └── CorruptPicture     a file cannot be read as a picture
├── InvalidScore       a score function fails, or what it returns is no number
├── RunMismatch        a run folder or saved search belongs to another question
├── RunLocked          another process is writing to the run folder
├── NothingToReport    a run folder is not there, or has nothing to show
├── Diverged           a loss stopped being a number
├── WorkerFailed       one of several processes fails, or ends before its work does
└── InvalidStructure   counts or indices that the graph or space does not allow

A message has two sentences: what is wrong, with the values; what to do.
"""


class AACPError(Exception):
    """The root: catch this to catch all of ours."""


class InvalidOption(AACPError, ValueError):
    """An argument is outside its range."""


class InfeasibleBudget(InvalidOption):
    """No structure of the space meets every limit."""


class UnknownModel(AACPError, LookupError):
    """A model name leads nowhere."""


class UnknownData(AACPError, LookupError):
    """A name of data leads nowhere."""


class InvalidWeights(AACPError):
    """A file of weights cannot be read or does not fit the network."""


class UntraceableModel(AACPError):
    """The network cannot be turned into a channel graph."""


class InvalidExample(UntraceableModel):
    """The network does not run on the example."""


class NothingToPrune(UntraceableModel):
    """Every channel is frozen, or there is no convolution."""


class GraphMismatch(AACPError):
    """A graph and a network do not belong together."""


class DeviceMismatch(AACPError):
    """A latency table of another machine, runtime or setting."""


class BrokenArtefact(AACPError):
    """A file of a pruned network cannot be read, or does not fit the network."""


class ExportFailed(AACPError):
    """A network cannot be exported, or its export computes something else."""


class MissingPackage(AACPError, ImportError):
    """An optional package is not installed."""


class InvalidData(AACPError, ValueError):
    """Data that is empty, or does not fit the network or the task."""


class CorruptPicture(InvalidData):
    """A file cannot be read as a picture."""

    def __init__(self, message: str) -> None:
        # A loader's worker passes errors on as a traceback in words; its last line is the message.
        super().__init__(message.strip().split("\n")[-1].removeprefix(f"{__name__}.CorruptPicture: "))


class InvalidScore(AACPError):
    """A score function fails, or what it returns is no number."""


class RunMismatch(AACPError):
    """A run folder or a saved search belongs to another question."""


class RunLocked(AACPError):
    """Another process is writing to the run folder."""


class NothingToReport(AACPError):
    """A run folder is not there, or has nothing to show."""


class Diverged(AACPError, ArithmeticError):
    """A loss stopped being a number."""


class WorkerFailed(AACPError):
    """One of several processes fails, or ends before its work does."""


class InvalidStructure(AACPError, ValueError):
    """Counts or indices that the graph or space does not allow."""


def first_line(error: BaseException) -> str:
    """The class of an exception and the first line of its message, to quote in a message of ours."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('. ')}" if lines else type(error).__name__
