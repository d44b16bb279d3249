"""Common requests with each field wrong in turn: the answers of logdb and of a Kafka are those of ``request_fields.csv``.

Each difference is a decision in docs/reference/kafka.md.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logdb.testing
from benches.peers.kafka import broker as kafka
from logdb.codec.schema import Array, Struct
from logdb_kafka_api.apis import APIS
from support.kafka_wire import KEYS
from support.request_fields import CASES, Peer

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kafka.md"
with Path(__file__).with_name("request_fields.csv").open(encoding="utf-8", newline="") as file:
    HEAD, *ROWS = csv.reader(file)
KAFKA, LOGDB = HEAD.index("Kafka"), HEAD.index("logdb")


_FIRST_OF_OURS = 100
"""From this tag on, tagged fields are logdb's own (``logdb.codec.messages``)."""


def fields_of(struct: Struct, version: int, before: str = "") -> Iterator[str]:
    """The paths of Kafka's fields in a message."""
    for field in struct._fields:
        if version in field.versions and (field.tag is None or field.tag < _FIRST_OF_OURS):
            if not isinstance(field.kind, Struct):
                yield f"{before}{field.name}"
            inner = field.kind._element if isinstance(field.kind, Array) else field.kind
            if isinstance(inner, Struct):
                yield from fields_of(inner, version, f"{before}{field.name}.")


def fields_in(path: str, value: Any) -> Iterator[str]:
    """A path, and those of the fields in its value."""
    yield path
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            for name, inner in one.items():
                yield from fields_in(f"{path}.{name}", inner)


def test_each_field_has_a_row():
    fields = {(case.api, path) for case in CASES for path in fields_of(APIS[KEYS[case.api]].request._struct, case.version)}
    wrong = {(case.api, path) for case in CASES if case.field for path in fields_in(case.field, case.value)}
    assert fields - wrong == set()


def answered(address):
    """The rows that the answers of a broker make, without the other one's."""
    answers = Peer(address).answers()
    return [[case.row, case.name, answers[case.number]] for case in CASES]


def differing(found, column):
    """Rows that are not as the table has them."""
    assert len(found) == len(ROWS)
    return [(new, row[column]) for new, row in zip(found, ROWS, strict=True) if new != [*row[:2], row[column]]]


def test_logdb_answers_as_the_table_says():
    with logdb.testing.broker() as broker:
        assert differing(answered(broker.bootstrap_servers), LOGDB) == []


@pytest.mark.foreign
def test_kafka_answers_as_the_table_says(tmp_path):
    if reason := kafka.missing():
        pytest.skip(reason)
    with kafka.broker(tmp_path / "kafka", heap=kafka.SMALL_HEAP) as address:
        assert differing(answered(address), KAFKA) == []


def test_each_difference_is_a_row_of_the_page():
    section = PAGE.read_text(encoding="utf-8").split("## Fields of requests")[1].split("\n## ")[0]
    written = re.findall(r"^\| (\w+) \| `([\w.]+)`", section, re.MULTILINE)
    assert len(written) == len(set(written))
    assert set(written) == {(row.split()[0], field.split(" = ")[0]) for row, field, *answers in ROWS if len(set(answers)) > 1}
