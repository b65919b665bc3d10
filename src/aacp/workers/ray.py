"""RayEngine: workers as Ray actors, on this machine or on a cluster that runs Ray."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from aacp import errors
from aacp.channels.structure import Structure
from aacp.errors import AACPError, InvalidOption, WorkerFailed, failing_as, first_line, is_device_failure
from aacp.search.queue import OnFewImages, Work, structure_of
from aacp.user.progress import report_progress
from aacp.user.values import counted
from aacp.version import __version__
from aacp.workers.pool import WorkerLost
from aacp.zoo.imports import require_package

INSTALL = "pip install 'aacp[ray]'"
SCHEME = "ray://"
AUTO = "auto"
RAY_PORT = 10001  # where `ray start --head` answers by default
ANSWER_SECONDS = 5.0  # how long the address of a cluster is tried before the run begins
RESOURCES_SECONDS = 1.0  # how long the known resources of a cluster are used before they are asked for again

MakeEstimate = Callable[[], Callable[[Any], Any]]  # makes a function from a structure to its score, or to its times


@dataclass(frozen=True)
class WorkerRequest:
    """How many workers to use, and where.

    Args:
        count: the number of workers; None is one for each GPU of the cluster or, without GPUs, for each CPU.
        address: the Ray cluster to use; None is a cluster that runs on this machine, or a new one that ends with the
            search.
    """

    count: int | None = None
    address: str | None = None

    @classmethod
    def of(cls, given: int | str) -> WorkerRequest:
        """The request for a number of workers, "auto", or the address of a cluster."""
        text = str(given).strip()
        if text == AUTO:
            return cls()
        if text.startswith(SCHEME) and len(text) > len(SCHEME):
            return cls(address=text)
        if text.isascii() and text.isdigit() and int(text) > 0:
            return cls(count=int(text))
        raise InvalidOption(
            f'workers is {given!r}. Give the number of workers, "{AUTO}", or the address of a Ray cluster, such as '
            f"{SCHEME}head:10001."
        )

    def require_answer(self) -> None:
        """Require Ray, and reject an address on which nothing answers; Ray itself would try for most of a minute."""
        require_package("ray", INSTALL)
        if self.address is None:
            return
        with answering(self.address):
            place = urlsplit(self.address)
            socket.create_connection((place.hostname, place.port or RAY_PORT), timeout=ANSWER_SECONDS).close()

    def idle_note(self, proposals: int | None) -> str:
        """A sentence about workers that will wait, because too few structures are proposed for them; "" if none will.

        Args:
            proposals: the structures without a score that the search keeps proposed; None if its method decides.
        """
        if self.count is None or proposals is None or proposals >= 2 * self.count or self.count == 1:
            return ""
        return (
            f"{self.count} workers share {counted(proposals, 'proposal')}, so that some of them wait; "
            f"--proposals {2 * self.count} keeps them busy, with another result"
        )


class RayWorker:
    """The part of a worker that runs in its own process: an estimate, and errors as plain data.

    Nothing of an error must be unpickled by the process that searches.
    """

    def __init__(self, make_estimate: MakeEstimate) -> None:
        self._make_estimate = make_estimate
        self._estimate: Callable[[Any], Any] | None = None

    def prepare(self, version: str) -> tuple[str, str] | float:
        """Make the estimate; the answer is 0, or the description of an error."""
        try:
            if version != __version__:
                raise WorkerFailed(
                    f"The worker on {platform.node()} has aacp {__version__}, and the process that searches has "
                    f"{version}. Install the same version on all machines."
                )
            self._estimate = self._make_estimate()
            return 0.0
        except Exception as error:  # whatever data, scores and networks of users raise
            return described(error, platform.node())

    def score(self, counts: Sequence[int], on_few_images: bool = False) -> Any:
        """What the estimate returns for a structure, or the description of an error."""
        assert self._estimate is not None
        structure = Structure(counts)
        try:
            return self._estimate(OnFewImages(structure) if on_few_images else structure)
        except Exception as error:
            return described(error, platform.node())

    def ask(self, name: str) -> Any:
        """What a method of the estimate returns, or the description of an error."""
        try:
            return getattr(self._estimate, name)()
        except Exception as error:
            return described(error, platform.node())


def described(error: BaseException, place: str) -> tuple[str, str]:
    """The name of an error class of aacp (its own, or that of its nearest ancestor in aacp.errors), and a message."""
    if isinstance(error, AACPError):
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__), str(error)
    remedy = "Correct it"
    if is_device_failure(error):
        remedy = "Use fewer workers, smaller batches or fewer calibration images, or other devices"
    message = f"A worker on {place} failed: {first_line(error)}. {remedy}; with a run folder, the same call resumes."
    return WorkerFailed.__name__, message


def rebuilt(name: str, message: str) -> AACPError:
    """The error that `described` has described."""
    error: AACPError = getattr(errors, name)(message)
    return error


class RayEngine:
    """Workers as Ray actors. It connects to Ray when the first worker is started.

    Args:
        request: how many workers, and where.
        make_estimate: makes the estimate in the process of a worker; it is sent there, with all that it refers to.
        uses_gpu: whether a worker needs a GPU. Several share one if there are more workers than GPUs.
        cpus: how many CPUs a worker needs.
    """

    def __init__(self, request: WorkerRequest, make_estimate: MakeEstimate, *, uses_gpu: bool, cpus: int = 1) -> None:
        self._ray = require_package("ray", INSTALL)
        self._request = request
        self._make_estimate = make_estimate
        self._resource = "GPU" if uses_gpu else "CPU"
        self._cpus = cpus
        self._has_connected = False
        self._actor: Any = None  # the class of the actors
        self._sent: Any = None  # the reference of make_estimate in the cluster
        self._available = 0
        self._asked = float("-inf")  # when the resources of the cluster were last asked for

    def wanted(self) -> int:
        if self._request.count is not None:
            return self._request.count
        self._connect()
        if time.monotonic() - self._asked > RESOURCES_SECONDS:
            self._available = int(self._ray.cluster_resources().get(self._resource, 0))
            self._asked = time.monotonic()
        return self._available

    def start(self) -> tuple[Any, Any]:
        self._connect()
        worker = self._actor.remote(self._sent)
        return worker, worker.prepare.remote(__version__)

    def submit(self, worker: Any, work: Work) -> Any:
        return worker.score.remote(list(structure_of(work)), isinstance(work, OnFewImages))

    def ask(self, worker: Any, name: str) -> Any:
        """Let a worker that is ready call a method of its estimate: the ticket of what it returns."""
        return worker.ask.remote(name)

    def wait(self, tickets: Sequence[Any], seconds: float) -> Sequence[Any]:
        if not tickets:
            time.sleep(seconds)  # no worker is wanted at present
            return ()
        done: Sequence[Any] = self._ray.wait(list(tickets), timeout=seconds)[0]
        if done:  # Ray returns one of them; others may be done too
            done = self._ray.wait(list(tickets), num_returns=len(tickets), timeout=0)[0]
        return done

    def result(self, ticket: Any) -> Any:
        try:
            answer = self._ray.get(ticket)
        except self._ray.exceptions.RayTaskError as error:  # the actor's own code: its module could not be imported
            raise WorkerFailed(
                f"A worker could not start: {_last_line(error)}. Install the same packages, and make your modules "
                "importable, on all machines."
            ) from error
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(_last_line(error)) from error
        if isinstance(answer, tuple):
            raise rebuilt(*answer)
        return answer

    def stop(self, worker: Any) -> None:
        self._ray.kill(worker)

    def close(self) -> None:
        if self._has_connected:
            self._ray.shutdown()
        self._has_connected = False
        self._actor = None
        self._sent = None

    def _connect(self) -> None:
        """Connect to Ray, or start it; a connection of the user's own is used and left open."""
        if self._actor is not None:
            return
        if not self._ray.is_initialized():
            self._initialise()
            self._has_connected = True
        share = self._share_of_a_device()
        self._require_cpus()
        options = {"num_cpus": self._cpus, "num_gpus": share if self._resource == "GPU" else 0, "max_restarts": 0}
        self._actor = self._ray.remote(**options)(RayWorker)
        what = "The network, its data or its score cannot be sent to workers"
        remedy = "Define their classes and functions in a module, without open files and locks."
        with failing_as(InvalidOption, what, remedy):
            self._sent = self._ray.put(self._make_estimate)

    def _initialise(self) -> None:
        named = os.environ.get("RAY_ADDRESS")
        address = self._request.address or named
        place = self._request.address or (f"{named} (RAY_ADDRESS)" if named else "this machine")
        settings: dict[str, Any] = {}
        if address is None and self._request.count is not None:
            address = "local"  # a new cluster, also if another one runs on this machine
            settings = {"num_cpus": self._request.count * self._cpus, "include_dashboard": False}
        report_progress("starting Ray and its workers")
        with answering(place):
            self._ray.init(address, log_to_driver=False, configure_logging=False, **settings)

    def _share_of_a_device(self) -> float:
        """The share of a GPU or CPU that a worker gets: a part of a GPU, if there are more workers than GPUs."""
        there = float(self._ray.cluster_resources().get(self._resource, 0))
        if not there:
            raise InvalidOption(
                f"The workers need a {self._resource}, but the cluster has none. Add one, or compute on another device."
            )
        if self._request.count is None or self._resource == "CPU":
            return 1.0
        return min(1.0, int(1000 * there / self._request.count) / 1000)

    def _require_cpus(self) -> None:
        """Reject a number of CPUs that no machine has: Ray would wait for it without end."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        most = max((each.get("CPU", 0) for each in machines if each.get(self._resource)), default=0)
        if most < self._cpus:
            kind = "machine with a GPU" if self._resource == "GPU" else "machine"
            raise InvalidOption(
                f"The worker needs {self._cpus} CPUs of one {kind}, but the largest of the cluster has {most:g}. Use "
                "fewer threads, or add a machine."
            )


def answering(place: str) -> AbstractContextManager[None]:
    """Explain what fails inside as a Ray cluster that does not answer."""
    what = f"Ray does not answer on {place}"
    return failing_as(InvalidOption, what, "Start it with `ray start --head`, or correct the address.")


def _last_line(error: BaseException) -> str:
    """The class of an error of Ray and the last line of its message, which names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1].rstrip('. ')}" if lines else type(error).__name__
