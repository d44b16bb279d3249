"""Topics by Kafka's ids: their names, and what becomes of an id when its topic is created again."""

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.errors import NotAuthorized
from logdb.model import TopicPartition
from logdb.requests.principals import ANONYMOUS
from logdb.serving.fetch import Wanted
from logdb_kafka_api.errors import Code
from logdb_kafka_api.handlers.fetch import Asked, Read
from logdb_kafka_api.handlers.produce import failed
from logdb_kafka_api.topic_ids import NO_ID, UNKNOWN, KnownTopic, TopicIds

STRANGE = b"x" * 16


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        yield db


@pytest.fixture
def access(db):
    access = AccessControl(db._session)
    yield access
    access.close()


@pytest.fixture
def topics(access):
    return TopicIds(access)


def named(topics, *ids):
    """Whether all could be named at once, and the names."""
    asked = [{"topic_id": one} for one in ids]
    return topics.name_at_once(asked), [one["name"] for one in asked]


def test_topics_are_named_after_a_look(db, topics):
    info = db.create_topic("t")
    assert named(topics, info.uuid) == (False, [""])
    topics.look()
    assert named(topics, info.uuid, STRANGE, NO_ID) == (True, ["t", "", ""])
    later = db.create_topic("later")
    assert named(topics, later.uuid, info.uuid) == (False, ["", "t"])  # those behind an unknown one are named
    topics.look()
    assert named(topics, later.uuid) == (True, ["later"])
    assert topics.of("later") == later.uuid and topics.of("none") == NO_ID


def test_strange_ids_cause_few_looks(access, topics, monkeypatch):
    count = 0
    real = access.topics

    def counted():
        nonlocal count
        count += 1
        return real()

    monkeypatch.setattr(access, "topics", counted)
    for _ in range(100):
        topics.look()
        assert topics.current(STRANGE) is UNKNOWN
    assert count < 20  # at most one a second


def test_the_id_of_a_topic_that_was_created_again_is_unknown(db, topics):
    former = db.create_topic("t")
    assert topics.current(former.uuid) == KnownTopic("t", former.topic_id)
    db.delete_topic("t")
    assert topics.current(former.uuid) is UNKNOWN
    now = db.create_topic("t")
    assert topics.current(former.uuid) is UNKNOWN
    assert topics.current(now.uuid) == KnownTopic("t", now.topic_id)


def test_a_fetch_whose_topic_is_created_again_between_two_reads_has_an_inconsistent_id(db, access):
    info = db.create_topic("t")
    session = access.session(ANONYMOUS, "127.0.0.1")
    wanted = Wanted("t", 0, 0, topic_id=info.topic_id)
    read, late = (Read(Asked("t", info.uuid, info.topic_id, by_id=True), wanted) for _ in range(2))
    read.read(session, 1 << 20, "read_uncommitted")
    assert read.values()["error_code"] == Code.NONE
    db.delete_topic("t")
    db.create_topic("t")
    for again in (read, late):
        again.read(session, 1 << 20, "read_uncommitted")
    assert read.values()["error_code"] == Code.INCONSISTENT_TOPIC_ID
    assert late.values()["error_code"] == Code.UNKNOWN_TOPIC_ID


def test_a_refusal_by_id_leaves_out_the_name_of_the_topic(access):
    session, where = access.session(ANONYMOUS, "127.0.0.1"), TopicPartition("secret", 0)
    error = NotAuthorized("User:alice", "Write", "Topic 'secret'")
    by_name, by_id = (failed(session, where, error, by_id=one) for one in (False, True))
    assert {one["error_code"] for one in (by_name, by_id)} == {Code.TOPIC_AUTHORIZATION_FAILED}
    assert "secret" in by_name["error_message"] and by_id["error_message"] is None
