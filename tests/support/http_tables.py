"""The tables of docs/reference/http.md, made of the routes of the door.

``python tests/support/http_tables.py`` writes them anew, between the page's marks: ``<!-- routes: MODULE… -->`` and ``<!-- end -->``.
A test sees that this would change nothing.
"""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import logdb
from logdb.access.access_control import AccessControl
from logdb_http_api.door.door import HttpDoor
from logdb_http_api.door.routing import Route

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
_PART = re.compile(r"(<!-- routes: ([\w. ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def all_routes() -> Sequence[Route]:
    """Of a door that is not open."""
    with tempfile.TemporaryDirectory() as path, logdb.open(path) as db:
        return HttpDoor(AccessControl(db._session), "127.0.0.1:0").routes


def modules(page: str) -> list[str]:
    """The modules whose routes the page has tables of."""
    return [module for part in _PART.finditer(page) for module in part[2].split()]


def written(page: str, routes: Sequence[Route]) -> str:
    """The page with its tables made anew."""

    def part(found: "re.Match[str]") -> str:
        return f"{found[1]}{routes_table(routes, found[2].split())}\n{found[3]}"

    return _PART.sub(part, page)


def routes_table(routes: Sequence[Route], names: Sequence[str]) -> str:
    rows = [
        f"| {route.method} | `{route.path}` | {route.summary} | {', '.join(route.needs) or '-'} |"
        for name in names
        for route in routes
        if route.module == name
    ]
    return "\n".join(["| method | path | what | needs |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), all_routes()), encoding="utf-8")
