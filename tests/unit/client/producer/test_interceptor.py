"""Interceptors on the way in; those on the way out are tested with the consumer."""

from dataclasses import FrozenInstanceError, replace

import pytest

from logdb import serde
from logdb.client.producer.interceptor import Interceptor, OutgoingRecord, outgoing
from logdb.client.producer.producer import Producer
from logdb.model import RecordMetadata
from logdb.requests.topic_changes import CreateTopic
from logdb.store.store import Store
from support.local_session import LocalSession

NOW = 1_700_000_000_000


@pytest.fixture
def session(tmp_path):
    store = Store.open(tmp_path / "db", clock=lambda: NOW)
    store.submit(CreateTopic("t", partitions=2))
    store.submit(CreateTopic("other"))
    yield LocalSession(store)
    store.close()


class Masking(Interceptor):
    """Hides card numbers."""

    def on_send(self, record):
        return replace(record, value=record.value | {"card": "****"}) if "card" in record.value else record


class Noting(Interceptor):
    def __init__(self):
        self.seen = []

    def on_send(self, record):
        self.seen.append(record)
        return record


def sent(session, topic="t"):
    logs = [session.log(topic, number) for number in range(session.partition_count(topic))]
    return [(record.partition, record.key, record.value) for log in logs for record in log.read(0)]


def test_what_is_not_overridden_lets_pass():
    record = OutgoingRecord(topic="t", value=b"v")
    assert Interceptor().on_send(record) is record
    assert Interceptor().on_consume([1, 2]) == [1, 2]
    with pytest.raises(FrozenInstanceError):
        record.value = b"w"


def test_what_is_neither_a_record_nor_none():
    class Wrong(Interceptor):
        def on_send(self, record):
            return record.value

    with pytest.raises(TypeError, match=r"Wrong\.on_send has to return an OutgoingRecord or None, not bytes"):
        outgoing([Wrong()], OutgoingRecord(topic="t", value=b"v"))


def test_they_are_called_in_order_each_with_what_the_one_before_returned():
    class Adding(Interceptor):
        def __init__(self, word):
            self.word = word

        def on_send(self, record):
            return None if record.value == "stop" else replace(record, value=record.value + self.word)

    both = (Adding("a"), Adding("b"))
    assert outgoing(both, OutgoingRecord(topic="t", value="")).value == "ab"
    assert outgoing(both, OutgoingRecord(topic="t", value="stop")) is None
    assert outgoing((), OutgoingRecord(topic="t", value="x")).value == "x"


def test_a_record_is_changed_before_it_is_serialized(session):
    noting = Noting()
    options = {"value_serializer": serde.json, "key_serializer": serde.string}
    with Producer(session, clock=lambda: NOW, interceptors=[noting, Masking()], **options) as producer:
        producer.send("t", {"user": "ann", "card": "1234"}, "ann", partition=1, headers=[("h", b"")], timestamp_ms=5)
        producer.send("t", value={"user": "bob"}, key="bob", partition=0)
    assert sent(session) == [(0, b"bob", b'{"user":"bob"}'), (1, b"ann", b'{"user":"ann","card":"****"}')]
    assert noting.seen[0] == OutgoingRecord(
        topic="t", value={"user": "ann", "card": "1234"}, key="ann", partition=1, headers=[("h", b"")], timestamp_ms=5
    )
    assert noting.seen[1] == OutgoingRecord(topic="t", value={"user": "bob"}, key="bob", partition=0)
    (record,) = session.log("t", 1).read(0)
    assert (record.headers, record.timestamp_ms) == ((("h", b""),), 5)


def test_a_record_may_go_elsewhere(session):
    class Elsewhere(Interceptor):
        def on_send(self, record):
            return replace(record, topic="other", key=b"k", partition=None, headers=(("from", record.topic.encode()),), timestamp_ms=7)

    with Producer(session, clock=lambda: NOW, interceptors=[Elsewhere()]) as producer:
        future = producer.send("t", b"v", partition=1)
    assert future.result() == RecordMetadata("other", 0, 0, 7)
    assert sent(session) == [] and sent(session, "other") == [(0, b"k", b"v")]


def test_a_record_that_is_dropped_has_a_future_all_the_same(session):
    class Dropping(Interceptor):
        def on_send(self, record):
            return None

    told = []
    with Producer(session, clock=lambda: NOW, interceptors=[Dropping(), Masking()]) as producer:
        future = producer.send("t", b"v", partition=1, timestamp_ms=9, on_delivery=lambda *arguments: told.append(arguments))
        assert future.done() and future.result() == RecordMetadata("t", 1, -1, 9) and future.exception() is None
        future.add_done_callback(told.append)
    assert sent(session) == []
    assert told == [(None, RecordMetadata("t", 1, -1, 9)), future]


def test_what_an_interceptor_raises_keeps_the_record_out(session):
    class Failing(Interceptor):
        def on_send(self, record):
            raise ZeroDivisionError

    with Producer(session, clock=lambda: NOW, interceptors=[Failing()]) as producer:
        with pytest.raises(ZeroDivisionError):
            producer.send("t", b"secret")
        with pytest.raises(TypeError):
            producer.send("t")
    assert sent(session) == []
