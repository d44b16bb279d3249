"""The tables of docs/reference/connectors.md: the properties of each connector, made of its ``config_def``.

``python tests/support/connector_tables.py`` writes them anew, between the marks ``<!-- CLASS -->`` and ``<!-- end -->``.
"""

import importlib
import re
from pathlib import Path
from typing import Any

from logdb_connect.catalogue import PLUGINS
from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey
from logdb_connect.connectors.objects.settings import FORMAT, PARTITIONER, ROTATION, STORE
from logdb_connect.spark.settings import RUNNER

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "connectors.md"
_PART = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SHARED = {
    "object-stores": STORE,
    "object-formats": FORMAT,
    "object-rotation": ROTATION,
    "object-partitioners": PARTITIONER,
    "spark": RUNNER,
}


def connectors() -> dict[str, Any]:
    """The connectors of the catalogue, by the names of their classes."""
    targets = [each.target.partition(":") for each in PLUGINS if each.kind in {"source", "sink"}]
    return {name: getattr(importlib.import_module(module), name) for module, _, name in targets}


def written(page: str) -> str:
    """The page with its tables made anew."""
    return _PART.sub(lambda part: f"{part[1]}{_table(_definition(part[2]))}\n{part[3]}", page)


def marks(page: str) -> list[str]:
    """What the page has tables of."""
    return [part[2] for part in _PART.finditer(page)]


def _definition(mark: str) -> list[ConfigKey]:
    if mark in _SHARED:
        return list(_SHARED[mark])
    definition: ConfigDef = connectors()[mark].config_def
    shared = {key.name for part in (_SHARED.values() if mark.startswith("ObjectStore") else [RUNNER]) for key in part}
    return [key for key in definition if key.name not in shared]


def _table(keys: list[ConfigKey]) -> str:
    rows = [f"| `{key.name}` | {key.type.lower()} | {_default(key)} | {_meaning(key)} |" for key in keys]
    return "\n".join(["| property | type | default | meaning |", "|---|---|---|---|", *rows])


def _default(key: ConfigKey) -> str:
    match key.default:
        case default if default is REQUIRED:
            return "required"
        case None | "" | []:
            return ""
        case bool():
            return f"`{str(key.default).lower()}`"
        case "|":
            return "a vertical bar"
        case "\n":
            return "a line feed"
        case str() if "." in key.default and key.type == "CLASS":
            return f"`{key.default.rpartition('.')[2]}`"
        case list():
            return f"`{','.join(key.default)}`"
    return f"`{key.default}`"


def _meaning(key: ConfigKey) -> str:
    allowed = f" One of {', '.join(f'`{each}`' for each in key.values if each)}." if key.values else ""
    text = key.documentation.rstrip(".").replace("|", "vertical bar").replace("<", "&lt;")
    return f"{text}.{allowed}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
