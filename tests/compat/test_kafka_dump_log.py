"""Kafka's dump-log tool and storage engine read partition directories of ours, and we read theirs.

The Java side is KafkaPeer.java, one process for this file; skipped, with the reason, where Java or Maven are missing.
"""

import base64
import json
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import logdb
from benches.peers import SHORT_LIVED
from benches.peers.kafka.jars import TOOLS
from logdb.cli.offline import dump_producers
from logdb.client.producer.partitioner import partition_for_key
from logdb.codec import control
from logdb.codec.batch import CONTROL, TRANSACTIONAL, Scanner, Status
from logdb.coordinator.consumer_protocol import Assignment, Subscription
from logdb.io import IO
from logdb.log import epochs, preallocation, producer_snapshot
from logdb.log.producers import Producer, ProducerStates
from logdb.model import COMPRESSION_TYPES, OffsetAndMetadata, TopicPartition
from support.batches import BASE_TIMESTAMP, Rec
from support.peers import RECORDS, Row, rows_expected
from support.produced import Sender, batch, open_bare

CODECS = pytest.mark.parametrize("codec", COMPRESSION_TYPES)
CONFIG = {"segment.bytes": 4_096, "index.interval.bytes": 512}  # several segments with several index entries, whatever the codec
BATCH_SIZE = 2_000
TIMESTAMPS = [0, BASE_TIMESTAMP, BASE_TIMESTAMP + 1, BASE_TIMESTAMP + 300, BASE_TIMESTAMP + 599, BASE_TIMESTAMP + 600]

# Appends until it is killed; says each offset up to which it was acknowledged.
WRITER = """
import sys, logdb
db = logdb.open(sys.argv[1], durability=sys.argv[2], batch_size=2_000)
db.create_topic("t", config={"segment.bytes": 4_096, "index.interval.bytes": 512}, if_not_exists=True)
log = db.log("t")
while True:
    first = log.end_offset
    offsets = log.append_many([b"%d" % offset for offset in range(first, first + 50)])
    log.flush(sync=False)
    print(offsets[-1], flush=True)
"""


class Kafka:
    """One JVM that answers questions (KafkaPeer.java)."""

    def __init__(self) -> None:
        source = Path(__file__).parent / "KafkaPeer.java"
        command = ["java", "-Xmx256m", *SHORT_LIVED, "-cp", f"{TOOLS.directory}/*", str(source)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        assert self._process.stdin and self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def close(self) -> None:
        self._requests.close()
        self._answers.close()
        self._process.wait()

    def ask(self, do: str, **details: Any) -> Any:
        self._requests.write(json.dumps({"do": do, **details}, default=encode) + "\n")
        self._requests.flush()
        answer = json.loads(self._answers.readline())
        assert "error" not in answer, answer["error"]
        return answer

    def dump(self, files: Sequence[Path], *options: str) -> tuple[list[str], list[str]]:
        """What DumpLogSegments prints, and what it complains of, in lines."""
        answer = self.ask("dump", arguments=[*options, "--files", ",".join(str(file) for file in files)])
        return answer["output"].splitlines(), answer["complaints"].splitlines()

    def read(self, directory: Path, *, clean: bool) -> Any:
        """What UnifiedLog finds; ``clean``: it trusts segments and indexes, or else makes the indexes anew."""
        answer = self.ask("read", directory=directory, clean=clean, timestamps=TIMESTAMPS)
        answer["records"] = [
            (offset, timestamp, decode(key), decode(value), [(name, decode(content)) for name, content in headers])
            for offset, timestamp, key, value, headers in answer["records"]
        ]
        return answer


def encode(data: bytes | Path) -> str:
    return str(data) if isinstance(data, Path) else base64.b64encode(data).decode()


def decode(data: str | None) -> bytes | None:
    return None if data is None else base64.b64decode(data)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    if reason := TOOLS.missing():
        pytest.skip(f"Kafka's jars: {reason}")
    peer = Kafka()
    yield peer
    peer.close()


def append(path: Path, codec: str = "none") -> Path:
    """A closed database with RECORDS in its topic t, in many batches and segments; returns the partition's directory."""
    with logdb.open(path, batch_size=BATCH_SIZE) as db:
        db.create_topic("t", config={"compression.type": codec, **CONFIG})
        append_records(db.log("t"), RECORDS)
    return path / "t-0"


def append_records(log: Any, records: Sequence[Rec]) -> None:
    headers, timestamps_ms = [r.headers for r in records], [r.timestamp_ms for r in records]
    log.append_many([r.value for r in records], [r.key for r in records], headers=headers, timestamps_ms=timestamps_ms)


def to_send(records: Sequence[Rec]) -> list[Any]:
    return [(r.timestamp_ms, r.key, r.value, r.headers) for r in records]


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*{suffix}"))


def rows(records: Any) -> list[Row]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in records]


def printed(row: Row) -> str:
    """A record as DumpLogSegments prints it."""
    offset, timestamp, key, value, headers = row
    sizes = f"keySize: {-1 if key is None else len(key)} valueSize: {-1 if value is None else len(value)}"
    line = f"| offset: {offset} CreateTime: {timestamp} {sizes} sequence: -1 headerKeys: [{','.join(name for name, _ in headers)}]"
    return line + ("" if key is None else f" key: {key.decode()}") + ("" if value is None else f" payload: {value.decode()}")


def check_dump(kafka: Kafka, directory: Path, expected: list[Row], codec: str = "none") -> None:
    """All modes of the tool over all files of a partition: the records as expected, and no complaint."""
    logs, indexes = files(directory, ".log"), files(directory, ".index") + files(directory, ".timeindex")
    lines, complaints = kafka.dump(logs, "--print-data-log", "--deep-iteration")
    assert [line for line in lines if line.startswith("|")] == [printed(row) for row in expected]
    batches = [line for line in lines if line.startswith("baseOffset: ")]
    assert all(line.endswith("isvalid: true") for line in batches)
    assert {re.search(r"compresscodec: (\w+)", line)[1] for line in batches} == {codec}  # type: ignore[index]
    assert beyond_its_own(complaints) == []
    headings = [f"{word} {file}" for file in logs for word in ("Dumping", "Log starting offset:")]
    assert len(lines) == len(headings) + len(batches) + len(expected)

    for option, said in (("--index-sanity-check", sanity), ("--verify-index-only", silence), ("", entries)):
        lines, complaints = kafka.dump(indexes, *option.split())
        assert lines == [line for file in indexes for line in (f"Dumping {file}", *(said(file) if file.stat().st_size else empty(file)))]
        assert complaints == []


def beyond_its_own(complaints: list[str]) -> list[str]:
    """Without those of every file that does not begin at offset 0: the tool counts on from -1 in each (see below)."""
    own = r"Non-consecutive offsets in .*|  -1 is followed by \d+"
    return [line for line in complaints if not re.fullmatch(own, line)]


def sanity(index: Path) -> list[str]:
    return [f"{index} passed sanity check."]


def silence(_index: Path) -> list[str]:
    return []


def empty(index: Path) -> list[str]:
    return [f"{index} is empty."]


def entries(file: Path) -> list[str]:
    base_offset = int(file.stem)
    if file.suffix == ".index":
        return [f"offset: {base_offset + at} position: {position}" for at, position in struct.iter_unpack(">ii", file.read_bytes())]
    return [f"timestamp: {timestamp} offset: {base_offset + at}" for timestamp, at in struct.iter_unpack(">qi", file.read_bytes())]


# ---------------------------------------------------------------- ours, read by Kafka


@CODECS
def test_the_tool_prints_what_was_appended(kafka: Kafka, tmp_path: Path, codec: str) -> None:
    directory = append(tmp_path, codec)
    assert len(files(directory, ".log")) > 2
    check_dump(kafka, directory, rows_expected(RECORDS), codec)


@CODECS
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "recovered"])
def test_the_storage_engine_reads_what_was_appended(kafka: Kafka, tmp_path: Path, codec: str, clean: bool) -> None:
    directory = append(tmp_path, codec)
    indexes = {file: file.read_bytes() for file in files(directory, "index")}
    with logdb.open(tmp_path, mode="r") as db:
        offsets = [db.log("t").offset_for_timestamp(timestamp) for timestamp in TIMESTAMPS]
    seen = kafka.read(directory, clean=clean)
    assert seen["records"] == rows_expected(RECORDS)
    assert (seen["end_offset"], seen["segment_count"]) == (len(RECORDS), len(files(directory, ".log")))
    assert seen["checkpoint"] == seen["epochs"] == [[0, 0]]
    assert seen["offsets"] == offsets
    # It took the indexes as they are, or made the same ones.
    assert {file: file.read_bytes() for file in files(directory, "index")} == indexes


def compacted(path: Path, codec: str) -> tuple[Path, list[Row]]:
    """A closed database with a compacted topic t: whole batches gone, others in part, tombstones, an aborted transaction."""
    config = {"cleanup.policy": "compact", "compression.type": codec, **CONFIG}
    values = [None if n % 9 == 0 else b"value %d " % n * 4 for n in range(600)]
    records = [Rec(b"key %d" % (n * n % 71), value, timestamp_ms=BASE_TIMESTAMP + n) for n, value in enumerate(values)]
    with open_bare(path, batch_size=500) as db:
        db.create_topic("t", config=config)
        log = db.log("t")
        append_records(log, records[:400])
        sender = Sender(log, transactional=True)
        log.append_batches(batch([(b"aborted", b"%d" % n) for n in range(5)], *sender.name, 0, transactional=True))
        sender.end(commit=False)
        append_records(log, records[400:])
        db.compact("t")
        append_records(log, records[:50])
        return path / "t-0", rows(log.read(0))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_tool_prints_what_compaction_left(kafka: Kafka, tmp_path: Path, codec: str) -> None:
    directory, expected = compacted(tmp_path, codec)
    lines, complaints = kafka.dump(files(directory, ".log"), "--print-data-log", "--deep-iteration")
    assert [line for line in lines if line.startswith("|") and "endTxnMarker" not in line] == [printed(row) for row in expected]
    batches = [line for line in lines if line.startswith("baseOffset: ")]
    assert all(line.endswith("isvalid: true") for line in batches)
    spans = [[int(number) for number in re.findall(r"(?:baseOffset|lastOffset): (\d+)", line)] for line in batches]
    assert all(one[1] + 1 == other[0] for one, other in pairwise(spans))
    assert any("deleteHorizonMs: OptionalLong[" in line for line in batches)
    assert all(re.match(r"Non-consecutive offsets in |  -?\d+ is followed by \d+", line) for line in complaints)  # as of any compacted log
    for index in files(directory, ".index"):
        assert kafka.dump([index], "--index-sanity-check")[0][1:] == (sanity(index) if index.stat().st_size else empty(index))


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "recovered"])
def test_the_storage_engine_reads_what_compaction_left(kafka: Kafka, tmp_path: Path, codec: str, clean: bool) -> None:
    directory, expected = compacted(tmp_path, codec)
    indexes = {file: file.read_bytes() for file in files(directory, "index")}
    seen = kafka.read(directory, clean=clean)
    assert seen["records"] == expected
    assert (seen["end_offset"], seen["segment_count"]) == (656, len(files(directory, ".log")))
    assert {file: file.read_bytes() for file in files(directory, "index")} == indexes


def test_the_tool_sees_what_is_wrong(kafka: Kafka, tmp_path: Path) -> None:
    directory = append(tmp_path)
    index, time_index = files(directory, ".index")[0], files(directory, ".timeindex")[0]
    for file, at in ((index, 7), (time_index, 7), (time_index, 11)):
        sound = file.read_bytes()
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        lines, complaints = kafka.dump([file])
        assert complaints, (file, at, lines)
        file.write_bytes(sound)


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_a_killed_writer_leaves_what_kafka_can_recover(kafka: Kafka, tmp_path: Path, durability: str) -> None:
    path, copy = tmp_path / "db", tmp_path / "copy" / "t-0"
    for _ in range(3):
        acknowledged = kill_a_writer(path, durability)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path / "t-0", copy)  # as the kill left it: no writer has come back yet
        seen = kafka.read(copy, clean=False)
        assert seen["end_offset"] > acknowledged
        assert [row[3] for row in seen["records"]] == [b"%d" % offset for offset in range(seen["end_offset"])]
    with logdb.open(path, batch_size=BATCH_SIZE) as db:
        append_records(db.log("t"), RECORDS)
        expected = rows(db.log("t").read(0))
    directory = path / "t-0"
    check_dump(kafka, directory, expected)
    began = [list(entry) for entry in epochs.decode((directory / "leader-epoch-checkpoint").read_bytes(), "").entries]
    assert len(began) == 4
    assert epochs_dumped(kafka, directory) == began
    seen = kafka.read(directory, clean=True)
    assert seen["checkpoint"] == seen["epochs"] == began
    assert seen["records"] == expected


def kill_a_writer(path: Path, durability: str) -> int:
    """SIGKILL it when it has acknowledged some; returns the last offset it had."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path, durability], stdout=subprocess.PIPE, text=True)
    assert writer.stdout
    lines = [writer.stdout.readline() for _ in range(30)]
    writer.kill()
    lines += writer.stdout.read().split("\n")[:-1]
    writer.stdout.close()
    writer.wait()
    return int(lines[-1])


def epochs_dumped(kafka: Kafka, directory: Path) -> list[list[int]]:
    """[epoch, first offset] as the batches have it."""
    lines, _ = kafka.dump(files(directory, ".log"))
    began: dict[int, int] = {}
    for line in lines:
        if found := re.match(r"baseOffset: (\d+) .*partitionLeaderEpoch: (\d+)", line):
            began.setdefault(int(found[2]), int(found[1]))
    return [[epoch, offset] for epoch, offset in began.items()]


def test_room_that_was_reserved_ahead_is_given_back(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preallocation, "STEP_SIZE_BYTES_MIN", 1)  # so few records would reserve nothing
    copy = tmp_path / "copy" / "t-0"
    with logdb.open(tmp_path / "db", durability="fsync") as db:
        db.create_topic("t")
        append_records(db.log("t"), RECORDS)
        shutil.copytree(tmp_path / "db" / "t-0", copy)
        (reserved,) = files(copy, ".log")
        assert reserved.stat().st_size > db.log("t").size_bytes
    seen = kafka.read(copy, clean=False)
    assert seen["records"] == rows_expected(RECORDS)
    (closed,), (trimmed,) = files(tmp_path / "db" / "t-0", ".log"), files(copy, ".log")
    assert closed.read_bytes() == trimmed.read_bytes()
    check_dump(kafka, tmp_path / "db" / "t-0", rows_expected(RECORDS))


def transact(path: Path) -> list[Sender]:
    """A closed database with transactions in its topic t, over several segments, some aborted and one open; returns the producers."""
    with logdb.open(path) as db:
        db.create_topic("t", config=CONFIG)
        log = db.log("t")
        senders = [Sender(log, number, transactional=number > 0) for number in range(4)]
        for sender in senders:
            sender.timestamp_ms = IO().clock_ms()  # or Kafka would forget them: it counts from the records' time
        for round_number in range(30):
            for sender in senders[:3]:
                sender.send(b"%d" % round_number * 20)
            senders[1].end(commit=round_number % 3 > 0, coordinator_epoch=1)
            senders[2].end(commit=round_number % 2 > 0, coordinator_epoch=1)
        senders[3].send(b"open")
        log.append(b"behind it")
    return senders


def test_the_tool_prints_what_we_know_of_producers(kafka: Kafka, tmp_path: Path) -> None:
    senders = transact(tmp_path)
    directory = tmp_path / "t-0"
    with logdb.open(tmp_path, mode="r") as db:
        log = db.log("t")
        aborted, stable = log.aborted_transactions(0, log.end_offset), log.last_stable_offset
    indexes = files(directory, ".txnindex")
    assert len(aborted) == 25 and len(indexes) > 2
    lines, complaints = kafka.dump(indexes)
    said = [
        f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
        f"lastStableOffset: {entry.last_stable_offset}"
        for entry in aborted
    ]
    assert [line for line in lines if not line.startswith("Dumping")] == said
    assert [dump_producers.aborted_line(entry) for file in indexes for entry in dump_producers.aborted_documents(str(file))] == said
    assert complaints == []
    newest = files(directory, ".snapshot")[-1]
    lines, complaints = kafka.dump([newest])
    assert lines[1:] == [dump_producers.producer_line(entry) for entry in dump_producers.producer_documents(str(newest))]
    found = [re.findall(r"(\w+): (?:OptionalLong\[)?([\w.-]+)", line) for line in lines[1:]]
    assert [(int(row["producerId"]), int(row["lastSequence"]), row["currentTxnFirstOffset"]) for row in map(dict, found)] == [
        (sender.producer_id, sender.sequence - 1, str(stable) if sender is senders[3] else "OptionalLong.empty") for sender in senders
    ]
    assert [dict(row)["coordinatorEpoch"] for row in found] == ["-1", "1", "1", "-1"]
    assert complaints == []


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "recovered"])
def test_the_storage_engine_goes_on_with_our_producers(kafka: Kafka, tmp_path: Path, clean: bool) -> None:
    senders = transact(tmp_path)
    directory = tmp_path / "t-0"
    with logdb.open(tmp_path, mode="r") as db:
        log = db.log("t")
        stable, end = log.last_stable_offset, log.end_offset
        first_segment = [[entry.producer_id, entry.first_offset] for entry in log.aborted_transactions(0, log.segments[0].next_offset)]
    indexes = {file: file.read_bytes() for file in files(directory, ".txnindex")}
    seen = kafka.read(directory, clean=clean)
    assert (seen["stable_offset"], seen["end_offset"]) == (stable, end)
    assert sorted(seen["producers"]) == [
        [sender.producer_id, 0, sender.sequence - 1, 1 if sender.producer_id in {1, 2} else -1, stable if sender is senders[3] else -1]
        for sender in senders
    ]
    assert seen["aborted"] == first_segment
    # It took the indexes as they are, or made the same ones.
    assert {file: file.read_bytes() for file in files(directory, ".txnindex")} == indexes
    batch = {"codec": "none", "epoch": 0, "records": to_send(RECORDS[:2]), "producer_id": 3, "sequence": 1, "end": "ABORT"}
    assert kafka.ask("write", directory=directory, batches=[batch])["end_offset"] == end + 3
    assert kafka.read(directory, clean=True)["stable_offset"] == end + 3


def test_kafka_goes_on_where_we_ended(kafka: Kafka, tmp_path: Path) -> None:
    directory = append(tmp_path)
    batch = {"codec": "zstd", "epoch": 5, "records": to_send(RECORDS)}
    assert kafka.ask("write", directory=directory, batches=[batch])["end_offset"] == 2 * len(RECORDS)
    seen = kafka.read(directory, clean=True)
    assert seen["records"] == rows_expected(RECORDS * 2)
    assert seen["epochs"] == [[0, 0], [5, len(RECORDS)]]


def test_keys_go_to_the_same_partitions(kafka: Kafka) -> None:
    keys = [bytes(range(start, start + size)) for size in range(32) for start in (0, 97, 224)]
    for count in (1, 3, 16, 1_000):
        partitions = kafka.ask("partition", keys=keys, count=count)["partitions"]
        assert partitions == [partition_for_key(key, count) for key in keys]


# ---------------------------------------------------------------- groups and transactions


def decoded(kafka: Kafka, path: Path, topic: str, option: str) -> list[Any]:
    """(key, value) of what the tool finds in an internal topic, and the markers; all of it without complaint."""
    found: list[Any] = []
    for file in sorted(path.glob(f"{topic}-*/*.log")):
        lines, complaints = kafka.dump([file], option, "--deep-iteration")
        assert complaints == []
        assert all(line.endswith("isvalid: true") for line in lines if line.startswith("baseOffset: "))
        for line in lines:
            if parts := re.search(r" key: (.+) payload: (.+)$", line):
                found.append((json.loads(parts[1])["data"], None if parts[2] == "<DELETE>" else json.loads(parts[2])))
            elif parts := re.search(r" endTxnMarker: (\w+)", line):
                found.append(parts[1])
    return found


def test_the_tool_decodes_groups_and_transactions(kafka: Kafka, tmp_path: Path) -> None:
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    with logdb.open(tmp_path) as db:
        session = db._session
        db.create_topic("t", partitions=2)
        subscription = Subscription(("t",), owned_partitions=(t1,), generation=4)
        joined = session.join_group(
            "g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocols=[("range", subscription.encode())],
            client_id="c",
            client_host="/10.0.0.7",
            group_instance_id="i",
        ).result()
        of_member = {"generation": joined.generation, "member_id": joined.member_id, "group_instance_id": "i"}
        session.sync_group("g", **of_member, assignments={joined.member_id: Assignment((t0, t1)).encode()}).result()
        session.commit_offsets("g", {t0: OffsetAndMetadata(5, 3, "note")}, **of_member).result()
        producer = session.init_producer_id("x")
        session.add_partitions("x", producer, [t0])
        session.add_offsets("x", producer, "g")
        session.commit_transaction_offsets("x", producer, "g", {t1: OffsetAndMetadata(9)}, **of_member)
        session.end_transaction("x", producer, commit=True)
        session.leave_group("g", group_instance_id="i")
        session.delete_group("g")

    group, first, second, marker, empty_group, *tombstones = decoded(kafka, tmp_path, "__consumer_offsets", "--offsets-decoder")
    (member,) = group[1]["data"]["members"]
    assert (group[0], group[1]["version"]) == ({"group": "g"}, "3")
    assert {key: group[1]["data"][key] for key in ("protocolType", "generation", "protocol", "leader")} == {
        "protocolType": "consumer",
        "generation": 1,
        "protocol": "range",
        "leader": joined.member_id,
    }
    assert member == {
        "memberId": joined.member_id,
        "groupInstanceId": "i",
        "clientId": "c",
        "clientHost": "/10.0.0.7",
        "rebalanceTimeout": 60_000,
        "sessionTimeout": 10_000,
        "subscription": {
            "topics": ["t"],
            "userData": None,
            "ownedPartitions": [{"topic": "t", "partitions": [1]}],
            "generationId": 4,
            "rackId": None,
        },
        "assignment": {"assignedPartitions": [{"topic": "t", "partitions": [0, 1]}], "userData": None},
    }
    assert first[0] == {"group": "g", "topic": "t", "partition": 0}
    assert {key: first[1]["data"][key] for key in ("offset", "leaderEpoch", "metadata")} == {
        "offset": 5,
        "leaderEpoch": 3,
        "metadata": "note",
    }
    assert (second[0]["partition"], second[1]["data"]["offset"], marker) == (1, 9, "COMMIT")
    assert (empty_group[1]["data"]["generation"], empty_group[1]["data"]["members"]) == (2, [])
    assert [(key.get("partition"), value) for key, value in tombstones] == [(0, None), (1, None), (None, None)]

    records = decoded(kafka, tmp_path, "__transaction_state", "--transaction-log-decoder")
    assert {key["transactionalId"] for key, _ in records} == {"x"}
    states = [value["data"] for _, value in records]
    assert [state["transactionStatus"] for state in states] == [0, 1, 1, 2, 4]
    assert [state["producerEpoch"] for state in states] == [0, 0, 0, 1, 1]
    assert {state["producerId"] for state in states} == {producer.producer_id}
    topics = [{entry["topic"] for entry in state["transactionPartitions"] or ()} for state in states]
    assert topics == [set(), {"t"}, {"t", "__consumer_offsets"}, {"t", "__consumer_offsets"}, set()]
    assert (states[0]["transactionPartitions"], states[3]["clientTransactionVersion"]) == (None, 2)


# ---------------------------------------------------------------- Kafka's, read by us


@CODECS
def test_its_partitions_are_read_by_us(kafka: Kafka, tmp_path: Path, codec: str) -> None:
    directory = tmp_path / "kafka" / "t-0"
    parts = [RECORDS[at : at + 40] for at in range(0, len(RECORDS), 40)]
    batches = [
        {"codec": codec, "epoch": number // 4, "roll": number in {5, 11}, "records": to_send(part)} for number, part in enumerate(parts)
    ]
    assert kafka.ask("write", directory=directory, batches=batches)["end_offset"] == len(RECORDS)

    checkpoint = epochs.load(IO(), str(directory / epochs.FILE_NAME))
    assert checkpoint is not None
    assert checkpoint.entries == tuple((number // 4, number * 40) for number in range(0, len(parts), 4))
    segments = files(directory, ".log")
    assert [int(segment.stem) for segment in segments] == [0, 200, 440]
    for segment in segments:
        data = segment.read_bytes()
        scanner = Scanner(segment_base_offset=int(segment.stem), epochs=checkpoint.entries, index_interval_bytes=512)
        assert (scanner.scan(data), scanner.position) == (Status.OK, len(data))
        assert scanner.codecs == 1 << COMPRESSION_TYPES.index(codec)
        assert scanner.index == segment.with_suffix(".index").read_bytes()
        scanner.close_time_index()
        assert scanner.time_index == segment.with_suffix(".timeindex").read_bytes()

    with logdb.open(tmp_path / "ours") as db:
        db.create_topic("t")
        log = db.log("t")
        for segment in segments:
            log.append_batches(segment.read_bytes(), expected_offset=int(segment.stem))
        assert rows(log.read(0)) == rows_expected(RECORDS)


def test_its_transactions_are_walked(kafka: Kafka, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    batches = [{"codec": "lz4", "epoch": 0, "records": to_send(RECORDS[:3]), "producer_id": 7, "end": "COMMIT"}]
    assert kafka.ask("write", directory=directory, batches=batches)["end_offset"] == 4
    (segment,) = files(directory, ".log")
    data, scanner = segment.read_bytes(), Scanner(segment_base_offset=0)
    assert scanner.scan(data) is Status.OK
    assert (scanner.next_offset, scanner.batch_count, scanner.record_count) == (4, 2, 4)
    assert scanner.attributes == COMPRESSION_TYPES.index("lz4") | TRANSACTIONAL | CONTROL
    assert control.parse(data[-scanner.last_size_bytes :]).type == control.ControlType.COMMIT


def test_we_know_of_its_producers_what_it_knows(kafka: Kafka, tmp_path: Path) -> None:
    directory, parts = tmp_path / "db" / "t-0", [RECORDS[at : at + 10] for at in range(0, 200, 10)]
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
    batches = [
        {
            "codec": "none",
            "epoch": 0,
            "records": to_send(part),
            "producer_id": number % 3,
            "sequence": number // 3 * 10,
            "roll": number % 7 == 6,
            **({} if number % 4 == 0 else {"end": "ABORT" if number % 4 == 1 else "COMMIT"}),
        }
        for number, part in enumerate(parts)
    ]
    kafka.ask("write", directory=directory, batches=batches)
    seen = kafka.read(directory, clean=True)
    kept = {file.name: file.read_bytes() for file in files(directory, ".txnindex")}
    snapshot = producer_snapshot.load(IO(), str(directory), seen["end_offset"]).states
    for file in (*files(directory, ".snapshot"), *files(directory, ".txnindex")):
        file.unlink()
    logdb.repair(tmp_path / "db", execute=True)
    made = {file.name: file.read_bytes() for file in files(directory, ".txnindex")}
    assert {name: data for name, data in made.items() if data} == {name: data for name, data in kept.items() if data}
    with logdb.open(tmp_path / "db") as db:
        log = db.log("t")
        assert (log.last_stable_offset, log.end_offset) == (seen["stable_offset"], seen["end_offset"])
    ours = producer_snapshot.load(IO(), str(directory), seen["end_offset"]).states

    def its_part(states: ProducerStates) -> list[Producer]:
        return sorted(known._replace(batches=known.batches[-1:], timestamp_ms=0, started_ms=0) for known in states.producers.values())

    assert its_part(ours) == its_part(snapshot)


def test_the_tool_complains_of_its_own_segments_too(kafka: Kafka, tmp_path: Path) -> None:
    # What beyond_its_own leaves out: should this fail, the tool was mended.
    batches = [{"codec": "none", "epoch": 0, "records": to_send(RECORDS[:1]), "roll": roll} for roll in (False, True)]
    kafka.ask("write", directory=tmp_path / "t-0", batches=batches)
    second = files(tmp_path / "t-0", ".log")[1]
    _, complaints = kafka.dump([second], "--deep-iteration")
    assert complaints == [f"Non-consecutive offsets in {second}", "  -1 is followed by 1"]
