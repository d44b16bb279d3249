"""Flags in place of verbs: what Kafka's tools take as ``--describe`` is ``describe`` here, and both work.

Knows that exactly one is given.  Does not know what it does.
"""

import click

from logdb.cli.session import Function

_GIVEN = "logdb.actions"


class ActionFlags:
    """The flags of one of Kafka's tools that are verbs here."""

    def __init__(self, tool: str, *names: str) -> None:
        self._tool, self._names = tool, names

    def options(self, function: Function) -> Function:
        """Let a command take the flags; they are hidden, and none is an argument of ``function``."""
        for name in reversed(self._names):
            function = click.option(f"--{name}", is_flag=True, expose_value=False, callback=_note, hidden=True)(function)
        return function

    def given(self, context: click.Context, *, required: bool) -> str | None:
        """The flag that was given, without its dashes; None where a verb was, or nothing and that is allowed.

        Raises:
            click.UsageError: There are several, or a verb besides, or none of either where one is ``required``.
        """
        actions: list[str] = context.meta.get(_GIVEN, [])
        verb = context.invoked_subcommand is not None
        if verb and actions:
            raise click.UsageError(f"give either a verb or a flag of {self._tool}, not both")
        if len(actions) > 1 or (required and not verb and not actions):
            raise click.UsageError(f"exactly one of {', '.join(f'--{name}' for name in self._names)} is needed")
        return actions[0] if actions else None


def _note(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        context.meta.setdefault(_GIVEN, []).append(parameter.opts[0].removeprefix("--"))
