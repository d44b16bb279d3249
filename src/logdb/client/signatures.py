"""The signature that ``help`` shows of a function with overloads: every option, with its type and its default."""

import inspect
from collections.abc import Callable
from typing import Any, get_overloads


class _Shown:
    """Text in the place of a type or a default."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def shown(function: Callable[..., Any]) -> inspect.Signature:
    """All parameters of a function's overloads; a default that differs between them is shown as ``16384 | 262144``."""
    signatures = [inspect.signature(one) for one in get_overloads(function)]
    found: dict[str, list[inspect.Parameter]] = {}
    for signature in signatures:
        for name, parameter in signature.parameters.items():
            found.setdefault(name, []).append(parameter)
    parameters = [
        group[0].replace(annotation=_either([_type(one.annotation) for one in group]), default=_default(group)) for group in found.values()
    ]
    return inspect.Signature(parameters, return_annotation=_either([_type(signatures[0].return_annotation)]))


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _either(texts: list[str]) -> _Shown:
    return _Shown(" | ".join(dict.fromkeys(kind for text in texts for kind in text.split(" | "))))


def _default(group: list[inspect.Parameter]) -> object:
    defaults = list(dict.fromkeys(repr(one.default) for one in group))
    return group[0].default if len(defaults) == 1 else _Shown(" | ".join(defaults))
