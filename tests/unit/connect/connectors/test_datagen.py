import json
import re

import pytest

from logdb_connect.connectors.datagen import QUICKSTARTS, DatagenConnector
from logdb_connect.data import Schema
from logdb_connect.logical import check
from support.connect_tasks import Source

ALL = {
    "type": "record",
    "name": "all",
    "fields": [
        {"name": "n", "type": {"type": "int", "arg.properties": {"iteration": {"start": 5, "restart": 8}}}},
        {"name": "word", "type": {"type": "string", "arg.properties": {"regex": "(ab|cd)-[x-z0]{2,3}\\d+\\.?"}}},
        {"name": "some", "type": ["null", "boolean"]},
        {"name": "list", "type": {"type": "array", "items": "long", "arg.properties": {"length": 2}}},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {"name": "raw", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "f", "type": {"type": "float", "arg.properties": {"range": {"min": -1, "max": 1}}}},
        {"name": "choice", "type": {"type": "long", "arg.properties": {"options": [7, 9]}}},
        {"name": "fixed", "type": {"type": "fixed", "name": "four", "size": 4}},
    ],
}


def source(offsets=None, **more):
    given = {"kafka.topic": "t", "max.interval": "0"} | {key.replace("_", "."): value for key, value in more.items()}
    return Source(DatagenConnector, given, offsets)


@pytest.mark.parametrize("name", QUICKSTARTS)
def test_quickstarts_make_records_of_their_schemas(name):
    records = source(quickstart=name, iterations="50").poll()
    assert len(records) == 50
    key, _ = QUICKSTARTS[name]
    for record in records:
        check(record.value_schema, record.value)
        assert record.key == record.value[key]
        check(record.key_schema, record.key)
    assert records[0].value_schema.name.startswith("ksql.")


def test_a_schema_of_ones_own():
    records = source(schema_string=json.dumps(ALL), iterations="500").poll()
    assert [each.value["n"] for each in records[:5]] == [5, 6, 7, 5, 6]
    for record in records:
        check(record.value_schema, record.value)
        assert re.fullmatch(r"(ab|cd)-[x-z0]{2,3}\d+\.?", record.value["word"])
        assert len(record.value["list"]) == 2
        assert -1 <= record.value["f"] <= 1
    assert {each.value["choice"] for each in records} == {7, 9}
    assert {each.value["some"] for each in records} == {None, True, False}
    assert records[0].key is None


def test_a_restart_goes_on_and_a_seed_decides():
    whole = source(quickstart="users", iterations="30").drain()
    offsets, values = [], []
    for most in range(3, 31, 3):
        one = source(offsets, quickstart="users", iterations=str(most))
        values += one.drain()
    assert values == whole
    assert len(whole) == 30
    assert source(quickstart="users", iterations="30", random_seed="1").drain() != whole


def test_tasks_make_different_records():
    connector = DatagenConnector()
    connector.start({"kafka.topic": "t", "max.interval": "0", "quickstart": "users", "iterations": "20"})
    found = []
    for config in connector.task_configs(2):
        one = source(quickstart="users")
        one.task.start(config)
        found.append(one.drain())
    assert found[0] != found[1]


def test_intervals():
    one = source(quickstart="users", max_interval="500", iterations="3")
    waits = []
    one.wait = waits.append
    assert [len(one.step()) for _ in range(4)] == [1, 1, 1, 0]
    assert all(0 <= each <= 0.5 for each in waits)


def test_key_field_and_file(tmp_path):
    path = tmp_path / "a.avsc"
    path.write_text(json.dumps(ALL))
    [record, *_] = source(schema_filename=str(path), schema_keyfield="n").poll()
    assert (record.key, record.key_schema) == (5, Schema(type="int32"))


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({}, "quickstart"),
        ({"quickstart": "users", "schema.string": "{}"}, "schema.string"),
        ({"schema.string": "{"}, "schema.string"),
        ({"schema.string": '"int"'}, "schema.string"),
        ({"schema.string": '{"type": "record", "name": "x", "fields": [{"name": "a", "type": "nothing"}]}'}, "schema.string"),
        ({"schema.string": json.dumps(ALL), "schema.keyfield": "nobody"}, "schema.string"),
        ({"schema.string": json.dumps(ALL).replace("(ab|cd)", "(a(b))")}, "schema.string"),
        ({"schema.filename": "/no/such"}, "schema.filename"),
    ],
)
def test_validation_names_the_property(properties, name):
    assert list(DatagenConnector().validate({"kafka.topic": "t"} | properties)) == [name]
