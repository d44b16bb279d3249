"""Changes of a topic's configs by Kafka's requests, two at once."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.access.session import AuthorizedSession
from logdb.requests.principals import ANONYMOUS
from logdb_kafka_api.handlers import configs

SUBTRACT = 3


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"cleanup.policy": "compact,delete", "retention.ms": 7})
        yield db


def alter(db, handler, *changes, validate_only=False):
    """The error code of each change of the topic; all are made at once, each by a client of its own."""
    access = AccessControl(db._session)

    async def call(function, *args, **kwargs):
        return function(*args, **kwargs)

    def answered(change):
        resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
        values = {"resources": [resource], "validate_only": validate_only}
        session = access.session(ANONYMOUS, "127.0.0.1")
        request = SimpleNamespace(values=values, session=session, change=call, door=SimpleNamespace(access=access))
        return asyncio.run(handler(request))["responses"][0]["error_code"]

    with ThreadPoolExecutor(len(changes)) as threads:
        return sorted(threads.map(answered, changes))


@pytest.fixture
def together(monkeypatch):
    """Two changes are made once both are asked for: what a handler has read before that, both have read."""
    both, alter_configs = Barrier(2, timeout=30), AuthorizedSession.alter_configs

    def alter_together(self, *args, **options):
        both.wait()
        alter_configs(self, *args, **options)

    monkeypatch.setattr(AuthorizedSession, "alter_configs", alter_together)


def subtracted(policy):
    return {"name": "cleanup.policy", "config_operation": SUBTRACT, "value": policy}


@pytest.mark.usefixtures("together")
def test_of_two_subtractions_at_once_the_second_begins_with_what_the_first_has_left(db):
    assert alter(db, configs.incremental_alter_configs, subtracted("compact"), subtracted("delete")) == [0, 0]
    assert db.describe_topic("t").config["cleanup.policy"] == ""


@pytest.mark.usefixtures("together")
def test_of_two_replacements_at_once_one_is_whole(db):
    named = [{"name": name, "value": "9000"} for name in ("segment.ms", "flush.ms")]
    assert alter(db, configs.alter_configs, *named) == [0, 0]
    assert db.describe_topic("t").config in ({"segment.ms": 9000}, {"flush.ms": 9000})


def test_a_change_that_is_validated_alone_changes_nothing(db):
    before = db.describe_topic("t").config
    assert alter(db, configs.alter_configs, {"name": "segment.ms", "value": "9"}, validate_only=True) == [0]
    assert alter(db, configs.incremental_alter_configs, subtracted("delete"), validate_only=True) == [0]
    assert alter(db, configs.incremental_alter_configs, subtracted("compact,delete"), validate_only=True) == [0]
    assert db.describe_topic("t").config == before
