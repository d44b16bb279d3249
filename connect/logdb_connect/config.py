"""Properties of workers, connectors and their parts: types, defaults, checks (``org.apache.kafka.common.config.ConfigDef``).

A ``ConfigDef`` is a table.  ``parse`` gives typed values, or raises the first ``ConfigError``.  ``validate`` gives an entry for each
property, with all of its errors, in the shape that ``PUT /connector-plugins/{p}/config/validate`` answers.  Messages are Kafka's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Self

from logdb_connect.errors import ConfigError

Type = Literal["STRING", "INT", "LONG", "DOUBLE", "BOOLEAN", "LIST", "CLASS", "PASSWORD"]
Importance = Literal["HIGH", "MEDIUM", "LOW"]
Check = Callable[[Any], str | None]
"""The error of a parsed value, or None: ``lambda port: "must be positive" if port < 1 else None``."""


class _Missing(Enum):
    REQUIRED = "a property without default"


REQUIRED = _Missing.REQUIRED
"""The default of a property that must be given."""

_SIZES = {"INT": 31, "LONG": 63}
_BOOLEANS = {"true": True, "false": False}


class Password(str):
    """A value that is never shown, nor logged; ``value`` reveals it."""

    __slots__ = ("value",)
    value: str

    def __new__(cls, value: str) -> Self:
        hidden = super().__new__(cls, "[hidden]")
        hidden.value = value
        return hidden

    def __reduce__(self) -> tuple[type["Password"], tuple[str]]:
        return Password, (self.value,)


def revealed(text: str | None) -> str | None:
    """The value itself, of a password or of another text."""
    return text.value if isinstance(text, Password) else text


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One property.

    Attributes:
        default: Parsed; ``REQUIRED`` where there is none; None is a default, too.
        check: Of a value that has the type.
        values: All values that are allowed, if it is a choice.
        dependents: Properties that count only with some values of this one.
    """

    name: str
    type: Type
    default: Any
    documentation: str
    importance: Importance = "MEDIUM"
    check: Check | None = None
    values: Sequence[str] = ()
    group: str | None = None
    display_name: str | None = None
    dependents: Sequence[str] = ()

    def parse(self, text: Any) -> Any:
        """The value of a property's text.

        Raises:
            ConfigError: It has another type, or is not allowed.
        """
        value = None if text is None else self._typed(str(text) if not isinstance(text, Password) else text)
        fault = None
        if value is not None and self.values and not set(value if self.type == "LIST" else [value]) <= set(self.values):
            fault = f"must be {'among' if self.type == 'LIST' else 'one of'} {', '.join(self.values)}"
        elif value is not None and self.check is not None:
            fault = self.check(value)
        if fault is not None:
            raise ConfigError(self.name, f"Invalid value {value} for configuration {self.name}: {fault}")
        return value

    def _typed(self, text: str) -> Any:
        stripped = text.strip()
        try:
            match self.type:
                case "INT" | "LONG":
                    if -(1 << _SIZES[self.type]) <= (number := int(stripped)) < 1 << _SIZES[self.type]:
                        return number
                    raise ValueError
                case "DOUBLE":
                    return float(stripped)
                case "BOOLEAN":
                    return _BOOLEANS[stripped.lower()]
                case "LIST":
                    return [each.strip() for each in stripped.split(",")] if stripped else []
                case "PASSWORD":
                    return text if isinstance(text, Password) else Password(text)
                case _:
                    return stripped
        except (ValueError, KeyError):
            kind = {"BOOLEAN": "Expected value to be either true or false"}.get(self.type, f"Not a number of type {self.type}")
            raise ConfigError(self.name, f"Invalid value {text} for configuration {self.name}: {kind}") from None


class ConfigDef:
    """The properties of something, in order.  ``ConfigDef(ConfigKey(…), …) + other`` has those of both."""

    def __init__(self, *keys: ConfigKey) -> None:
        self._keys = {key.name: key for key in keys}

    def __add__(self, other: "ConfigDef") -> "ConfigDef":
        return ConfigDef(*{**self._keys, **other._keys}.values())

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def prefixed(self, prefix: str, group: str | None = None) -> "ConfigDef":
        """The same properties under ``prefix``: those of a converter, or of a transform of a connector."""
        return ConfigDef(*(ConfigKey(**{**_parts(key), "name": prefix + key.name, "group": group or key.group}) for key in self))

    def parse(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The value of each property, defaults for those that are not given.  Others in ``properties`` are left out.

        Raises:
            ConfigError: Of the first property that is missing or wrong.
        """
        return {key.name: _value(key, properties) for key in self}

    def unknown(self, properties: Iterable[str]) -> list[str]:
        """Names in ``properties`` that this table does not have, in order."""
        return sorted(set(properties) - set(self._keys))

    def validate(self, properties: Mapping[str, Any], more: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Definition, value and errors of each property, as Kafka's REST API has them.

        Args:
            more: Errors that the connector itself found, by property.
        """
        return [self._entry(key, properties, (more or {}).get(key.name)) for key in self]

    def _entry(self, key: ConfigKey, properties: Mapping[str, Any], fault: str | None) -> dict[str, Any]:
        errors, value = [fault] if fault else [], None
        try:
            value = _value(key, properties)
        except ConfigError as error:
            errors.insert(0, str(error))
            value = properties.get(key.name)
        return {
            "definition": definition(key),
            "value": {
                "name": key.name,
                "value": None if value is None else "[hidden]" if key.type == "PASSWORD" else _text(value),
                "recommended_values": list(key.values),
                "errors": errors,
                "visible": True,
            },
        }


def definition(key: ConfigKey) -> dict[str, Any]:
    """A property as ``GET /connector-plugins/{p}/config`` has it."""
    return {
        "name": key.name,
        "type": key.type,
        "required": key.default is REQUIRED,
        "default_value": None
        if key.default is REQUIRED or key.default is None
        else "[hidden]"
        if key.type == "PASSWORD"
        else _text(key.default),
        "importance": key.importance,
        "documentation": key.documentation,
        "group": key.group,
        "width": "NONE",
        "display_name": key.display_name or key.name,
        "dependents": list(key.dependents),
        "order_in_group": -1,
    }


def _parts(key: ConfigKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in ConfigKey.__slots__}


def _value(key: ConfigKey, properties: Mapping[str, Any]) -> Any:
    if (text := properties.get(key.name)) is not None:
        return key.parse(text)
    if key.default is REQUIRED:
        raise ConfigError(key.name, f'Missing required configuration "{key.name}" which has no default value.')
    return key.default


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def at_least(least: float) -> Check:
    """A check: the number is ``least`` or more."""
    return lambda value: f"Value must be at least {least}" if value < least else None
