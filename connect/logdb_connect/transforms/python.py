"""A transform that calls a function of Python."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey
from logdb_connect.data import ConnectRecord
from logdb_connect.errors import ConfigError, DataError
from logdb_connect.plugin import Transform


def function_of(name: str, text: str) -> Callable[..., Any]:
    """The function that ``module:function`` means.

    Raises:
        ConfigError: There is none, or its module cannot be imported.
    """
    module, colon, attribute = text.partition(":")
    fault = "must be module:function"
    if colon and module and attribute:
        try:
            found: Any = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except ImportError as error:
            fault = f"cannot be imported: {error}"
        except AttributeError as error:
            fault = str(error)
        else:
            if callable(found):
                return found  # type: ignore[no-any-return]
            fault = f"is {type(found).__name__}, not a function"
    raise ConfigError(name, f"Invalid value {text} for configuration {name}: {fault}")


class ApplyFunction(Transform):
    """Calls ``function(record)``. It returns the record that replaces this one, or None to drop it.

    The function must leave the record that it gets unchanged: ``record.replace(…)`` makes another one.
    """

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("function", "STRING", REQUIRED, "module:function. It takes a record; it returns a record, or None to drop it.", "HIGH")
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        self._text = config["function"]
        self._function = function_of("function", self._text)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        made = self._function(record)
        if made is not None and not isinstance(made, ConnectRecord):
            raise DataError(f"{self._text} must return a record or None, not {type(made).__name__}")
        return made
