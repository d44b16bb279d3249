"""Calls of a session as JSON, both ways.

Knows shapes: named tuples are objects, bytes are base64, mappings are lists of pairs, as their keys need not be strings.
Does not know which calls there are (``calls``), nor HTTP.  What comes in is hostile: every value is checked against the
type that is wanted, numbers for 64 bits, strings for UTF-8.
"""

import base64
import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

_PLAIN = (str, int, float, bool, type(None))
_MANY: dict[Any, Any] = {tuple: tuple, list: list, Sequence: tuple, Iterable: tuple, frozenset: frozenset}


class Malformed(ValueError):
    """Not a value of the type that is wanted; says where and what is."""


def encode(value: Any) -> Any:
    """A value as what ``json.dumps`` takes."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: encode(part) for name, part in value._asdict().items()}
    if dataclasses.is_dataclass(value):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return [[encode(key), encode(part)] for key, part in value.items()]
    return [encode(part) for part in value]


def decode(wanted: Any, value: Any, where: str = "value") -> Any:
    """The value that ``encode`` was given, of type ``wanted``.

    Raises:
        Malformed: It is none.
    """
    if type(wanted) is type:
        return _decode_plain(wanted, value, where)
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any:
        return value
    if wanted is None:  # as in Future[None]
        return _checked(value is None, value, where, "null")
    if origin in (typing.Union, types.UnionType):
        return _decode_one_of(parts, value, where)
    if origin is typing.Literal:
        return _checked(value in parts, value, where, f"one of {', '.join(map(repr, parts))}")
    if origin in (dict, Mapping):
        _checked(isinstance(value, list), value, where, "a list of pairs, [[name, value], …]")
        pairs = decode(list[tuple[parts[0], parts[1]]], value, where)  # type: ignore[valid-type]
        return dict(pairs)
    if origin is tuple and parts[-1:] != (Ellipsis,):
        _checked(isinstance(value, list) and len(value) == len(parts), value, where, f"a list of {len(parts)}")
        return tuple(decode(part, item, f"{where}[{at}]") for at, (part, item) in enumerate(zip(parts, value, strict=True)))
    if origin in _MANY:
        _checked(isinstance(value, list), value, where, "a list")
        return _MANY[origin](decode(parts[0], item, f"{where}[{at}]") for at, item in enumerate(value))
    return _decode_plain(wanted, value, where)


def _decode_one_of(parts: Sequence[Any], value: Any, where: str) -> Any:
    if value is None and type(None) in parts:
        return None
    failure: Malformed | None = None
    for part in parts:
        if part is not type(None):
            try:
                return decode(part, value, where)
            except Malformed as error:
                failure = error
    raise failure or Malformed(f"{where} is {value!r:.80}")


def _decode_plain(wanted: Any, value: Any, where: str) -> Any:
    if wanted is int:
        return _checked(type(value) is int and -(2**63) <= value < 2**63, value, where, "a whole number of 64 bits")
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        _checked(isinstance(value, str) and value in wanted.__members__, value, where, f"one of {', '.join(wanted.__members__)}")
        return wanted[value]
    if wanted in (bytes, bytearray, memoryview):
        _checked(isinstance(value, str), value, where, "base64")
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise Malformed(f"{where} is not base64: {error}") from None
    if dataclasses.is_dataclass(wanted) or hasattr(wanted, "_fields"):
        return decode_object(wanted, value, where)
    if wanted is object:
        return _checked(isinstance(value, _PLAIN), value, where, "a word, a number, true, false or null")
    if wanted is float:
        return _checked(type(value) in (int, float), value, where, "a number")
    return _checked(type(value) is wanted, value, where, wanted.__name__)


def decode_object(wanted: Any, value: Any, where: str) -> Any:
    """An object by the fields of a named tuple or dataclass."""
    _checked(isinstance(value, dict), value, where, "an object")
    hints = _hints(wanted)
    unknown = value.keys() - hints.keys()
    _checked(not unknown, value, where, f"without {', '.join(sorted(unknown))}")
    missing = _required(wanted) - value.keys()
    _checked(not missing, value, where, f"an object with {', '.join(sorted(missing))}, too")
    return wanted(**{name: decode(hints[name], part, f"{where}.{name}") for name, part in value.items()})


@cache
def _required(wanted: Any) -> frozenset[str]:
    """The fields without a default."""
    return frozenset(one.name for one in inspect.signature(wanted).parameters.values() if one.default is inspect.Parameter.empty)


@cache
def _hints(wanted: Any) -> dict[str, Any]:
    return typing.get_type_hints(wanted)


def _checked(good: bool, value: Any, where: str, allowed: str) -> Any:
    if not good:
        raise Malformed(f"{where} is {value!r:.80}, wanted is {allowed}")
    return value
