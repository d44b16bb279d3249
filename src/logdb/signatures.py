"""The signatures that ``help`` shows: every option with its default, and types by the names that they have in the documentation."""

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, get_overloads

T = TypeVar("T")


class _Shown:
    """Text in the place of a type or a default."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(self._text)


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


def readable(kind: type[T]) -> type[T]:
    """Let ``help`` show a class as its user meets it: short names of types, and no constructor, which only logdb calls."""
    for name, value in vars(kind).items():
        method = value.__func__ if isinstance(value, staticmethod) else value
        if not inspect.isfunction(method) or inspect.isbuiltin(wrapped := inspect.unwrap(method)) or inspect.ismethoddescriptor(wrapped):
            continue  # the extension's documentation begins with the signature
        signature = inspect.signature(method)
        parameters = list(signature.parameters.values())
        if name in {"__init__", "__new__"}:
            signature, method.__doc__ = inspect.Signature(parameters[:1]), "Called by logdb alone."
        else:
            shown = [one.replace(annotation=_named(one.annotation)) for one in parameters]
            signature = signature.replace(parameters=shown, return_annotation=_named(signature.return_annotation))
        method.__signature__ = signature  # type: ignore[attr-defined]  # what inspect and help look for
    return kind


def _named(annotation: object) -> object:
    return annotation if annotation is inspect.Parameter.empty else _Shown(_type(annotation))


def _type(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"~|\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text.replace("bytes | bytearray | memoryview", "Buffer"))


def _either(texts: list[str]) -> _Shown:
    return _Shown(" | ".join(dict.fromkeys(kind for text in texts for kind in text.split(" | "))))


def _default(group: list[inspect.Parameter]) -> object:
    defaults = list(dict.fromkeys(repr(one.default) for one in group))
    return group[0].default if len(defaults) == 1 else _Shown(" | ".join(defaults))
