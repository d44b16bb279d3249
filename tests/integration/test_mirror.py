"""Topics copied with their offsets: between directories, servers and clusters, killed at any point."""

import contextlib
import random
import shutil
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb.client import mirror as mirrors
from logdb.client.mirror import Mirror
from logdb.codec import convert
from logdb.errors import Closed, MirrorDiverged, PolicyViolation, ServerUnavailable
from logdb.log.following import FollowingLog
from logdb.model import MIRROR_OF, TopicPartition
from support.mirrors import copy_without_the_last_batch
from support.places import opened
from support.ports import free_port

WHERE = TopicPartition("t", 0)


@pytest.fixture
def sides(tmp_path, place):
    of_source = "path" if place == "cluster" else place  # cluster/test_mirroring.py has clusters on both sides
    with opened(of_source, tmp_path / "source") as source, opened(place, tmp_path / "target") as target:
        yield source, target


def records(db, topic="t", partition=0, level="read_uncommitted"):
    log = db.log(topic, partition)
    return [
        (record.offset, record.key, record.value, record.headers, record.timestamp_ms)
        for record in log.read(log.start_offset, isolation_level=level)
    ]


def batches(db, topic="t", partition=0):
    """All batches but what is a log's own: their leader epochs."""
    log = db.log(topic, partition)
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        data, offset = log.read_batches(offset)
        found += [(head.base_offset, bytes(image[16:])) for image, head in convert.headers(data)]
    return found


def same(source, target, topic="t", partition=0):
    mine, theirs = source.log(topic, partition), target.log(topic, partition)
    assert (mine.start_offset, mine.end_offset) == (theirs.start_offset, theirs.end_offset)
    assert batches(source, topic, partition) == batches(target, topic, partition)
    for level in ("read_uncommitted", "read_committed"):
        assert records(source, topic, partition, level) == records(target, topic, partition, level)


def aborted(db):
    with contextlib.suppress(ZeroDivisionError), db.transaction("x") as transaction:
        transaction.send("t", b"aborted", partition=0)
        transaction.flush()
        raise ZeroDivisionError


def test_records_transactions_and_groups(sides):
    source, target = sides
    source.create_topic("t", partitions=2, config={"compression.type": "zstd", "segment.bytes": 4096})
    source.create_topic("other")
    source.log("t", 0).append_many([b"%d" % number for number in range(500)], headers=[[("h", b"1")]] * 500)
    aborted(source)
    with source.transaction("x") as transaction:
        transaction.send("t", b"committed", partition=1)
    with source.consumer(group_id="g") as consumer:
        consumer.assign([WHERE])
        consumer.seek(WHERE, 123)
        consumer.commit()
    mirror = Mirror(source, target, ["t*"], groups=True)
    assert mirror.copy() == source.log("t", 0).end_offset + source.log("t", 1).end_offset
    assert mirror.copy() == 0
    assert mirror.copy_groups() == 1
    assert mirror.copy_groups() == 0
    for partition in (0, 1):
        same(source, target, "t", partition)
    assert target._session.fetch_offsets("g")[WHERE].offset == 123
    (made,) = target.topics()
    config = {name: value for name, value in made.config.items() if name != "min.insync.replicas"}  # a cluster sets it
    assert config == {"compression.type": "zstd", "segment.bytes": 4096, MIRROR_OF: source.describe_topic("t").topic_id}
    source.alter_topic("t", partitions=3)
    source.log("t", 2).append_many([b"more"])
    assert mirror.copy() == 1
    same(source, target, "t", 2)


def test_an_open_transaction_is_left_until_it_is_decided(sides):
    source, target = sides
    source.create_topic("t")
    source.log("t").append_many([b"1", b"2"])
    mirror = Mirror(source, target, ["t"])
    with source.transaction("x") as transaction:
        transaction.send("t", b"3")
        transaction.flush()
        source.log("t").append_many([b"4"])
        mirror.copy()
        assert target.log("t").end_offset == 2
    mirror.copy()
    same(source, target)


def pipeline(source, target):
    """The mirror of a topic with two records, and of the one to which a group writes."""
    for topic in ("t", "written"):
        source.create_topic(topic)
    source.log("t").append_many([b"1", b"2"])
    return Mirror(source, target, ["t", "written"], groups=True)


def test_a_group_is_not_ahead_of_what_it_has_written(sides):
    """Else a fail-over would lose it: the group's offset says that it is done."""
    source, target = sides
    mirror = pipeline(source, target)
    mirror.copy()
    with source.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        (polled,) = consumer.poll(timeout_ms=10_000).values()
        with source.transaction("x") as transaction:
            for record in polled:
                transaction.send("written", record.value)
            transaction.send_offsets(consumer)
    assert mirror.copy_groups() == 0
    assert mirror.copy() == 3
    assert mirror.copy_groups() == 1
    assert target._session.fetch_offsets("g")[WHERE].offset == 2
    assert [value for _, _, value, *_ in records(target, "written")] == [b"1", b"2"]


def test_a_group_is_not_ahead_of_what_it_has_written_behind_an_open_transaction(sides):
    source, target = sides
    mirror = pipeline(source, target)
    with source.transaction("other") as other:
        other.send("written", b"3", partition=0)
        other.flush()
        with source.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer, source.transaction("x") as transaction:
            consumer.poll(timeout_ms=10_000)
            transaction.send("written", b"1", partition=0)
            transaction.send_offsets(consumer)
        for _ in range(2):
            mirror.copy()
            assert mirror.copy_groups() == 0
    mirror.copy()
    assert mirror.copy_groups() == 1
    assert target._session.fetch_offsets("g")[WHERE].offset == 2
    assert [value for _, _, value, *_ in records(target, "written", level="read_committed")] == [b"3", b"1"]


def test_records_are_copied_while_the_offsets_of_groups_cannot_be_read(sides, monkeypatch):
    source, target = sides
    source.create_topic("t")
    source.log("t").append(b"1")
    mirror = Mirror(source, target, ["t"], groups=True)
    with monkeypatch.context() as patched:

        def refuse():
            raise ServerUnavailable(("a",), "loading")

        patched.setattr(source._session, "groups", refuse)
        assert mirror.copy() == 1
        with pytest.raises(ServerUnavailable):
            mirror.copy_groups()
    mirror.copy()
    assert mirror.copy_groups() == 0


def test_begins_and_gaps(sides):
    source, target = sides
    source.create_topic("t")
    log = source.log("t")
    log.append_many([b"%d" % number for number in range(100)])
    source.delete_records("t", 0, 40)
    Mirror(source, target, ["t"]).copy()
    assert target.log("t").start_offset == 40
    assert records(source) == records(target)
    log.append_many([b"%d" % number for number in range(100, 200)])
    source.delete_records("t", 0, 150)  # the target lacks 50 of them
    Mirror(source, target, ["t"]).copy()
    assert (target.log("t").start_offset, target.log("t").end_offset) == (150, 200)
    assert records(source) == records(target)


def test_a_transaction_that_the_mirror_has_begun_to_copy_is_ended_once_the_target_is_none(tmp_path):
    """The mirror has died between two of its appends, and its source with it."""
    with logdb.open(tmp_path / "source") as source, logdb.open(tmp_path / "target") as target:
        source.create_topic("t")
        source.log("t").append(b"1")
        with source.transaction("x") as transaction:
            transaction.send("t", b"2")
        copy_without_the_last_batch(Mirror(source, target, ["t"]))
        log = target.log("t")
        assert (log.end_offset, log.last_stable_offset) == (2, 1)
        target.alter_topic("t", config={"logdb.mirror.of": None})
        assert target.log("t").last_stable_offset == target.log("t").end_offset
        assert [value for _, _, value, *_ in records(target, level="read_committed")] == [b"1"]


def test_a_transaction_is_ended_that_was_begun_to_copy_into_a_topic_that_was_used_before(sides):
    source, target = sides
    target.create_topic("t", partitions=1)
    assert target.log("t").end_offset == 0
    source.create_topic("t")
    for number in range(2):
        source.log("t").append(b"%d" % number)
        with source.transaction("x") as transaction:
            transaction.send("t", b"begun")
        copy_without_the_last_batch(Mirror(source, target, ["t"]))
        target.alter_topic("t", config={MIRROR_OF: None})
        log = target.log("t")
        assert (log.end_offset, log.last_stable_offset) == (3, 3)
        assert [value for _, _, value, *_ in records(target, level="read_committed")] == [b"%d" % number]
        for side in sides:
            side.delete_topic("t")
            side.create_topic("t", partitions=1)
        assert target.log("t").end_offset == 0


def test_a_reader_beside_a_fail_over_sees_no_transaction_open(tmp_path):
    with logdb.open(tmp_path / "source") as source, logdb.open(tmp_path / "target") as target:
        source.create_topic("t")
        with source.transaction("x") as transaction:
            transaction.send("t", b"begun")
        copy_without_the_last_batch(Mirror(source, target, ["t"]))
    with logdb.open(tmp_path / "target") as target:
        target.alter_topic("t", config={MIRROR_OF: None})
        with logdb.open(tmp_path / "target", mode="r") as reader:
            assert (reader.log("t").end_offset, reader.log("t").last_stable_offset) == (2, 2)


def test_what_is_being_copied_is_in_the_log_before_its_topic_is_a_mirror_no_more(tmp_path, monkeypatch):
    """Otherwise a transaction could begin behind the look for open ones."""
    with logdb.open(tmp_path / "source") as source, logdb.open(tmp_path / "target") as target, ThreadPoolExecutor(2) as pool:
        source.create_topic("t")
        with source.transaction("x") as transaction:
            transaction.send("t", b"begun")
        admitted, goes_on, follow_epochs = threading.Event(), threading.Event(), FollowingLog._follow_epochs

        def waits(*arguments):
            admitted.set()
            assert goes_on.wait(10)
            follow_epochs(*arguments)

        monkeypatch.setattr(FollowingLog, "_follow_epochs", waits)
        copied = pool.submit(copy_without_the_last_batch, Mirror(source, target, ["t"]))
        assert admitted.wait(10)
        altered = pool.submit(target.alter_topic, "t", config={MIRROR_OF: None})
        with pytest.raises(TimeoutError):
            altered.result(0.2)
        goes_on.set()
        copied.result(10)
        altered.result(10)
        log = target.log("t")
        assert (log.end_offset, log.last_stable_offset) == (2, 2)


def test_a_new_producer_of_the_target_is_none_of_the_source(tmp_path, monkeypatch):
    """Else its first records would be taken for a repetition, acknowledged, and never written: both have taken their ids in one second."""
    ids = iter([uuid.UUID(int=1), uuid.UUID(int=2)])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(ids))
    with logdb.open(tmp_path / "source", clock=lambda: 10**12) as source, logdb.open(tmp_path / "target", clock=lambda: 10**12) as target:
        monkeypatch.undo()
        source.create_topic("t")
        target.create_topic("own")
        with target.producer() as producer:
            producer.send("own", b"1").result(timeout=60)
        for value in (b"1", b"2"):
            with source.producer() as producer:
                producer.send("t", value).result(timeout=60)
        Mirror(source, target, ["t"]).copy()
        target.alter_topic("t", config={MIRROR_OF: None})
        with target.producer() as producer:
            assert producer.send("t", b"3").result(timeout=60).offset == 2
        assert [value for _, _, value, *_ in records(target)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_transaction_in_which_a_mirror_was_refused_ends(sides, ends):
    source, target = sides
    source.create_topic("t")
    source.log("t").append(b"1")
    target.create_topic("own", partitions=1)
    Mirror(source, target, ["t"]).copy()
    session = target._session
    producer = session.init_producer_id("id")
    session.add_partitions("id", producer, [WHERE, TopicPartition("own", 0)])
    session.end_transaction("id", producer, commit=ends == "commit")
    with pytest.raises(PolicyViolation, match="mirrors another topic"), target.transaction("id") as transaction:
        transaction.send("own", b"aborted")
        transaction.send("t", b"refused", partition=0)
    with target.transaction("id") as transaction:
        transaction.send("own", b"committed")
    assert [value for _, _, value, *_ in records(target, "own", level="read_committed")] == [b"committed"]
    source.log("t").append(b"2")
    assert Mirror(source, target, ["t"]).copy() == 1
    same(source, target)


@pytest.mark.parametrize("horizon_of", ["marker", "tombstone"])
def test_a_source_whose_last_copied_batch_got_a_delete_horizon_is_the_same(tmp_path, horizon_of):
    with logdb.open(tmp_path / "source") as source, logdb.open(tmp_path / "target") as target:
        source.create_topic("t", config={"cleanup.policy": "compact"})
        source.log("t").append_many([b"1"], [b"a"])
        if horizon_of == "marker":
            with source.transaction("x") as transaction:
                transaction.send("t", b"2", key=b"b")
        else:
            source.log("t").append_many([None], [b"a"])
        Mirror(source, target, ["t"]).copy()
        source.log("t").append_many([b"3"], [b"c"])
        source.compact("t")
        assert Mirror(source, target, ["t"]).copy() == 1
        assert target.log("t").end_offset == source.log("t").end_offset


def test_a_compacted_topic(tmp_path):
    with logdb.open(tmp_path / "source") as source, logdb.open(tmp_path / "target") as target:
        source.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": 1024})
        mirror = Mirror(source, target, ["t"])
        for turn in range(4):
            for number in range(100):
                source.append("t", None if number % 7 == turn else b"%d" % number, key=b"%d" % (number % 20))
            source.log("t").flush()
            source.compact("t")
            mirror.copy()
            Mirror(source, target, ["t"]).copy()
        assert target.log("t").end_offset == source.log("t").end_offset
        latest = [{key: value for _, key, value, *_ in records(side)} for side in (source, target)]
        assert latest[0] == latest[1]


def test_what_is_refused(sides):
    source, target = sides
    source.create_topic("t")
    source.log("t").append_many([b"1", b"2"])
    target.create_topic("t")
    target.log("t").append_many([b"mine"])
    with pytest.raises(MirrorDiverged, match="it has records, and not the config"):
        Mirror(source, target, ["t"]).copy()
    target.delete_topic("t")
    target.create_topic("t", config={"retention.ms": 86_400_000})
    Mirror(source, target, ["t"]).copy()
    assert records(source) == records(target)
    for append in (lambda: target.append("t", b"x"), lambda: target.log("t").append_many([b"x"])):
        with pytest.raises(PolicyViolation, match="mirrors another topic"):
            append()
    with pytest.raises(PolicyViolation, match="mirrors another topic"), target.producer() as producer:
        producer.send("t", b"x").result(timeout=60)
    with pytest.raises(PolicyViolation, match="no mirror"):
        source._session.produce("t", 0, convert.empty_batch(2, 5), mirrored=True)
    target.alter_topic("t", config={MIRROR_OF: None})
    target.log("t").append_many([b"own"])
    target.alter_topic("t", config={MIRROR_OF: source.describe_topic("t").topic_id})
    with pytest.raises(MirrorDiverged, match="ends at 3, the source's at 2"):
        Mirror(source, target, ["t"]).copy()
    source.log("t").append_many([b"theirs"])
    assert next(iter(source.log("t").follow(2, timeout_ms=60_000))).value == b"theirs"  # in a cluster it is replicated first
    with pytest.raises(MirrorDiverged, match="the batch at offset 2 of partition 0 differs"):
        Mirror(source, target, ["t"]).copy()
    source.delete_topic("t")
    source.create_topic("t")
    with pytest.raises(MirrorDiverged, match="that of the topic with id"):
        Mirror(source, target, ["t"]).copy()


def test_a_running_mirror_notices_that_its_source_has_lost_what_was_copied(tmp_path):
    """As after an unclean election, or a power cut of a server that does not sync each record."""
    with logdb.open(tmp_path / "source") as source:
        source.create_topic("t")
        source.log("t").append_many([b"kept"] * 10)
    shutil.copytree(tmp_path / "source", tmp_path / "before")
    with logdb.open(tmp_path / "target") as target:
        with logdb.open(tmp_path / "source") as source:
            source.log("t").append_many([b"lost"] * 10)
            mirror = Mirror(source, target, ["t"])
            assert mirror.copy() == 20
        with logdb.open(tmp_path / "before") as source:
            mirror._source = source  # the same URL
            for end_offset in (10, 15):  # at once, before there is anything to copy
                source.log("t").append_many([b"another"] * (end_offset - source.log("t").end_offset))
                with pytest.raises(MirrorDiverged, match=f"partition 0 ends at 20, the source's at {end_offset}"):
                    mirror.copy()
            source.log("t").append_many([b"another"] * 5)
            assert mirror.copy() == 0
            source.log("t").append_many([b"more"])
            with pytest.raises(MirrorDiverged, match="the batch at offset 19 of partition 0 differs"):
                mirror.copy()
        assert target.log("t").end_offset == 20


def test_a_compacted_topic_that_begins_late(sides):
    source, target = sides
    source.create_topic("t", config={"segment.bytes": 1024})
    source.log("t").append_many([b"%d" % number for number in range(100)], keys=[b"%d" % (number % 7) for number in range(100)])
    source.delete_records("t", 0, 40)
    source.alter_topic("t", config={"cleanup.policy": "compact"})
    mirror = Mirror(source, target, ["t"])
    assert mirror.copy() == 100
    assert mirror.copy() == 0
    assert records(source) == [record for record in records(target) if record[0] >= 40]


def appended_then(monkeypatch, mirror, what):
    """Let something happen after the mirror's first append, which is of one batch."""
    append = mirror._append

    def once(where, data):
        end = append(where, data)
        mirror._append = append
        what()
        return end

    monkeypatch.setattr(mirrors, "CHUNK_SIZE_BYTES", 1)
    mirror._append = once


def test_retention_overtakes_the_mirror(sides, monkeypatch):
    source, target = sides
    source.create_topic("t")
    for number in range(10):
        source.log("t").append_many([b"%d" % number])
        source.flush()
    mirror = Mirror(source, target, ["t"])
    appended_then(monkeypatch, mirror, lambda: source.delete_records("t", 0, 7))
    assert mirror.copy() == 1
    assert mirror.copy() == 9
    same(source, target)


def test_a_topic_is_deleted_while_it_is_copied(sides, monkeypatch):
    source, target = sides
    for topic in ("t", "u"):
        source.create_topic(topic)
        for number in range(3):
            source.log(topic).append_many([b"%d" % number])
            source.flush()
    mirror = Mirror(source, target, ["t", "u"])
    appended_then(monkeypatch, mirror, lambda: source.delete_topic("t"))
    mirror.copy()
    assert records(target, "u") == records(source, "u")
    mirror.copy()
    assert [where.topic for where in mirror.progress] == ["u"]


@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
def test_a_side_that_was_closed_is_an_error(sides, side):
    source, target = sides
    source.create_topic("t")
    source.log("t").append_many([b"1"])
    mirror = Mirror(source, target, ["t"])
    sides[side].close()
    with pytest.raises(Closed):
        mirror.copy()


@pytest.mark.parametrize("seed", range(5))
def test_stopped_at_any_append(tmp_path, seed):
    """A mirror that ends at any append is another one's begin: the same bytes at the same offsets."""
    rng = random.Random(seed)
    with logdb.open(tmp_path / "source") as source, logdb.open(tmp_path / "target") as target:
        source.create_topic("t", config={"segment.bytes": 2048})
        log = source.log("t")
        for _ in range(40):
            match rng.randrange(6):
                case 0:
                    aborted(source)
                case 1:
                    with source.transaction("y") as transaction:
                        transaction.send("t", rng.randbytes(50))
                case 2:
                    log.flush()
                    source.delete_records("t", 0, rng.randint(log.start_offset, log.end_offset))
                case _:
                    log.append_many([rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(1, 20))])
            mirror, left = Mirror(source, target, ["t"]), rng.randrange(4)
            append = mirror._append

            def failing(where, data, append=append):
                nonlocal left
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
                return append(where, data)

            mirror._append = failing
            with contextlib.suppress(KeyboardInterrupt):
                mirror.copy()
        Mirror(source, target, ["t"]).copy()
        assert records(source) == records(target)
        assert target.log("t").end_offset == log.end_offset


def test_the_command(tmp_path):
    with logdb.open(tmp_path / "source") as source:
        source.create_topic("t", partitions=2)
        source.log("t", 1).append_many([b"1", b"2"])
        result = CliRunner().invoke(
            cli, ["mirror", str(tmp_path / "source"), str(tmp_path / "target"), "--topics", "t", "--once", "--json"]
        )
        assert result.exit_code == 0, result.output
        assert '{"topic": "t", "partition": 1, "offset": 2, "lag": 0}' in result.stdout.replace('":', '": ').replace(",", ", ").replace(
            "  ", " "
        )
        with logdb.open(tmp_path / "target") as target:
            assert records(target, "t", 1) == records(source, "t", 1)
            target.delete_topic("t")
            target.create_topic("t")
            target.append("t", b"x")
            target.flush()
        result = CliRunner().invoke(cli, ["mirror", str(tmp_path / "source"), str(tmp_path / "target"), "--topics", "t", "--once"])
        assert result.exit_code == 2
        assert "topic t of the target" in result.stderr


def mirrored(source, target, *words):
    return CliRunner().invoke(cli, ["mirror", str(source), str(target), "--topics", *words])


def test_a_topic_that_is_not_there_is_refused_before_the_target_is_made(tmp_path):
    with logdb.open(tmp_path / "source") as source:
        source.create_topic("t")
    for topics in ("typo", "t,typo", "__consumer_offsets"):
        result = mirrored(tmp_path / "source", tmp_path / "target", topics, "--once")
        assert result.exit_code == 2, result.output
        assert f"unknown topic {topics.removeprefix('t,')!r}; there are 't'" in result.stderr
        assert not (tmp_path / "target").exists()
    result = mirrored(tmp_path / "source", tmp_path / "target", "x*,t", "--once")
    assert result.exit_code == 0, result.output
    assert "no topic of the source matches 'x*'\n" in result.stderr


def test_a_topic_may_come_while_the_mirror_runs(tmp_path, monkeypatch):
    def copy(mirror):
        raise KeyboardInterrupt

    monkeypatch.setattr(Mirror, "copy", copy)
    with logdb.open(tmp_path / "source") as source:
        source.create_topic("t")
    assert "no topic of the source matches 'typo' yet\n" in mirrored(tmp_path / "source", tmp_path / "target", "typo,t").stderr


def test_a_side_may_be_host_and_port(tmp_path):
    with logdb.open(tmp_path / "source") as source, logdb.serve(source, http="127.0.0.1:0") as server:
        source.create_topic("t")
        source.log("t").append(b"1")
        result = mirrored(server.addresses[0].removeprefix("http://"), tmp_path / "target", "t", "--once")
        assert result.exit_code == 0, result.output
        with logdb.open(tmp_path / "target") as target:
            assert records(target) == records(source)
    assert "'http://localhost'" in mirrored("http:/localhost", tmp_path / "target", "t", "--once").stderr


def test_the_command_outlives_its_source_while_it_reads_offsets_of_groups(tmp_path, monkeypatch):
    address, read_offsets = f"127.0.0.1:{free_port()}", Mirror._read_offsets
    with logdb.open(tmp_path / "source") as source:
        source.create_topic("t")
        source.log("t").append_many([b"1", b"2"])
        with source.consumer(group_id="g") as consumer:
            consumer.assign([WHERE])
            consumer.seek(WHERE, 2)
            consumer.commit()
        server, calls = logdb.serve(source, http=address), 0

        def while_it_restarts(mirror, topics):
            nonlocal server, calls
            calls += 1
            if calls == 3:
                raise KeyboardInterrupt
            if calls == 2:
                return read_offsets(mirror, topics)
            server.close()
            try:
                read_offsets(mirror, topics)
            finally:
                server = logdb.serve(source, http=address)

        monkeypatch.setattr(Mirror, "_read_offsets", while_it_restarts)
        words = ["--request-timeout-ms", "1000", "mirror", f"http://{address}", str(tmp_path / "target"), "--topics", "t"]
        result = CliRunner().invoke(cli, words)
        server.close()
    assert calls == 3, result.output
    with logdb.open(tmp_path / "target") as target:
        assert target._session.fetch_offsets("g")[WHERE].offset == 2
