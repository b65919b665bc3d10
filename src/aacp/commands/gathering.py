"""Gathering: options that are passed to a command as one dictionary, and options that would have no effect."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import click
from click.core import ParameterSource

Command = Callable[..., Any]


def gathered(argument: str, options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """A decorator that adds options to a command and passes their values as one dictionary, by parameter name.

    Args:
        argument: the name of the command's argument that takes the dictionary.
        options: made by click.option or click.argument.
    """
    names = parameter_names(options)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            return command(**{argument: {name: given.pop(name) for name in names}}, **given)

        return functools.reduce(lambda made, option: option(made), reversed(options), cast(Command, called))

    return decorate


def parameter_names(options: Sequence[Callable[[Command], Command]]) -> list[str]:
    """The parameter names that click gives to options."""

    def probe() -> None:
        """Options are added to this function, only to read their names."""

    for option in options:
        option(probe)
    return [parameter.name for parameter in probe.__click_params__]  # type: ignore[attr-defined]


def reject_options(names: Sequence[str], because: str, remedy: str) -> None:
    """Reject options that were given, even with their default values, but would have no effect."""
    context = click.get_current_context()
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        listed = " and ".join(given)
        raise click.UsageError(f"{listed} would be ignored: {because}. {remedy}, or leave out {listed}.")


Given = Mapping[str, Any]  # the values of options, by parameter name
