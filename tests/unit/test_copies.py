"""Errors and values survive pickle and copy; handles refuse both.  The classes are found, not listed: see support/modules.py."""

import copy
import inspect
import multiprocessing
import pickle

import pytest

import logdb
import logdb.aio
from logdb import errors
from logdb.errors import LogdbError
from logdb.handles import Handle
from support.modules import PACKAGES, NoSample, classes, error_of, fields_of, sample

WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {protocol}": lambda one, protocol=protocol: pickle.loads(pickle.dumps(one, protocol)) for protocol in range(2, 6)},
}
ERRORS = [kind for kind in classes() if issubclass(kind, LogdbError)]
ABSTRACT = {"Assignor", "IO", "Interceptor", "Log", "Session"}
"""Public classes that an application derives from, or that a protocol is."""


def public(module):
    return {name: kind for name in module.__all__ if inspect.isclass(kind := getattr(module, name))}


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__qualname__)
def test_an_error(kind):
    error = error_of(kind)
    error.add_note("seen by a worker")
    error.more = [1]
    for name, way in WAYS.items():
        got = way(error)
        assert (type(got), str(got), got.args, vars(got)) == (kind, str(error), error.args, vars(error)), name


def test_errors_of_all_packages_are_looked_at():
    assert len(ERRORS) > 120
    assert {kind.__module__.partition(".")[0] for kind in ERRORS} == set(PACKAGES) - {"logdb_http_api", "logdb_kafka_api"}  # they have none


def test_an_error_of_a_worker_reaches_its_pool(tmp_path):
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(errors.NotADatabase, match="none"):
        pool.apply_async(logdb.open, (tmp_path / "none",), {"mode": "r"}).get(30)


def test_values():
    looked_at = set()
    for kind in classes():
        try:
            if issubclass(kind, BaseException | Handle) or fields_of(kind) is None:
                continue
            value = sample(kind)
        except (NoSample, TypeError, ValueError, LogdbError):  # of other things than data, or with rules among its fields
            continue
        looked_at.add(kind)
        for name, way in WAYS.items():
            got = way(value)
            assert (type(got), got) == (kind, value), (kind, name)
    assert len(looked_at) > 300
    rest = {name for name, kind in public(logdb).items() if not issubclass(kind, Handle | BaseException | dict) and kind not in looked_at}
    assert rest == ABSTRACT | {"AnyRecord", "ConsumerConfig", "Record", "RecordIterator", "Report", "SendFuture"}  # these: below


def test_values_of_a_database(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"retention.ms": -1})
        log = db.log("t")
        log.append_many([b"x", b"y"], keys=[None, b"key"])
        log.append(b"z", headers=[("name", b"v"), ("none", None), ("\udcff", b"")], timestamp_ms=5)
        values = [*log.read(0), *log.read(2), db.describe_topic("t"), *db.topics(), logdb.ConsumerConfig(), *db.verify().problems]
        with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            polled = consumer.poll(10_000)
            assert polled
            values += [*polled.values(), consumer.positions(), db.describe_group("g"), consumer.group_metadata()]
        report = db.verify()
        for name, way in WAYS.items():
            assert way(values) == values, name
            assert vars(way(report)) == vars(report), name


def test_handles_refuse(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        log = db.log("t")
        log.append(b"x")
        with db.producer() as producer, db.producer(transactional_id="p") as transactional, db.consumer("t") as consumer:
            sent = producer.send("t", b"y")
            tools = [db.table("t"), db.watch(), db.security, db.transaction("x")]
            for handle in (db, log, producer, transactional, consumer, sent, log.read(0), *tools):
                for way in WAYS.values():
                    with pytest.raises(TypeError, match=r"^cannot (copy or )?pickle "):
                        way(handle)


def test_every_public_class_is_a_handle_or_a_value():
    handles = {name for name, kind in public(logdb).items() if issubclass(kind, Handle)}
    assert handles == {
        "Consumer", "Database", "Producer", "SecurityAdmin", "Server", "Table", "Transaction", "TransactionalProducer", "Watch"
    }  # fmt: skip
    for name, kind in public(logdb.aio).items():
        assert issubclass(kind, Handle), name
