"""What sink and source do with their settings alike."""

from collections.abc import Callable, Mapping
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
