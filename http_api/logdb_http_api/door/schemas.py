"""JSON schemas of the requests and answers of routes.

A shape is a Python type, encoded as ``requests.coding`` does; or a literal like an example, for the JSON of Kafka's REST APIs.

    int, str, bool, float, None, X | Y, Literal[…], list[X]    as they are
    bytes                                                      base64
    a named tuple, a request                                   an object, by its fields
    Mapping[K, V]                                              a list of pairs
    object, Any                                                anything
    {"name": X, "comment?": Y}                                 an object; the name with ? may be left out
    {"*": X}                                                   an object with any names
    [X]                                                        a list
    OneOf(X, Y)                                                one or the other
    Number(0, 9)                                               a whole number in [0, 9]
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

import msgspec

from logdb.requests import coding
from logdb.requests.request import Request as SessionRequest

_PLAIN: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    object: {},
    Any: {},
}


class Number(NamedTuple):
    """A whole number within bounds."""

    least: int
    most: int = 2**63 - 1


class OneOf(tuple[Any, ...]):
    """One of several shapes."""

    __slots__ = ()

    def __new__(cls, *shapes: Any) -> Self:
        return super().__new__(cls, shapes)


class Parameter(NamedTuple):
    """A parameter in a request's query or headers."""

    name: str
    shape: Any
    said: str
    required: bool = False
    where: Literal["query", "header"] = "query"


class Body(NamedTuple):
    """A request's body: shapes by content type."""

    content: Mapping[str, Any]
    required: bool = True


class Schemas:
    """Schemas of shapes; a named one is written once, in ``named``, and referred to."""

    def __init__(self) -> None:
        self.named: dict[str, dict[str, Any]] = {}

    def of(self, shape: Any) -> dict[str, Any]:
        """The schema of a shape."""
        if isinstance(shape, Number):
            return {"type": "integer", "minimum": shape.least, "maximum": shape.most}
        if isinstance(shape, OneOf):
            return {"anyOf": [self.of(one) for one in shape]}
        if isinstance(shape, dict):
            return self._object(shape)
        if isinstance(shape, list):
            return {"type": "array", "items": self.of(shape[0])}
        if shape in _PLAIN:
            return _PLAIN[shape]
        return self._of_type(shape)

    def _object(self, shape: Mapping[str, Any]) -> dict[str, Any]:
        if shape.keys() == {"*"}:
            return {"type": "object", "additionalProperties": self.of(shape["*"])}
        properties = {name.removesuffix("?"): self.of(part) for name, part in shape.items()}
        required = [name for name in shape if not name.endswith("?")]
        return {"type": "object", "properties": properties, "additionalProperties": False} | ({"required": required} if required else {})

    def _of_type(self, kind: Any) -> dict[str, Any]:
        """The schema of a type, as ``requests.coding`` encodes it; types with fields are named, except requests."""
        (schema,), named = msgspec.json.schema_components([coding.form(kind).wanted], ref_template="#/components/schemas/{name}")
        if isinstance(kind, type) and issubclass(kind, SessionRequest):
            schema = named.pop(kind.__name__)
        for name, one in named.items():
            if self.named.setdefault(name, one) != one:
                raise TypeError(f"two types of the HTTP listener are named {name}: each must have a name of its own")
        return schema
