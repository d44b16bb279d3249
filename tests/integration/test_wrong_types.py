"""A call with an argument of a wrong type says which it is, what it was, and what is allowed; nothing was done."""

import re
import traceback
from pathlib import Path

import pytest

import logdb
from logdb.errors import InvalidTopic, LogdbError
from support.places import opened

# call -> what the error has to name
CALLS = {
    "db.create_topic(None)": "invalid topic name 'None': it is not a string, but NoneType",
    "db.create_topic(5)": "invalid topic name '5': it is not a string, but int",
    "db.create_topic('u', partitions='3')": "partitions='3': must be a whole number",
    "db.create_topic('u', partitions=None)": "partitions=None",
    "db.create_topic('u', partitions=1.5)": "partitions=1.5",
    "db.create_topic('u', partitions=True)": "partitions=True",
    "db.create_topic('u', config=5)": "config=5: must be a mapping or None",
    "db.create_topic('u', config=['a'])": "config=['a']",
    "db.create_topic('u', config={'cleanup.policy': 5})": "cleanup.policy=5: must be delete, compact",
    "db.create_topic('u', assignments=[0])": "assignments=[0]: must be None, or the node numbers of each partition",
    "db.create_topic('u', assignments=[['0']])": "assignments=[['0']]",
    "db.create_topic('u', assignments=['0'])": "assignments=['0']",
    "db.alter_topic('t', partitions=4, assignments=[[0.0]])": "assignments=[[0.0]]",
    "db.alter_topic(None)": "name=None",
    "db.alter_topic('t', config=5)": "config=5",
    "db.alter_topic('t', partitions='4')": "partitions='4': must be a whole number or None",
    "db.delete_topic(5)": "name=5",
    "db.describe_topic(['t'])": "name=['t']",
    "db.describe_topic(b't')": "name=b't'",
    "db.log(None)": "topic=None: must be a str",
    "db.log(['t'])": "topic=['t']",
    "db.log('t', '0')": "partition='0': must be a whole number",
    "db.log('t', None)": "partition=None",
    "db.append(None, b'x')": "topic=None",
    "db.append(['t'], b'x')": "topic=['t']",
    "db.append('t', 'x')": "value must be bytes-like or None, not str",
    "db.append('t', b'x', 5)": "key must be bytes-like or None, not int",
    "db.append('t', b'x', partitioner=5)": "partitioner=5: must be",
    "db.append('t', b'x', partitioner=lambda key, count: None)": "the partitioner returned None: must be a whole number in [0, 3)",
    "db.append('t', b'x', headers=5)": "headers: 'int' object is not iterable",
    "db.append('t', b'x', headers={'a': b'b'})": "headers must be pairs (str, bytes-like or None), not a dict: use its items()",
    "db.append('t', b'x', timestamp_ms='now')": "timestamp_ms must be an int, not str",
    "db.append('t', b'x', durability=5)": "durability",
    "db.append_many('t', 5)": "values=5: must be an iterable",
    "db.append_many('t', None)": "values=None",
    "db.append_many('t', b'abc')": "values must be a list of bytes, not bytes",
    "db.append_many('t', 'abc')": "values must be a list of bytes, not str",
    "db.append_many('t', [b'abc'], b'k')": "keys must be a list of bytes, not bytes",
    "db.append_many('t', [(b'k', b'v')])": "values[0] must be bytes-like or None, not tuple: keys= takes the keys",
    "db.append_many('t', [b'a'], keys=5)": "keys=5",
    "db.append_many('t', [b'a'], headers=5)": "headers=5",
    "db.append_many('t', [b'a'], headers=[5])": "headers",
    "db.append_many('t', [b'a'], timestamps_ms=5)": "timestamps_ms=5",
    "log.append_many(5)": "values: 'int' object is not iterable",
    "log.append_many(b'abc')": "values must be a list of bytes, not bytes",
    "log.append_many('abc')": "values must be a list of bytes, not str",
    "log.append_many(bytearray(b'abc'))": "values must be a list of bytes, not bytearray",
    "log.append_many([b'a'], b'k')": "keys must be a list of bytes, not bytes",
    "log.append_many([(b'k', b'v')])": "values[0] must be bytes-like or None, not tuple: keys= takes the keys",
    "log.append_many([5])": "values[0] must be bytes-like or None, not int",
    "log.append_many([b'a'], 5)": "keys: 'int' object is not iterable",
    "log.append_many([b'a'], headers=5)": "headers: 'int' object is not iterable",
    "log.append_many([b'a'], timestamps_ms=5)": "timestamps_ms: 'int' object is not iterable",
    "log.append(b'x', expected_offset='1')": "expected_offset",
    "log.append_batches(5)": "batches=5: must be bytes",
    "log.read(None)": "offset=None: must be a whole number",
    "log.read('0')": "offset='0'",
    "log.read(0, end_offset='1')": "end_offset='1': must be a whole number or None",
    "log.read(0, leader_epoch='1')": "leader_epoch='1'",
    "list(log.read(0, isolation_level=None))": "isolation_level=None: must be",
    "log.read_batches(None)": "offset=None",
    "log.read_batches(0, '1')": "size_bytes_max='1'",
    "log.get('0')": "offset='0'",
    "log.tail('3')": "count='3'",
    "db.read(5)": "topic=5",
    "db.read('t', start='0')": "start='0'",
    "db.read_arrow(5)": "topic=5",
    "db.read_arrow('t', columns='value')": "columns='value': must be a sequence",
    "log.read_arrow('0')": "offset='0'",
    "log.read_arrow(0, columns='value')": "columns='value': must be a sequence",
    "log.read_arrow(0, end_offset='1')": "end_offset='1'",
    "log.follow(None)": "offset=None",
    "log.follow(0, timeout_ms='1')": "timeout_ms='1'",
    "log.follow(0, stop=5)": "stop=5: must be Event or None",
    "log.offset_for_timestamp(None)": "timestamp_ms=None",
    "log.epoch_at(None)": "offset=None",
    "log.aborted_transactions(None, None)": "offset=None",
    "db.delete_records('t', '0', 0)": "partition='0'",
    "db.delete_records('t', 0, None)": "before_offset=None",
    "db.compact('t', '0')": "partition='0'",
    "db.table(None)": "topic=None",
    "db.table('t', key_deserializer=5)": "key_deserializer=5: must be",
    "db.watch(timeout_ms='x')": "timeout_ms='x'",
    "db.on_close(None)": "function=None: must be a callable",
    "db.consumer(5)": "each topic is a str and an argument of its own, as in subscribe('a', 'b'), not 5",
    "db.consumer(['t'])": "not ['t']",
    "db.consumer(pattern=5)": "pattern=5: must be a str or a compiled pattern",
    "db.consumer('t', group_id=5)": "group_id=5: must be",
    "db.consumer('t', max_poll_records='1')": "max_poll_records='1': must be",
    "db.consumer('t', partition_assignment_strategy=5)": "partition_assignment_strategy=5: must be",
    "db.consumer('t', interceptors=5)": "interceptors=5: must be an iterable of Interceptor",
    "db.consumer('t', interceptors=[5])": "interceptors=[5]: must be an iterable of Interceptor",
    "consumer.subscribe(['t'])": "not ['t']",
    "consumer.assign(None)": "partitions=None: must be an iterable",
    "consumer.assign(['t'])": "a partition is a pair (topic, number), such as TopicPartition('trades', 0), not 't'",
    "consumer.poll('x')": "timeout_ms='x': must be a whole number",
    "consumer.poll(max_records='x')": "max_records='x'",
    "consumer.seek('t', 0)": "a partition is a pair",
    "consumer.seek(('t', 0), 'x')": "offset='x': must be a whole number",
    "consumer.commit(5)": "offsets=5: must be a mapping or None",
    "consumer.commit({('t', 0): 'x'})": "an offset to commit is a whole number or an OffsetAndMetadata, not 'x'",
    "consumer.commit_async({('t', 0): 1}, on_commit=5)": "on_commit=5: must be a callable or None",
    "consumer.position(None)": "a partition is a pair",
    "consumer.beginning_offsets(5)": "partitions=5",
    "consumer.offsets_for_times(None)": "timestamps_ms=None",
    "consumer.offsets_for_times({('t', 0): 'x'})": "timestamp_ms='x'",
    "db.producer(linger_ms='1')": "linger_ms='1': must be 0 to 60000",
    "db.producer(acks=5)": "acks=5: must be 0, 1 or 'all'",
    "db.producer(compression_type=5)": "compression_type=5: must be none, gzip",
    "db.producer(partitioner=5)": "partitioner=5: must be",
    "db.producer(key_serializer=5)": "key_serializer=5: must be",
    "db.producer(interceptors=[5])": "interceptors=[5]",
    "db.producer(lingerms=1)": "a producer has no option lingerms; options are acks, batch_size",
    "db.producer(transactional_id=5)": "transactional_id=5: must be a str",
    "producer.send(None, b'x')": "topic=None: must be a str",
    "producer.send(['t'], b'x')": "topic must be a str, not list",
    "producer.send('t', 'x')": "value must be bytes-like or None, not str",
    "producer.send('t', b'x', partition='0')": "partition must be an int, not str",
    "producer.send('t', b'x', headers=5)": "headers: 'int' object is not iterable",
    "producer.send('t', b'x', on_delivery=5)": "on_delivery must be callable, not int",
    "producer.flush('x')": "timeout_ms='x'",
    "db.consumer('t', group='x')": "consumer() has no option group; options are auto_commit_interval_ms, auto_offset_reset, ",
    "db.consumer('t', session_timeout_ms=5)": "consumer() has no option session_timeout_ms; options are ",
    "db.create_topic('u', retention_ms=7)": "create_topic() has no option retention_ms; options are assignments, config, ",
    "db.transaction(None)": "transactional_id=None: must be a str",
    "db.transaction('x', transaction_timeout_ms='1')": "transaction_timeout_ms='1'",
    "db.describe_group(None)": "group_id=None: must be a str",
    "db.group_offsets(5)": "group_id=5",
    "db.reset_offsets('g', None)": "offsets=None: must be a mapping",
    "db.reset_offsets('new', {('t', 0): 'x'})": "an offset is a whole number, not 'x'",
    "db.delete_group_offsets('g', None)": "partitions=None",
    "db.describe_transaction(None)": "transactional_id=None",
    "db.abort_transaction(5)": "transactional_id=5",
    "db.table('t')[5]": "a key of t is bytes here, not int",
}
LOCAL_CALLS = {
    "db.snapshot(None)": "path=None: must be a str or a path",
    "db.backup(5)": "path=5",
    "db.verify(progress=5)": "progress=5: must be a callable or None",
    "db.make_parquet('t', '0')": "partition='0'",
    "db.topic_tiers(None)": "topic=None",
    "db.topic_dataset(None)": "topic=None",
    "db.scan_polars(None)": "topic=None",
    "db.update_iceberg(None)": "topic=None",
}


@pytest.fixture
def names(place, tmp_path: Path):
    """What a call may name."""
    with opened(place, tmp_path / "db") as db:
        db.create_topic("t", partitions=3)
        db.log("t").append(b"x", b"k")
        db.log("t").flush()
        with db.producer() as producer, db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            assert consumer.poll(timeout_ms=30_000)  # it has joined its group, and has its partitions
            yield {"db": db, "log": db.log("t"), "producer": producer, "consumer": consumer}


def refused(names, calls) -> None:
    before = names["db"].topics()
    for call, told in calls.items():
        with pytest.raises((TypeError, ValueError, InvalidTopic), match=re.escape(told)):
            eval(call, dict(names))
            pytest.fail(f"{call} was taken")
    assert names["db"].topics() == before
    assert [record.value for record in names["log"].read(0)] == [b"x"]
    names["consumer"].poll(timeout_ms=100)  # nothing that was refused is in its way


def test_an_argument_of_a_wrong_type_is_named(names) -> None:
    refused(names, CALLS)


@pytest.mark.local
def test_an_argument_of_a_wrong_type_is_named_where_the_files_are(names) -> None:
    refused(names, LOCAL_CALLS)


def test_every_public_call_with_arguments_is_tried() -> None:
    """What a database, a log, a producer and a consumer can be asked, and is asked above."""
    tried = {re.match(r"(?:list\()?(\w+)\.(\w+)", call).groups() for call in CALLS | LOCAL_CALLS}
    untried = {
        "db": {"flush", "topics", "groups", "transactions", "close", "delete_group", "enforce_retention"},
        "log": {"flush", "watch", "unwatch", "open_transactions", "readable_end_offset", "latest_record"},
        "producer": {
            "close", "refresh", "would_wait",
            "init_transactions", "begin_transaction", "commit_transaction", "abort_transaction",
            "send_offsets", "send_offsets_to_transaction",
        },
        "consumer": {
            "close", "unsubscribe", "group_metadata", "hand_out", "give_back", "watch", "positions", "seek_to_beginning", "seek_to_end",
            "seek_to_timestamp", "lag", "pause", "resume", "paused", "committed", "seek_to_committed", "subscription", "assignment",
            "end_offsets",
        },
    }  # fmt: skip
    kinds = {"db": logdb.Database, "log": logdb.Log, "producer": logdb.Producer, "consumer": logdb.Consumer}
    for short, kind in kinds.items():
        public = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
        assert public - {name for owner, name in tried if owner == short} <= untried[short]


# ---------------------------------------------------------------- everyday mistakes

MISTAKES = [
    "db.append('nope', b'v')",
    "db.append_many('nope', [b'v'])",
    "db.log('nope')",
    "db.log('t', 7)",
    "log.read(99)",
    "db.create_topic('u', config={'retention': 1})",
    "db.create_topic('u', config={'retention.ms': 'soon'})",
    "db.create_topic('a b')",
    "db.create_topic('t')",
    "db.alter_topic('nope', config={})",
    "db.delete_topic('nope')",
    "db.describe_topic('nope')",
    "log.append(b'x' * 2_000_000)",
    "log.append(b'x', timestamp_ms=2**62)",
    "log.append(b'x', expected_offset=77)",
    "producer.send('nope', b'x')",
    "producer.begin_transaction()",
    "db.producer(linger_ms=-1)",
    "db.consumer('t', auto_offset_reset='smallest')",
    "db.consumer('nope')",
    "db.consumer('t').commit()",
    "consumer.seek(('nope', 0), 0)",
    "db.table('nope')",
    "db.delete_records('t', 0, 99)",
    "db.compact('t')",
    "db.describe_group('nope')",
    "log.append(b'x', durability='sync')",
    "logdb.open(db.path, mode='w') if '://' not in db.path else db.log('nope')",
    "logdb.open(db.path) if '://' not in db.path else db.log('nope')",
]


def frames(error: BaseException) -> list[str]:
    """Functions of ours in what a program that met the error prints."""
    shown = traceback.TracebackException.from_exception(error)
    found = []
    while shown is not None:
        found += [frame.name for frame in shown.stack if "/logdb" in frame.filename and "/tests/" not in frame.filename]
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    return found


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_everyday_mistake_shows_few_frames(names, mistake) -> None:
    with pytest.raises((LogdbError, ValueError)) as caught:
        eval(mistake, dict(names) | {"logdb": logdb})
    shown = frames(caught.value)
    assert len(shown) <= 4, shown


@pytest.mark.local
def test_a_closed_database_shows_few_frames(tmp_path: Path) -> None:
    db = logdb.open(tmp_path / "db")
    db.create_topic("t")
    db.close()
    for call in (lambda: db.log("t"), lambda: db.append("t", b"x"), lambda: db.create_topic("u"), db.producer):
        with pytest.raises(logdb.errors.Closed) as caught:
            call()
        assert 1 <= len(frames(caught.value)) <= 4
