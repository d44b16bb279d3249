"""Flags in place of verbs and names: ``--describe --group g`` of Kafka's tools is ``describe g`` here, and both forms work."""

import functools
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from logdb.cli.terminal.session import Function
from logdb.cli.terminal.units import Kind

_GIVEN = "logdb.actions"


class ActionFlags:
    """The flags of one of Kafka's tools that are verbs here."""

    def __init__(self, tool: str, *names: str, describing: tuple[str, ...] = ()) -> None:
        """``describing``: parameters that, given alone, choose the content of ``--describe``."""
        self._tool, self._names, self._describing = tool, names, describing

    def options(self, function: Function) -> Function:
        """Add the flags to a command; they are hidden, and ``function`` does not get them."""
        for name in reversed(self._names):
            function = click.option(f"--{name}", is_flag=True, expose_value=False, callback=_note, hidden=True)(function)
        return function

    def given(self, context: click.Context, *, required: bool) -> str | None:
        """The given flag, without its dashes; None if a verb was given, or nothing and that is allowed.

        Raises:
            click.UsageError: There are several, or also a verb, or neither although one is ``required``.
        """
        actions: list[str] = context.meta.get(_GIVEN, [])
        verb, others = context.invoked_subcommand, _others(context)
        if verb is not None and actions:
            raise click.UsageError(f"give either a verb or a flag of {self._tool}, not both")
        if verb is not None and others:
            raise click.UsageError(f"{others[0].opts[0]} belongs behind the verb: {context.info_name} {verb} {others[0].opts[0]} …")
        describes = bool(others) and {one.name for one in others} <= set(self._describing)
        if len(actions) > 1 or (verb is None and not actions and (required or (others and not describes))):
            raise click.UsageError(f"give exactly one of {', '.join(f'--{name}' for name in self._names)}")
        return actions[0] if actions else "describe" if describes and verb is None else None


def _others(context: click.Context) -> list[click.Parameter]:
    """The hidden flags that were given, except those that are verbs."""
    given = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return [
        parameter
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and parameter.hidden and parameter.expose_value
        if context.get_parameter_source(parameter.name) in given
    ]


def names(metavar: str, *flags: str, kind: Kind | None = None, one: bool = False) -> Callable[[Function], Function]:
    """Let a command take names as arguments, and by the flags of Kafka's tools.

    Args:
        metavar: Their form in the help; in brackets if they are optional.
        one: Exactly one, which the function gets as ``name``; otherwise it gets all as ``names``.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def with_names(*args: Any, names: tuple[str, ...], more_names: tuple[str, ...], **options: Any) -> Any:
            given = [*names, *more_names]
            if not given and not metavar.startswith("["):
                raise click.UsageError(f"which {metavar.rstrip('.')}? Missing argument '{metavar}'.")
            if not one:
                return function(*args, names=given, **options)
            if len(given) > 1:
                raise click.UsageError(f"give one {metavar}, not {', '.join(given)}")
            return function(*args, name=given[0], **options)

        with_flags = click.option(*flags, "more_names", type=kind, multiple=True, hidden=True)(with_names)
        decorated: Function = click.argument("names", metavar=metavar, nargs=-1, type=kind)(with_flags)  # type: ignore[assignment]
        return decorated

    return decorate


def _note(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        context.meta.setdefault(_GIVEN, []).append(parameter.opts[0].removeprefix("--"))
