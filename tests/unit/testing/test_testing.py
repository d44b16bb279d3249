"""logdb.testing: what it makes works as the real thing does, and is gone afterwards."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

import logdb
from logdb import testing
from logdb.errors import Closed

OF_AN_APPLICATION = """
from datetime import timedelta
import logdb

def test_database(logdb_database):
    logdb_database.create_topic("t")
    assert logdb_database.log("t").append(b"x") == 0

def test_another(logdb_database):
    assert logdb_database.topics() == []

def test_clock(logdb_database, logdb_clock):
    logdb_database.create_topic("t")
    logdb_database.append("t", b"x")
    before = logdb_clock.now
    logdb_clock.advance(timedelta(days=1))
    logdb_database.append("t", b"y")
    first, second = logdb_database.read("t")
    assert second.timestamp_ms - first.timestamp_ms == 86_400_000
    assert logdb_clock.now - before == timedelta(days=1)

def test_server(logdb_server):
    with logdb.open(logdb_server.url) as db:
        db.create_topic("t")
    assert [topic.name for topic in logdb_server.database.topics()] == ["t"]

def test_broker(logdb_broker):
    host, port = logdb_broker.bootstrap_servers.split(":")
    assert host == "127.0.0.1" and int(port)
"""


def test_pytest_finds_the_fixtures(tmp_path):
    (tmp_path / "test_app.py").write_text(OF_AN_APPLICATION)
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_app.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "5 passed" in run.stdout
    assert [*tmp_path.glob("logdb-*")] == []


def test_a_database_is_gone_after_its_block():
    with testing.database() as db:
        path = db.path
        db.create_topic("t")
    assert not os.path.exists(path)
    with pytest.raises(Closed):
        db.topics()


def test_a_clock_makes_records_old():
    clock = testing.Clock(datetime(2026, 1, 1, tzinfo=UTC))
    assert clock.now == datetime(2026, 1, 1, tzinfo=UTC)
    with testing.database(clock=clock) as db:
        db.create_topic("t", config={"retention.ms": "7d"})
        db.append("t", b"old")
        assert db.log("t").get(0).timestamp_ms == 1_767_225_600_000
        clock.advance(timedelta(days=6))
        assert db.enforce_retention() == []
        clock.advance(2 * 86_400_000)
        assert [expired.topic for expired in db.enforce_retention()] == ["t"]
        assert db.log("t").start_offset == 1
    with pytest.raises(ValueError, match="by=-1: must be 0 or more"):
        clock.advance(-1)


def test_a_clock_ends_the_session_of_a_silent_member():
    clock = testing.Clock()
    with testing.database(clock=clock) as db:
        db.create_topic("t")
        first = db.consumer("t", group_id="g")
        first.poll()
        assert len(db.describe_group("g").members) == 1
        clock.advance(timedelta(minutes=10))
        first.close()
        assert db.describe_group("g").members == ()


def test_logdb_names_it():
    assert logdb.testing is testing


def test_a_database_needs_no_package_of_an_extra():
    script = """if 1:
        import sys
        for name in ("aiohttp", "msgspec", "h11", "re2", "click", "pyarrow"):
            sys.modules[name] = None
        import logdb
        with logdb.testing.database() as db:
            db.create_topic("t")
            assert db.append("t", b"x").offset == 0
        try:
            logdb.testing.server().__enter__()
        except ModuleNotFoundError as error:
            assert "the listener 'http' needs the package 'aiohttp'" in str(error), error
        else:
            raise SystemExit("no error")
    """
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
