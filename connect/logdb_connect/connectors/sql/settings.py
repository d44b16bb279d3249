"""What sink and source do with their settings alike."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from logdb_connect.connectors.sql.connection import reason
from logdb_connect.errors import ConnectError


def zone_fault(config: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with ``db.timezone``."""
    try:
        ZoneInfo(config["db.timezone"])
    except (OSError, ValueError, LookupError):
        return {"db.timezone": f"There is no time zone {config['db.timezone']}"}
    return {}


def check_offsets(offsets: Mapping[str, Any], partition: Collection[str], numbers: Collection[str]) -> None:
    """Check offsets that an administrator sets.

    Args:
        offsets: By source partition, as JSON.
        partition: The keys that a source partition has one of.
        numbers: The keys of an offset whose values are numbers.

    Raises:
        ConnectError: They are not of this shape.
    """
    for key, offset in offsets.items():
        if not set(json.loads(key)) & set(partition):
            raise ConnectError(f"The partition {key} must have the key {' or '.join(partition)}")
        for name, value in (offset or {}).items():
            if name in numbers and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConnectError(f"The offset {name} of {key} must be a whole number, not {value}")


def connected(engine: Engine, config: Mapping[str, Any], wait: Callable[[float], object]) -> None:
    """Connect once, with as many attempts as the settings allow.

    Raises:
        ConnectError: None succeeded.
    """
    attempts: int = config["connection.attempts"]
    for attempt in range(1, attempts + 1):
        try:
            engine.connect().close()
        except DBAPIError as error:
            if attempt == attempts:
                url = engine.url.render_as_string()
                raise ConnectError(f"No connection to {url} after {attempts} attempts (connection.attempts): {reason(error)}") from error
            wait(config["connection.backoff.ms"] / 1000)
        else:
            return
