"""What commands do around a call of the library: the folder, Ctrl-C, a guessed input, the printed result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aacp.commands.border import INTERRUPTED
from aacp.errors import InvalidExample

if TYPE_CHECKING:
    from torch import nn


def run_folder(model: str, given: str | None, suffix: str = "") -> str:
    """The folder of --run, or one named after the model, with a suffix of the command so that none takes another's."""
    return given or f"runs/{file_name(model)}{suffix}"


def file_name(text: str) -> str:
    """Text as the name of a file or folder: runs of other characters than letters, digits, ., _ and - become a -."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


@contextmanager
def resumable(folder: str) -> Iterator[None]:
    """After Ctrl-C, say how to resume and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"Interrupted. The same command resumes from {folder}.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


@contextmanager
def guessed_input(network: nn.Module, shapes: tuple[tuple[int, ...], ...]) -> Iterator[None]:
    """Name --input if the command guessed the shape of an input, because neither it nor the network names one."""
    from aacp.zoo.models import IMAGE, likely_shape, named_input_size

    if shapes or named_input_size(network) is not None:
        yield
        return
    guess = "x".join(map(str, (1, *IMAGE)))
    try:
        yield
    except InvalidExample as error:
        likely = "x".join(map(str, likely_shape(network)))
        raise InvalidExample(
            f"The network does not name the shape of its inputs, and it does not run on {guess}, which was tried. Give "
            f"the shape, such as --input {likely}."
        ) from error
    click.echo(f"The network does not name the shape of its inputs. {guess} was used; --input gives another.", err=True)


def show(found: object, data: Any, as_json: bool) -> None:
    """Print a result as text, or its data as JSON."""
    click.echo(json.dumps(data) if as_json else str(found))
