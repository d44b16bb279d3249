"""The dlt sink loads into a DuckDB."""

import json

import duckdb
import pytest

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.errors import DataError
from support.connect_tasks import Sink, sink_record

pytest.importorskip("dlt", reason="dlt is not installed")

from logdb_connect.connectors.dlt_sink import DltSinkConnector

A = TopicPartition("shop-orders", 0)


def sink(path, store=None, **more):
    given = {
        "dlt.destination": "duckdb",
        "dlt.destination.options": json.dumps({"credentials": f"{path}/out.duckdb"}),
        "dlt.pipeline.name": "orders",
        "dlt.pipelines.dir": f"{path}/pipelines",
    }
    return Sink(DltSinkConnector, given | {key.replace("_", "."): value for key, value in more.items()}, {} if store is None else store)


def orders(*numbers):
    return [sink_record(n, {"id": n, "item": {"name": f"i{n}"}}, topic=A.topic) for n in numbers]


def rows(path):
    with duckdb.connect(f"{path}/out.duckdb") as db:
        return db.execute("SELECT id, item__name, _offset FROM logdb.shop_orders ORDER BY ALL").fetchall()


def test_records_become_rows_and_bad_ones_are_reported(tmp_path):
    one = sink(tmp_path)
    one.open(A)
    one.put([*orders(0, 1), sink_record(2, "text", topic=A.topic), sink_record(3, None, topic=A.topic)])
    one.close()
    assert rows(tmp_path) == [(0, "i0", 0), (1, "i1", 1)]
    assert [(record.offset, type(error)) for record, error in one.reported] == [(2, DataError)]
    assert one.store == {A: OffsetAndMetadata(4)}


def test_merge_puts_a_record_that_comes_again_into_its_place(tmp_path):
    for numbers in ((0, 1), (0, 1, 2)):  # the first task died before its commit
        one = sink(tmp_path, write_disposition="merge")
        one.open(A)
        one.put(orders(*numbers))
        one.task.pre_commit({})
        one.stop()
    assert rows(tmp_path) == [(n, f"i{n}", n) for n in range(3)]


def test_validation_names_the_property():
    good = {"dlt.destination": "duckdb", "dlt.pipeline.name": "p"}
    validate = DltSinkConnector().validate
    assert validate(good) == {}
    assert list(validate(good | {"dlt.destination": "nobody"})) == ["dlt.destination"]
    assert list(validate(good | {"dlt.destination.options": "{"})) == ["dlt.destination.options"]
