"""docs/reference/kafka.md: the tables of APIs and of error codes are the code's."""

import re
from pathlib import Path

from logdb_kafka_api.apis import APIS
from logdb_kafka_api.errors import _NO_COORDINATOR, CODES, Code

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "kafka.md").read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    (table,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()[2:]]


def test_the_apis_are_those_that_are_advertised() -> None:
    written = [(name, int(key), versions) for name, key, versions, _ in rows("apis")]
    found = []
    for key in APIS:
        versions = APIS[key].request.versions
        found.append((APIS[key].name, key, f"{versions[0]}–{versions[-1]}" if len(versions) > 1 else str(versions[0])))
    assert written == found


def test_the_errors_are_those_of_the_table() -> None:
    written = [(name, int(number), set(re.findall(r"`(\w+)`", errors))) for name, number, errors in rows("errors")]
    found = [(code.name, code.value, {kind.__name__ for kind, become in CODES.items() if become is code}) for code in Code]
    assert written == found


def test_the_codes_that_no_coordinator_answers_are_named() -> None:
    (named,) = re.findall(r"COORDINATOR_NOT_AVAILABLE instead of (.*?):", PAGE, re.DOTALL)
    assert re.findall(r"[A-Z_]+", named) == [code.name for code in _NO_COORDINATOR]
