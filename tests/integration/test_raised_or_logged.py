"""An error is raised or logged, not both: a program that configures no logging sees each one once.

Without a configuration, Python prints warnings and errors of every logger to stderr.
"""

import contextlib
import errno
import logging
import subprocess
import sys

import pytest

import logdb
from logdb.errors import DiskFull, FencedInstance, SyncFailed, UnknownMember
from support.clock import StillIO
from support.faulty_io import FaultyIO


@pytest.fixture
def logged(caplog):
    """The lines that such a program would see."""
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def io():
    return StillIO()


@pytest.fixture
def db(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as database:
        database.create_topic("t")
        database.append_many("t", [b"1", b"2"])
        yield database


def member(db, **options):
    consumer = db.consumer("t", group_id="g", auto_offset_reset="earliest", max_poll_interval_ms=1_000, **options)
    assert consumer.poll(max_records=1)
    return consumer


def expire(db, io):
    io.now_ms += 1_000
    db._session._timers.fire_due()


# ---------------------------------------------------------------- members that the group has removed


def by_transaction(db, consumer):
    with db.transaction("x") as transaction:
        transaction.send_offsets(consumer)


def by_producer(db, consumer):
    with db.producer(transactional_id="x") as producer:
        producer.begin_transaction()
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())


COMMITS = {"commit": lambda _, consumer: consumer.commit(), "transaction": by_transaction, "producer": by_producer}


@pytest.mark.parametrize("how", COMMITS)
def test_a_member_whose_commit_was_refused(db, io, logged, how):
    consumer = member(db)
    expire(db, io)
    with pytest.raises(UnknownMember):
        COMMITS[how](db, consumer)
    consumer.poll()
    assert logged() == []
    expire(db, io)
    consumer.poll()
    assert len(logged()) == 1, "nothing has raised that it was removed again"


def test_a_member_that_has_committed_nothing(db, io, logged):
    consumer = member(db)
    expire(db, io)
    consumer.poll()
    (line,) = logged()
    assert line.startswith("group 'g' has no member 'logdb-")
    assert line.endswith("It joins again, and records since its last commit come again")


def test_an_instance_that_was_taken_over(db, io, logged):
    first = member(db, group_instance_id="one")
    member(db, group_instance_id="one")
    io.now_ms += 200  # the next heartbeat is due
    with pytest.raises(FencedInstance):
        first.poll()
    assert logged() == []


# ---------------------------------------------------------------- records and transactions


@pytest.mark.parametrize(("call", "number", "error"), [("pwrite", errno.ENOSPC, DiskFull), ("fdatasync", errno.EIO, SyncFailed)])
def test_a_commit_that_fails(tmp_path, logged, call, number, error):
    io = FaultyIO()
    db = logdb.open(tmp_path / "db", io=io)
    db.create_topic("t")
    producer = db.producer(transactional_id="x")
    producer.begin_transaction()
    producer.send("t", b"1")
    producer.flush()
    io.fail(call, number, "t-0" if error is SyncFailed else "__transaction_state")
    with pytest.raises(error):
        producer.commit_transaction()
    assert not [line for line in logged() if line.startswith("__transaction_state")]
    io.heal()
    with contextlib.suppress(SyncFailed):
        db.close()


def test_a_producer_whose_block_raises(db, logged):
    with pytest.raises(ZeroDivisionError) as raised, db.producer() as producer:
        producer.send("t", b"1")
        db.delete_topic("t")
        raise ZeroDivisionError
    assert raised.value.__notes__ == ["and closing the producer: unknown topic 't'; there are none yet"]
    assert logged() == []


def test_a_producer_whose_block_exits(db, logged):
    """Python prints no note of SystemExit."""
    with pytest.raises(SystemExit), db.producer() as producer:
        producer.send("t", b"1")
        db.delete_topic("t")
        sys.exit()
    assert logged() == ["closing a producer: unknown topic 't'; there are none yet"]


# ---------------------------------------------------------------- without a configuration

BACKGROUND = """
import sys
import logdb

def callback(error, metadata):
    raise ValueError("of the application")

with logdb.open(sys.argv[1]) as db:
    db.create_topic("t")
    with db.producer() as producer:
        producer.send("t", b"1", on_delivery=callback)
"""


def test_an_error_that_no_call_raises_is_on_stderr(tmp_path):
    done = subprocess.run([sys.executable, "-c", BACKGROUND, tmp_path / "db"], capture_output=True, text=True, timeout=60, check=True)
    assert "the callback <function callback" in done.stderr
    assert "ValueError: of the application" in done.stderr
