"""A caller's mistakes, told where they were made: which argument, what it was, what is allowed.

Knows annotations.  Does not know what a call does.  Nothing of this is on the path of a record: ``checked_call`` is for calls that
look something up, change something, or go to a server.
"""

import functools
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
"""Errors whose message says all: what was asked for is not there, or not allowed.  Where they were found is of no use to a caller."""


def checked_call(method: Callable[P, R]) -> Callable[P, R]:
    """A method whose arguments are checked by their annotations; the traceback of ``OF_THE_CALL`` ends with it.

    Raises:
        TypeError: An argument is of another type; it names it, its value, and what is allowed.
    """
    code: types.CodeType = method.__code__
    positional = code.co_varnames[: code.co_argcount]
    allowed: dict[str, tuple[type, ...]] = {}  # by name of the argument; made by the first call, for imports are to be quick

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
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


def wrong_type(name: str, value: object, kinds: tuple[type, ...]) -> TypeError:
    """What to raise where an argument is of none of these types."""
    words = " or ".join(_WORDS.get(kind, kind.__name__) for kind in kinds)
    return TypeError(f"{name}={reprlib.repr(value)}: allowed is {words}")


def explained(error: Exception, method: Callable[..., object], **given: object) -> Exception:
    """What to raise where ``method`` has met an error: one that names the argument of a wrong type, if there is one."""
    for name, value in given.items():
        if (kinds := _types(method.__annotations__.get(name))) and not _is_one(value, kinds):
            return wrong_type(name, value, kinds).with_traceback(None)
    return error


def _is_one(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, bool | str):
        return type(value) in kinds  # neither a number, nor a sequence
    return isinstance(value, kinds) or (int in kinds and hasattr(value, "__index__"))  # numpy's numbers, too


def _types(annotation: Any) -> tuple[type, ...]:
    """The types that an annotation names; none: it does not say, in a way that is not looked at, or any value is true or false."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        found = [_types(part) for part in get_args(annotation)]
        return tuple(kind for kinds in found for kind in kinds) if all(found) else ()
    kind = origin or annotation
    unsaid = not isinstance(kind, type) or kind in (bool, object) or getattr(kind, "_is_protocol", False)
    return () if unsaid else (kind,)
