"""A warm process that forks: every fault is tried in a process of its own, while torch is imported only once.

`Forker` is the side of the tests. `python -m faults.forker` is the warm process: it reads one attempt per line of its
standard input and answers with one line on its standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
UNEXPECTED = 70  # exit code of a piece of library code that ended with something else than an AACPError
SILENT = 0  # exit code of a piece of library code that raised nothing
EXPLAINED = 1  # exit code of a piece of library code that ended with an AACPError
WORKER_KILL = "AACP_FAULTS_WORKER_KILL"  # for faults.subjects, which worker processes import
NOBODY = 65534  # a user without rights
LONGEST_OUTPUT = 40_000  # bytes that are kept of each stream


@dataclass(frozen=True)
class Attempt:
    """What one process does: a command of aacp or a piece of Python, under a fault of the system.

    Args:
        folder: the current folder.
        command: arguments of aacp.
        code: or a piece of Python.
        seconds: after this time the process and its children are killed.
        fault: "" for none; "kill"; or the name of an errno, raised by a call that changes files.
        at: the number of the call that gets the fault, counted from 1; 0 counts only.
        lasting: whether all later calls get the fault too.
        below: only calls on files below this folder count.
        file_bytes: the largest size of a file that the system allows; 0 for no limit.
        as_nobody: whether the process gives up the rights of root.
        threads: the number of threads of torch.
        worker_kill: the number of the call of a worker process at which somebody is killed; 0 kills nobody.
        worker_fault: who is killed then: "kill" for the worker, "kill-parent" for the process that started it.
    """

    folder: str
    command: tuple[str, ...] = ()
    code: str = ""
    seconds: float = 180.0
    fault: str = ""
    at: int = 0
    lasting: bool = False
    below: str = ""
    file_bytes: int = 0
    as_nobody: bool = False
    threads: int = 1
    worker_kill: int = 0
    worker_fault: str = "kill"


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    code: int | None  # the exit code; None if a signal ended it
    out: str
    err: str
    seconds: float
    timed_out: bool = False
    events: list[str] = field(default_factory=list)  # the calls that changed files, as far as they were counted
    error: dict[str, Any] | None = None  # the class, its bases and the message of an AACPError of library code


class Forker:
    """Attempts in processes that are forked from a warm one.

    Args:
        source: the folder of the library that is tried.
    """

    def __init__(self, source: Path = TESTS.parent / "src") -> None:
        path = os.pathsep.join([str(source), str(TESTS), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"}
        environment.pop("AACP_STRICT_RULES", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.forker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=TESTS,
        )  # fmt: skip
        self._turn = threading.Lock()

    def run(self, attempt: Attempt) -> Ending:
        """Carry out one attempt and wait for its end."""
        with self._turn:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(asdict(attempt)) + "\n")
            self._process.stdin.flush()
            return Ending(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(180)
        self._process.stdout.close()


# -- the warm process -------------------------------------------------------------------------------------------------


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else may write into the answers
    _warm_up()
    for line in sys.stdin:
        given = json.loads(line)
        attempt = Attempt(**{**given, "command": tuple(given["command"])})
        answers.write(json.dumps(asdict(_attempted(attempt))) + "\n")
        answers.flush()


def _warm_up() -> None:
    """One small run, so that everything that is imported late is imported before the first fork."""
    import torch

    torch.set_num_threads(1)
    import faults.warm  # noqa: F401


def _attempted(attempt: Attempt) -> Ending:
    with tempfile.TemporaryDirectory(prefix="aacp-fault-") as scratch:
        os.chmod(scratch, 0o777)
        streams = [os.pipe(), os.pipe()]  # not files: the attempt may be one with a limit on the size of files
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _child(attempt, Path(scratch), [writing for _, writing in streams])
        outputs = [_Output(reading, writing) for reading, writing in streams]
        status, timed_out = _wait(pid, attempt.seconds, outputs)
        seconds = time.monotonic() - started
        return Ending(
            code=os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None,
            out=outputs[0].close(),
            err=outputs[1].close(),
            seconds=seconds,
            timed_out=timed_out,
            events=_text(Path(scratch) / "events").splitlines(),
            error=json.loads(_text(Path(scratch) / "error") or "null"),
        )


class _Output:
    """What a process writes to a pipe, read while the process runs."""

    def __init__(self, reading: int, writing: int) -> None:
        os.close(writing)
        os.set_blocking(reading, False)
        self._reading = reading
        self._content = b""

    def read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._reading, 1 << 16):
                self._content = (self._content + part)[-LONGEST_OUTPUT:]

    def close(self) -> str:
        """All of it; processes that hold the other end are not waited for."""
        self.read()
        os.close(self._reading)
        return self._content.decode(errors="replace")


def _wait(pid: int, seconds: float, outputs: list[_Output]) -> tuple[int, bool]:
    """The status of a process, and whether it had to be killed because its time was over."""
    deadline = time.monotonic() + seconds
    while True:
        for output in outputs:
            output.read()
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status, False
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            return os.waitpid(pid, 0)[1], True
        time.sleep(0.004)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _child(attempt: Attempt, scratch: Path, outputs: list[int]) -> None:
    """The forked process, which never returns."""
    code = UNEXPECTED
    try:
        os.setsid()
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
        sys.stdout = os.fdopen(os.dup(1), "w")
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(attempt.folder)
        from faults.injection import Injection  # before rights are given up: others may not read this folder

        _limit(attempt)
        injection = Injection(attempt.fault, attempt.at, attempt.lasting, attempt.below, scratch / "events")
        if attempt.below:
            injection.install()
        code = _run_command(attempt) if attempt.command else _run_code(attempt.code, scratch)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _limit(attempt: Attempt) -> None:
    import torch

    if attempt.worker_kill:
        os.environ[WORKER_KILL] = f"{attempt.worker_fault} {attempt.worker_kill} {attempt.folder}"
    if attempt.threads != 1:
        torch.set_num_threads(attempt.threads)
    if attempt.file_bytes:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (attempt.file_bytes, attempt.file_bytes))
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    if attempt.as_nobody and os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _run_command(attempt: Attempt) -> int:
    """The exit code of a command, as the installed program would return it."""
    from aacp.cli import main

    sys.argv = ["aacp", *attempt.command]
    try:
        main(list(attempt.command), prog_name="aacp")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _run_code(code: str, scratch: Path) -> int:
    """The outcome of a piece of Python; an AACPError is written to a file for the tests to judge."""
    from aacp.errors import AACPError
    from faults.names import NAMES

    try:
        exec(compile(code, "<case>", "exec"), dict(NAMES))
    except AACPError as error:
        bases = [each.__name__ for each in type(error).__mro__]
        (scratch / "error").write_text(json.dumps({"class": bases[0], "bases": bases, "message": str(error)}))
        return EXPLAINED
    except BaseException:
        traceback.print_exc()
        return UNEXPECTED
    return SILENT


if __name__ == "__main__":
    _serve()
