"""Requests, their answers, and what else a session's server and client tell each other, as JSON.

    request, named tuple    an object of its fields; those that have a default may be left out.  Of a request an unknown field is refused by
                            name; of an answer it is ignored: a server of a later version may say more
    bytes                   base64
    mapping                 a list of pairs, as its keys need not be strings
    int                     a whole number of 64 bits
    object                  a word, a number, true, false or null

A type is decoded in two steps: msgspec decodes what ``form`` says, within the bounds of the types, and what it has decoded is made the
value.  How large and how deep a document may be is the door's to say.

Threading: any thread.  msgspec keeps what it knows of a struct type at the type, and fills it in without a lock when the type is first
used.  Two threads that do this at once crash the process.  So ``_making`` is held while a decoder is made.  The decoder completes the
type and all types in it.  A type reaches msgspec only after that.
"""

import dataclasses
import operator
import threading
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, reduce
from math import isfinite
from typing import Annotated, Any, NamedTuple

import msgspec

from logdb.threads import renewed

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_PLAIN: dict[Any, Any] = {int: Int64, float: Int64 | float, object: str | Int64 | float | bool | None}
_MANY: dict[Any, Any] = {tuple: tuple, list: list, Sequence: tuple, Iterable: tuple, frozenset: frozenset}


def encode(value: Any) -> bytes:
    """Raises TypeError, ValueError where a part of it is nothing that JSON has."""
    return _encoder.encode(_plain(value))


def decode(kind: Any, data: "bytes | bytearray | memoryview") -> Any:
    """The value of that type that ``encode`` was given.

    Raises:
        msgspec.ValidationError: It is none; names the place and what must be there.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: It is no JSON.
    """
    decoder, make = _decoder(kind, strict=True)
    return make(decoder.decode(data))


def decode_answer(kind: Any, data: "bytes | bytearray | memoryview") -> Any:
    """As ``decode``, of a server's answer: unknown fields are ignored, at any depth."""
    decoder, make = _decoder(kind, strict=False)
    return make(decoder.decode(data))


def convert(kind: Any, value: Any) -> Any:
    """As ``decode``, of a document that is parsed already."""
    decoder, make = _decoder(kind, strict=True)
    return make(msgspec.convert(value, decoder.type))


class Form(NamedTuple):
    """How a type is decoded: the type that msgspec decodes, and what makes the value of that."""

    wanted: Any
    make: Callable[[Any], Any]


@cache
def form(kind: Any, *, strict: bool = True) -> Form:
    """The form of a type; ``strict``: unknown fields are refused."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in _PLAIN:
        return Form(_PLAIN[kind], _as_is)
    if isinstance(kind, type) and (hasattr(kind, "_field_defaults") or dataclasses.is_dataclass(kind)):
        return _form_of_fields(kind, strict=strict)
    if origin in (typing.Union, types.UnionType):
        if sum(hasattr(part, "_field_defaults") for part in parts) > 1:
            return _form_of_either(parts, strict=strict)
        forms = [form(part, strict=strict) for part in parts]
        wanted: Any = reduce(operator.or_, (one.wanted for one in forms))
        (make,) = {one.make for one in forms} - {_as_is} or {_as_is}  # msgspec tells no two of them apart
        return Form(wanted, _as_is if make is _as_is else lambda value: None if value is None else make(value))
    if origin in (dict, Mapping):
        pair = form(tuple[parts], strict=strict)  # type: ignore[valid-type]
        return Form(list[pair.wanted], lambda value: dict(map(pair.make, value)))  # type: ignore[name-defined]
    if origin is tuple and parts[-1:] != (Ellipsis,):
        forms = [form(part, strict=strict) for part in parts]
        makes = [one.make for one in forms]
        wanted = tuple.__class_getitem__(tuple(one.wanted for one in forms))
        return Form(wanted, lambda value: tuple(make(part) for make, part in zip(makes, value, strict=True)))
    if origin in _MANY:
        item, many = form(parts[0], strict=strict), _MANY[origin]
        return Form(list[item.wanted], many if item.make is _as_is else lambda value: many(map(item.make, value)))  # type: ignore[name-defined]
    return Form(kind, _as_is)


def _form_of_fields(kind: Any, *, strict: bool) -> Form:
    """The form of a named tuple or a dataclass."""
    hints, text = typing.get_type_hints(kind), kind.__doc__
    if hasattr(kind, "_field_defaults"):
        defaults, names = kind._field_defaults, kind._fields
    else:
        names = [field.name for field in dataclasses.fields(kind)]
        defaults = {field.name: default for field in dataclasses.fields(kind) if (default := _default(field)) is not dataclasses.MISSING}
        text = None if text == kind.__name__ else text
    forms = {name: form(hints[name], strict=strict) for name in names}
    makes = [(name, one.make) for name, one in forms.items()]
    fields = [(name, one.wanted, *([_decoded_default(defaults[name])] if name in defaults else ())) for name, one in forms.items()]
    wanted = msgspec.defstruct(
        kind.__name__, fields, forbid_unknown_fields=strict, kw_only=True, module=kind.__module__, namespace={"__doc__": text}
    )
    return Form(wanted, lambda value: kind(**{name: make(getattr(value, name)) for name, make in makes}))


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _decoded_default(value: Any) -> Any:
    """A default as msgspec decodes it: a mapping is a list of pairs."""
    return [] if value == {} else value


def _form_of_either(kinds: Sequence[Any], *, strict: bool) -> Form:
    """The form of several named tuples: the first one whose fields without a default are all there."""
    forms: dict[str, list[Form]] = {}
    for kind in kinds:
        hints = typing.get_type_hints(kind)
        for name in kind._fields:
            forms.setdefault(name, []).append(form(hints[name], strict=strict))
    fields = [
        (name, reduce(operator.or_, (one.wanted for one in found), msgspec.UnsetType), msgspec.UNSET) for name, found in forms.items()
    ]
    name = "Or".join(kind.__name__ for kind in kinds)
    wanted = msgspec.defstruct(name, fields, forbid_unknown_fields=strict, kw_only=True)

    def make(value: Any) -> Any:
        there = {name for name in forms if getattr(value, name) is not msgspec.UNSET}
        for kind in kinds:
            if there.issuperset(set(kind._fields) - kind._field_defaults.keys()):
                return kind(**{name: forms[name][0].make(getattr(value, name)) for name in kind._fields if name in there})
        raise msgspec.ValidationError(f"Object has not all fields of one of {', '.join(kind.__name__ for kind in kinds)}")

    return Form(wanted, make)


@cache
def _decoder(kind: Any, *, strict: bool) -> "tuple[msgspec.json.Decoder[Any], Callable[[Any], Any]]":
    with _making:
        wanted, make = form(kind, strict=strict)
        return msgspec.json.Decoder(wanted), make


def _as_is(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    """What msgspec encodes as said above."""
    if type(value) in _ENCODED:
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _plain(part) for name, part in zip(value._fields, value, strict=True)}
    if dataclasses.is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return [(_plain(key), _plain(part)) for key, part in value.items()]
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} is no number of JSON")
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, typing.SupportsIndex):  # numbers of numpy
        return operator.index(value)
    return [_plain(part) for part in value]


_making = renewed(threading.RLock())
_ENCODED = {str, int, bool, bytes, bytearray, memoryview, type(None)}
_encoder = msgspec.json.Encoder()
