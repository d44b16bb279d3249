"""Errors as data: a name, and values for the arguments with which the error is made again.

Each argument of such an error is an attribute of the same name; what is given by keyword alone stays behind.
"""

import inspect
from typing import Any, get_type_hints

import msgspec

from logdb.errors import LogdbError


class Refusals:
    """The errors that may be written so."""

    def __init__(self, *kinds: type[LogdbError]) -> None:
        self.kinds = kinds
        self._kinds = {kind.__name__: (kind, _arguments(kind)) for kind in kinds}

    def written(self, error: LogdbError) -> tuple[str, list[Any]]:
        """Name and values of an error of these kinds."""
        name = type(error).__name__
        return name, [getattr(error, argument) for argument in self._kinds[name][1]]

    def error(self, name: str, values: list[Any]) -> LogdbError:
        """The error; raises msgspec.ValidationError where it is none of these."""
        if name not in self._kinds or len(values) != len(self._kinds[name][1]):
            raise msgspec.ValidationError(f"{name} with {len(values)} values is no refusal")
        kind, arguments = self._kinds[name]
        return kind(*(msgspec.convert(value, hint) for value, hint in zip(values, arguments.values(), strict=True)))


def _arguments(kind: type[LogdbError]) -> dict[str, Any]:
    hints = get_type_hints(kind.__init__)
    parameters = inspect.signature(kind).parameters.values()
    return {parameter.name: hints[parameter.name] for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY}
