"""The tables of docs/reference/connect.md, made of the definitions: ``python tests/support/connect_tables.py`` writes them anew."""

import re
import sys
from pathlib import Path

from logdb_connect.config import REQUIRED, ConfigDef, definition
from logdb_connect.rest.metrics import METRICS
from logdb_connect.runtime import settings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "connect.md"


def _without(table: ConfigDef, *others: ConfigDef) -> list[str]:
    rows = ["| property | default | meaning |", "|---|---|---|"]
    for key in table:
        if not any(key.name in other for other in others):
            default = "required" if key.default is REQUIRED else definition(key)["default_value"]
            shown = "" if default in (None, "") else default if default == "required" else f"`{default}`"
            rows.append(f"| `{key.name}` | {shown} | {key.documentation} |")
    return rows


def tables() -> dict[str, list[str]]:
    return {
        "worker": _without(settings.WORKER),
        "standalone": _without(settings.STANDALONE, settings.WORKER),
        "distributed": _without(settings.DISTRIBUTED, settings.WORKER),
        "connector": _without(settings.CONNECTOR),
        "source": _without(settings.SOURCE, settings.CONNECTOR),
        "sink": _without(settings.SINK, settings.CONNECTOR),
        "metrics": [
            "| metric | type | meaning |",
            "|---|---|---|",
            *(f"| `{name}` | {kind} | {text} |" for name, (kind, text) in METRICS.items()),
        ],
    }


def written(text: str) -> str:
    """The page with its tables."""
    for name, rows in tables().items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        text = re.sub(
            rf"{begin}.*?{end}", lambda _, rows=rows, begin=begin, end=end: "\n".join([begin, "", *rows, "", end]), text, flags=re.DOTALL
        )
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    sys.exit(0)
