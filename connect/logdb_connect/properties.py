"""Property files of workers and connectors, in Java's format; and connectors as JSON files (KIP-1001's form for standalone workers)."""

import json
from typing import Any

from logdb.cli.terminal import properties
from logdb_connect.errors import ConfigError, ConnectError


def read(path: str) -> dict[str, str]:
    """The properties of a file.

    Raises:
        ConnectError: The file is missing, or has another format.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return properties.trimmed(properties.parse(file.read()))
    except (OSError, ValueError) as error:
        raise ConnectError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def read_connector(path: str) -> dict[str, str]:
    """The properties of a connector's file: Java properties, or JSON as ``POST /connectors`` takes it, or its ``config`` alone.

    Raises:
        ConnectError: The file is missing or has another format, or the connector has no name.
    """
    found = _from_json(path) if path.endswith(".json") else read(path)
    if not found.get("name"):
        raise ConfigError("name", f'{path}: Missing required configuration "name" which has no default value.')
    return found


def _from_json(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            document: Any = json.load(file)
    except (OSError, ValueError) as error:
        raise ConnectError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if isinstance(document, dict) and isinstance(document.get("config"), dict):
        document = {"name": document.get("name"), **document["config"]}
    if not isinstance(document, dict):
        raise ConnectError(f"{path}: must be a JSON object with the connector's properties")
    return {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in document.items() if value is not None}
