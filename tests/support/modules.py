"""All classes of logdb and its add-ons, found by importing every module; and values of them, made by their annotations."""

import collections.abc
import enum
import functools
import importlib
import inspect
import pkgutil
import types
import typing

import msgspec

PACKAGES = ("logdb", "logdb_http_api", "logdb_kafka_api", "logdb_replication", "logdb_spark_source")


class NoSample(Exception):
    """Values of the type are not made by their annotations."""


@functools.cache
def classes() -> list[type]:
    """Every class that a module of the packages defines, in order."""
    found = {}
    for package in map(importlib.import_module, PACKAGES):
        names = [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
        for module in map(importlib.import_module, [package.__name__, *(name for name in names if not name.endswith("__main__"))]):
            here = [value for value in vars(module).values() if inspect.isclass(value)]
            found |= dict.fromkeys(value for value in here if value.__module__.partition(".")[0] in PACKAGES)
    return sorted(found, key=lambda kind: (kind.__module__, kind.__qualname__))


_PLAIN = {int: 7, float: 1.5, str: "text", bytes: b"bytes", bool: True, type(None): None, object: "any", typing.Any: "any", range: range(3)}
_MANY = {list: list, tuple: tuple, set: set, frozenset: frozenset} | dict.fromkeys(
    (collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection), tuple
)


def sample(hint: typing.Any) -> typing.Any:
    """A value of that type; raises NoSample where it is something else than data."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin in (typing.Annotated, typing.ClassVar):
        return sample(parts[0])
    if origin is typing.Literal:
        return parts[0]
    if origin in (typing.Union, types.UnionType):
        return sample(next((part for part in parts if part is not type(None)), None))
    if origin is tuple and parts[-1:] != (Ellipsis,):
        return tuple(map(sample, parts))
    if origin in _MANY:
        return _MANY[origin]([sample(parts[0])])
    if origin in (dict, collections.abc.Mapping):
        return {sample(parts[0]): sample(parts[1])}
    if isinstance(hint, typing.NewType):
        return sample(hint.__supertype__)
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return next(iter(hint))
    if inspect.isclass(hint) and (fields := fields_of(hint)) is not None:
        return hint(**{name: sample(kind) for name, kind in fields.items()})
    raise NoSample(repr(hint))


def fields_of(kind: type) -> dict[str, typing.Any] | None:
    """The types of its fields, if it is a named tuple, a dataclass or a struct."""
    if hasattr(kind, "_fields") and issubclass(kind, tuple):
        names = kind._fields
    elif hasattr(kind, "__dataclass_fields__"):
        names = tuple(name for name, field in kind.__dataclass_fields__.items() if field.init)
    elif issubclass(kind, msgspec.Struct):
        names = kind.__struct_fields__
    else:
        return None
    try:
        hints = typing.get_type_hints(kind)
    except NameError:  # imported for type checkers alone
        try:
            hints = typing.get_type_hints(kind, localns={one.__name__: one for one in classes()})
        except NameError as error:
            raise NoSample(str(error)) from None
    return {name: hints[name] for name in names}


def error_of(kind: type[BaseException]) -> BaseException:
    """An error whose arguments follow its annotations."""
    if not inspect.isfunction(kind.__init__):  # Python's own
        return kind("what happened")
    parameters = inspect.signature(kind).parameters.values()
    hints = typing.get_type_hints(kind.__init__)
    plain = [one for one in parameters if one.kind is not one.KEYWORD_ONLY]
    named = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    return kind(*(sample(hints[one.name]) for one in plain), **{one.name: sample(hints[one.name]) for one in named})
