"""A caller's mistakes: raised by the method called, with the argument's name, its value, and what is allowed.

``checked_call`` checks arguments by their annotations; it is for calls that look up, change, or go to a server, never for a call
per record.
"""

import functools
import inspect
import os
import reprlib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin

from logdb import errors

P = ParamSpec("P")
R = TypeVar("R")

_WORDS: Mapping[type, str] = {
    types.NoneType: "None",
    bytes: "bytes",
    int: "a whole number",
    str: "a str",
    os.PathLike: "a path",
    Callable: "a callable",  # type: ignore[dict-item]
    Iterable: "an iterable",
    Mapping: "a mapping",
    Sequence: "a sequence",
}

OF_THE_CALL = (
    errors.UnknownTopic,
    errors.UnknownPartition,
    errors.TopicExists,
    errors.InvalidTopic,
    errors.InvalidConfig,
    errors.InvalidPartitions,
    errors.PolicyViolation,
    errors.CodecMissing,
    errors.OffsetOutOfRange,
    errors.UnexpectedOffset,
    errors.InvalidTransactionState,
    errors.UnknownGroup,
    errors.InvalidGroup,
    errors.GroupNotEmpty,
    errors.NotAssigned,
    errors.TargetNotEmpty,
    errors.TargetInside,
    errors.Closed,
    errors.ReadOnly,
    errors.LocalOnly,
    errors.Forked,
    errors.DirectoryLocked,
    errors.NotAuthorized,
    errors.NotADatabase,
)
"""Errors whose message explains the mistake completely, so that the traceback inside the library is of no use to a caller."""


def checked_call(method: Callable[P, R]) -> Callable[P, R]:
    """A method whose arguments are checked by their annotations; the traceback of an ``OF_THE_CALL`` error ends with it.

    Raises:
        TypeError: An argument has another type; the message has its name, its value, and the allowed types.
    """
    code: types.CodeType = method.__code__
    positional = code.co_varnames[: code.co_argcount]
    allowed: dict[str, tuple[type, ...]] = {}  # by argument; filled by the first call, to keep imports quick
    options = _options(code)

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if options is not None and not kwargs.keys() <= options:
            raise _unknown_option(method, kwargs, options)
        if not allowed:
            allowed.update({name: _types(annotation) for name, annotation in method.__annotations__.items()})
        try:
            for name, value in (*zip(positional, args, strict=False), *kwargs.items()):
                if (kinds := allowed.get(name, ())) and not _is_one(value, kinds):
                    raise wrong_type(name, value, kinds)
            return method(*args, **kwargs)
        except OF_THE_CALL as error:
            raise error.with_traceback(None) from error.__cause__

    return call


def checked_options(method: Callable[P, R]) -> Callable[P, R]:
    """A method that refuses an unknown option with the list of those that it has; ``checked_call`` does that, too."""
    options = _options(method.__code__) or frozenset()

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not kwargs.keys() <= options:
            raise _unknown_option(method, kwargs, options)
        return method(*args, **kwargs)

    return call


def _options(code: types.CodeType) -> frozenset[str] | None:
    """The names that a method takes; None: any."""
    if code.co_flags & inspect.CO_VARKEYWORDS:
        return None
    return frozenset(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])


def _unknown_option(method: Callable[..., object], given: Iterable[str], known: frozenset[str]) -> TypeError:
    unknown = ", ".join(sorted(set(given) - known))
    return TypeError(f"{method.__name__}() has no option {unknown}; options are {', '.join(sorted(known))}")


def wrong_type(name: str, value: object, kinds: tuple[type, ...]) -> TypeError:
    """The error for an argument that has none of these types."""
    words = " or ".join(_WORDS.get(kind, kind.__name__) for kind in kinds)
    return TypeError(f"{name}={reprlib.repr(value)}: must be {words}")


def must_be(name: str, value: object, allowed: str) -> str:
    """The message of a wrong value: ``linger_ms=-1: must be 0 to 60000``."""
    return f"{name}={value!r:.200}: must be {allowed}"


def one_of(names: Iterable[object]) -> str:
    """The names as a choice: ``a, b or c``."""
    *others, last = map(str, names)
    return f"{', '.join(others)} or {last}" if others else last


def explained(error: Exception, method: Callable[..., object], **given: object) -> Exception:
    """The error to raise after ``error`` in ``method``: that of an argument with a wrong type, if there is one."""
    for name, value in given.items():
        if (kinds := _types(method.__annotations__.get(name))) and not _is_one(value, kinds):
            return wrong_type(name, value, kinds).with_traceback(None)
    return error


def _is_one(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, bool | str):
        return type(value) in kinds  # a bool is not a number, a str is not a sequence
    return isinstance(value, kinds) or (int in kinds and hasattr(value, "__index__"))  # numpy's numbers, too


def _types(annotation: Any) -> tuple[type, ...]:
    """The types that an annotation names; empty: it does not restrict the value, or in a way that is not checked."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        found = [_types(part) for part in get_args(annotation)]
        return tuple(kind for kinds in found for kind in kinds) if all(found) else ()
    kind = origin or annotation
    unsaid = not isinstance(kind, type) or kind in (bool, object) or getattr(kind, "_is_protocol", False)
    return () if unsaid else (kind,)
