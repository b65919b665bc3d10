"""The border of the command line: every exception becomes one sentence on the standard error output and an exit code.

0 success; 1 an error that the user can correct; 2 a command that cannot be parsed (by click); 3 a bug in aacp;
130 after Ctrl-C. With AACP_TRACEBACK=1 in the environment, the traceback is printed before the sentence.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
import traceback
from typing import Any

import click

from aacp.errors import AACPError, UserCodeFailed, first_line, is_device_failure
from aacp.user.code import described_failure, is_from_user_code
from aacp.user.progress import show_progress

FAILED = 1
OUR_MISTAKE = 3
INTERRUPTED = 130
LONG_WORD = re.compile(r"\S{300,}")  # such as a value of many characters, which a message must not repeat
TRACEBACK = "AACP_TRACEBACK"  # the environment variable that requests tracebacks

# What to do about an error of the operating system; every other one gets the last sentence.
REMEDIES = {
    errno.ENOSPC: "Free some space, and give the same command again.",
    errno.EDQUOT: "Free some space, and give the same command again.",
    errno.EROFS: "Choose a place that can be written to.",
    errno.EACCES: "Change the permissions, or choose another place.",
    errno.EPERM: "Change the permissions, or choose another place.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ENOENT: "Check the path.",
    errno.EISDIR: "Give the path of a file.",
    errno.ENOTDIR: "Give the path of a folder.",
    errno.EEXIST: "Remove what is there, or choose another path.",
    errno.EMFILE: "Raise the limit on open files (ulimit -n).",
    errno.ENFILE: "Raise the limit on open files (ulimit -n).",
}
OTHER_REMEDY = "Check the path and the disk, and give the same command again."
# CUDA's message; the class of the exception depends on the version of torch.
GPU_IS_BUSY = "CUDA-capable device(s) is/are busy or unavailable"


class Commands(click.Group):
    """Commands whose exceptions are translated here and nowhere else."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        super().add_command(cmd, name)
        for parameter in cmd.params:
            if parameter.callback is None:
                parameter.callback = _reject_empty

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their whole first sentence, which click cuts off at the end of the line."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(1000)) for name in sorted(self.commands)])

    def invoke(self, ctx: click.Context) -> Any:
        _print_any_character()
        try:
            with show_progress():
                return super().invoke(ctx)
        except click.UsageError as error:
            raise click.UsageError(LONG_WORD.sub(_shortened, error.format_message()), error.ctx) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click turns these into an exit code itself
        except KeyboardInterrupt:  # before there is anything to resume, such as while torch is imported
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except (Exception, SystemExit) as error:
            if os.environ.get(TRACEBACK) == "1":
                click.echo(traceback.format_exc(), err=True)
            sentence, code = explained(error)
            click.echo(printable(LONG_WORD.sub(_shortened, sentence)), err=True)
            ctx.exit(code)


def _reject_empty(_: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Reject an option that is given without a value, which would be taken for one that is not given."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("The value is empty. Give one, or leave the option out.", param=parameter)
    return value


def _shortened(word: re.Match[str]) -> str:
    return f"{word[0][:60]}...{word[0][-20:]}"


def printable(text: str) -> str:
    """Text in one line. Files of strangers may hold characters that move the cursor or hide what follows."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def explained(error: BaseException) -> tuple[str, int]:
    """What is wrong and what to do, for people, and the exit code."""
    if isinstance(error, AACPError):
        return f"{type(error).__name__}: {error}", FAILED
    is_users = is_from_user_code(error)
    if isinstance(error, OSError) and not is_users:
        return f"{type(error).__name__}: {_of_the_system(error)}", FAILED
    if _is_out_of_memory(error) and not (is_users and isinstance(error, MemoryError)):
        return (
            f"MemoryError: There is not enough memory ({first_line(error)}). Use smaller batches, inputs or fewer "
            "calibration images, or a device with more memory.",
            FAILED,
        )
    if GPU_IS_BUSY in str(error):
        return (
            f"DeviceBusy: The GPU does not accept this process ({first_line(error)}). Wait until others have left it "
            "(nvidia-smi lists them), and give the same command again.",
            FAILED,
        )
    if is_device_failure(error):
        return (
            f"DeviceFailed: The GPU failed ({first_line(error)}). If other processes share it, one of them may be the "
            "cause; give the same command again, which resumes.",
            FAILED,
        )
    if is_users:
        return (
            f"{UserCodeFailed.__name__}: Your code failed with {described_failure(error)}. Correct it; with "
            f"{TRACEBACK}=1 in the environment the traceback is shown.",
            FAILED,
        )
    return _our_mistake(error), OUR_MISTAKE


def _of_the_system(error: OSError) -> str:
    """An error of the operating system as two sentences."""
    # Some errors have two paths, such as those of renaming.
    paths = [str(path) for path in (error.filename, error.filename2) if path is not None]
    what = error.strerror or first_line(error)
    place = f"{' and '.join(paths)}: " if paths else ""
    return f"{place}{what.rstrip('. ')}. {REMEDIES.get(error.errno or 0, OTHER_REMEDY)}"


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the processor or of a GPU was exhausted; torch is not imported for the answer."""
    is_torch = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    return isinstance(error, MemoryError) or is_torch


def _our_mistake(error: BaseException) -> str:
    """A sentence about an exception that aacp should not have raised, and the file of its traceback."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="aacp-", suffix=".txt", encoding="utf-8", delete=False) as file:
            file.write("".join(traceback.format_exception(error)))
        place = f"with the traceback, which is in {file.name}"
    except (OSError, ValueError):  # a full disk must not hide the sentence
        place = f"with the traceback, which {TRACEBACK}=1 in the environment shows"
    return f"InternalError: This is a bug in aacp, not in your command: {first_line(error)}. Report it {place}."


def _print_any_character() -> None:
    """Let output contain characters that the terminal's encoding lacks, such as those of an undecodable file name."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
