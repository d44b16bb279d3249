"""Hypothesis strategies for the types that calls of a session take and return."""

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INTS = st.integers(-(2**63), 2**63 - 1)
PLAIN = {
    str: TEXTS, int: INTS, bool: st.booleans(), bytes: st.binary(max_size=8), type(None): st.none(), None: st.none(),
    float: st.floats(allow_nan=False, allow_infinity=False), object: st.one_of(TEXTS, INTS, st.booleans(), st.none()),
}  # fmt: skip


def values(wanted: Any) -> st.SearchStrategy[Any]:
    """Values of a type that calls use."""
    return values_with(wanted, INTS, TEXTS)


def values_with(wanted: Any, ints: st.SearchStrategy[int], texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Values of a type, made of certain numbers and words."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted in PLAIN:
        return {int: ints, str: texts}.get(wanted, PLAIN[wanted])
    inner = [values_with(part, ints, texts) for part in parts if part is not Ellipsis and origin is not typing.Literal]
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*inner)
    if origin is typing.Literal:
        return st.sampled_from(parts)
    if origin in (dict, Mapping):
        return st.dictionaries(*inner, max_size=3)
    if origin is tuple and parts[-1:] != (Ellipsis,):
        return st.tuples(*inner)
    if origin in (list, tuple, Sequence, Iterable):
        made = st.lists(inner[0], max_size=3)
        return made if origin is list else made.map(tuple)
    hints = typing.get_type_hints(wanted)
    return st.builds(wanted, **{name: values_with(hint, ints, texts) for name, hint in hints.items()})
