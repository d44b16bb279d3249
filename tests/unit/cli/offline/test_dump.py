import os
import tracemalloc

import pytest

from logdb.cli.offline import dump as module
from logdb.coordinator import records
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.log.producers import Batch, Producer, ProducerStates
from logdb.model import AbortedTransaction, TopicPartition
from logdb.segment import transaction_index
from support.batches import BASE_TIMESTAMP, Rec, encode_batch, encode_log

pytestmark = pytest.mark.local

NAME = f"{0:020d}"


@pytest.fixture
def log(tmp_path):
    def write(data, name=NAME):
        path = tmp_path / "t-0" / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return str(path)

    return write


def test_batch_as_kafka_prints_it(logdb_command, log):
    data = encode_batch(
        [Rec(b"k", b"v", (("h", b"1"), ("i", None))), Rec(None, None)],
        base_offset=5,
        leader_epoch=2,
        producer_id=9,
        producer_epoch=1,
        base_sequence=7,
        attributes=16,
    )
    crc = int.from_bytes(data[17:21], "big")
    path = log(data)
    batch = (
        "baseOffset: 5 lastOffset: 6 count: 2 baseSequence: 7 lastSequence: 8 producerId: 9 producerEpoch: 1 partitionLeaderEpoch: 2 "
        f"isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: {BASE_TIMESTAMP} "
        f"size: {len(data)} magic: 2 compresscodec: none crc: {crc} isvalid: true"
    )
    head = [f"Dumping {path}", "Log starting offset: 0", batch]
    first = f"| offset: 5 CreateTime: {BASE_TIMESTAMP} keySize: 1 valueSize: 1 sequence: 7 headerKeys: [h,i]"
    second = f"| offset: 6 CreateTime: {BASE_TIMESTAMP} keySize: -1 valueSize: -1 sequence: 8 headerKeys: []"
    assert logdb_command.out("dump", path).splitlines() == head
    assert logdb_command.out("dump", "--files", path, "--deep-iteration", kafka=True).splitlines() == [*head, first, second]
    printed = [*head, f"{first} key: k payload: v", second]
    assert logdb_command.out("dump", "--files", path, "--print-data-log", kafka=True).splitlines() == printed


def test_flags_of_kafka_dump_log(logdb_command, log):
    first = encode_batch([Rec(b"k", (7).to_bytes(8, "big"))])
    marker = encode_batch([Rec(b"\0\0\0\1", b"\0\0\0\0\0\5")], base_offset=1, attributes=48, producer_id=1, producer_epoch=0)
    path = log(first + marker)

    def records(*flags):
        lines = logdb_command.out("dump", "--files", path, *flags, kafka=True).splitlines()[2:]
        return [line for line in lines if not line.startswith("baseOffset")]

    *_, record, control = records("--value-decoder-class", "org.apache.kafka.tools.api.LongDecoder")
    assert record.endswith(" key: k payload: 7")
    metadata = f"CreateTime: {BASE_TIMESTAMP} keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
    assert control == f"| offset: 1 {metadata} endTxnMarker: COMMIT coordinatorEpoch: 5"
    assert records("--key-decoder-class", "--skip-record-metadata")[1:] == [""]
    assert len(records("--deep-iteration", "--max-bytes", str(len(first)))) == 1
    assert "must be" in logdb_command("dump", "--files", path, "--key-decoder-class", "x.Y", kafka=True, code=2).stderr


def test_state_of_coordinators(logdb_command, log):
    """Text of what is known, in the version that it has; the rest as it is."""
    key = records.offset_key("g", TopicPartition("t", 3))
    value = records.offset_value(records.OffsetValue(7, -1, "m", 9, 11))
    path = log(encode_batch([Rec(key, value), Rec(key, None), Rec(b"\0\x09new", b"v"), Rec(b"k", b"v")]))
    lines = logdb_command.out("dump", path, "--offsets-decoder").splitlines()[-4:]
    named = 'key: {"type":"1","data":{"group":"g","topic":"t","partition":3}}'
    told = 'payload: {"version":"1","data":{"offset":7,"metadata":"m","commitTimestamp":9,"expireTimestamp":11}}'
    assert [line.split("headerKeys: []")[1] for line in lines] == [
        f" {named} {told}",
        f" {named} payload: <DELETE>",
        "",
        " key: k payload: v",
    ]


@pytest.mark.parametrize(("attributes", "words"), [(8, "LogAppendTime: "), (64, f"deleteHorizonMs: OptionalLong[{BASE_TIMESTAMP}]")])
def test_attributes(logdb_command, log, attributes, words):
    assert words in logdb_command.out("dump", log(encode_batch([b"v"], attributes=attributes)))


def test_control_batch(logdb_command, log):
    marker = Rec(b"\0\0\0\1", b"\0\0\0\0\0\5")
    path = log(encode_batch([marker], attributes=48, producer_id=1, producer_epoch=0))
    assert logdb_command.out("dump", path, "--deep-iteration").splitlines()[-1] == "| offset: 0 endTxnMarker: COMMIT coordinatorEpoch: 5"
    assert logdb_command.json_lines("dump", path, "--deep-iteration")[-1]["type"] == "COMMIT"


def test_json_lines(logdb_command, log):
    path = log(encode_log([[b"a"], [Rec(b"\xff", b"b", (("h", b"1"),))]]))
    lines = logdb_command.json_lines("dump", path, "--print-data-log")
    assert [(line["kind"], line["file"]) for line in lines] == [(kind, path) for kind in ("batch", "record") * 2]
    assert (lines[2]["base_offset"], lines[2]["valid"], lines[2]["compression"]) == (1, True, "none")
    assert (lines[3]["key"], lines[3]["value"], lines[3]["headers"]) == ({"base64": "/w=="}, "b", [["h", "1"]])


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed(logdb_command, codec):
    logdb_command("topics", "create", "t", "-c", f"compression.type={codec}")
    logdb_command("produce", "t", stdin="value\n" * 100)
    out = logdb_command.out("dump", f"{logdb_command.data_dir}/t-0", "--print-data-log")
    assert f"compresscodec: {codec}" in out
    assert out.count("payload: value\n") == 100


def test_damage_is_shown_and_the_exit_code_is_one(logdb_command, log):
    data = encode_log([[b"a"], [b"b"], [b"c"]])
    size = len(data) // 3
    crc = data[: size + 65] + b"\xff" + data[size + 66 :]
    out = logdb_command.out("dump", log(crc), code=1)
    assert "isvalid: false (" in out
    assert "computed" in out
    assert "baseOffset: 2" in out
    magic = data[: size + 16] + b"\1" + data[size + 17 :]
    out = logdb_command.out("dump", log(magic), code=1)
    assert f"Found {size} invalid bytes before the next whole batch, from position {size}: " in out
    kinds = [line["kind"] for line in logdb_command.json_lines("dump", log(magic), code=1)]
    assert kinds == ["batch", "damage", "batch"]
    assert "at the end of" in logdb_command.out("dump", log(data[:-1]), code=1)
    lying = encode_batch([b"a"], body=b"\x7f" + bytes(9))
    assert "not a valid record batch" in logdb_command.out("dump", log(lying), "--deep-iteration", code=1)


def test_room_reserved_ahead_is_no_damage(logdb_command, log):
    assert "100 zeroes at the end" in logdb_command.out("dump", log(encode_batch([b"a"]) + bytes(100)))


def test_a_partition_of_a_database(filled):
    directory = f"{filled.data_dir}/one-0"
    out = filled.out("dump", directory)
    assert [line for line in out.splitlines() if line.startswith("Dumping")] == [
        f"Dumping {directory}/{NAME}{suffix}" for suffix in (".log", ".index", ".timeindex")
    ]
    assert filled.out("dump", directory, "--index-sanity-check").count("passed sanity check.") == 2
    assert "mismatch" not in filled.out("dump", directory, "--verify-index-only")


def test_many_segments_and_their_indexes_agree(logdb_command):
    logdb_command("topics", "create", "t", "-c", "segment.bytes=20000", "-c", "index.interval.bytes=1000")
    for first in range(0, 10_000, 500):
        logdb_command("produce", "t", stdin="".join(f"value {n}\n" for n in range(first, first + 500)))
    lines = logdb_command.json_lines("dump", f"{logdb_command.data_dir}/t-0")
    assert len({line["file"] for line in lines if line["kind"] == "batch"}) > 3
    assert {line["kind"] for line in lines} == {"batch", "entry"}
    assert logdb_command.out("dump", f"{logdb_command.data_dir}/t-0", "--verify-index-only").count("entry") == 0


def test_index_that_lies(logdb_command, log):
    path = log(encode_log([[b"a"], [b"b"]])).replace(".log", ".index")
    with open(path, "wb") as file:
        file.write(bytes.fromhex("00000005 00000000"))
    assert "index offset 5, log offset 0, at position 0" in logdb_command.out("dump", path, "--verify-index-only", code=1)
    assert logdb_command.out("dump", path, code=1).splitlines()[1] == "offset: 5 position: 0"
    (entry, damage) = logdb_command.json_lines("dump", path, code=1)
    assert (entry["kind"], entry["offset"], damage["kind"]) == ("entry", 5, "damage")
    assert "passed" in logdb_command.out("dump", path, "--index-sanity-check")


@pytest.mark.parametrize(
    ("name", "words"), [(None, "name a file"), ("nosuch", "no file or directory"), ("x.txt", "none of *.log"), ("5.log", "20 digits")]
)
def test_refused(logdb_command, tmp_path, name, words):
    (tmp_path / "x.txt").touch()
    (tmp_path / "5.log").touch()
    assert words in logdb_command("dump", *([] if name is None else [str(tmp_path / name)]), code=2).stderr


def test_a_database_is_no_partition(filled):
    assert "a partition's is" in filled("dump", filled.data_dir, code=2).stderr


def test_files_of_a_directory_come_segment_by_segment(tmp_path):
    for name in ("2.log", "1.timeindex", "1.log", "1.index", "topic.json"):
        (tmp_path / name).touch()
    assert [path.rsplit("/", 1)[1] for path in module.files_of(str(tmp_path))] == ["1.log", "1.index", "1.timeindex", "2.log"]


def producer_files(directory):
    producers = [Producer(7, 1, (Batch(4, 4, 4), Batch(6, 9, 1)), 99, 3, 8), Producer(8, 0)]
    producer_snapshot.save(IO(), str(directory), 10, ProducerStates(producers), {})
    path = directory / f"{NAME}.txnindex"
    path.write_bytes(transaction_index.encode([AbortedTransaction(7, 3, 8, 9)]))
    return str(path), producer_snapshot.snapshot_path(str(directory), 10)


def test_producers_and_their_aborted_transactions(logdb_command, tmp_path):
    index, snapshot = producer_files(tmp_path)
    lines = logdb_command.out("dump", str(tmp_path)).splitlines()
    assert lines == [
        f"Dumping {index}",
        "version: 0 producerId: 7 firstOffset: 3 lastOffset: 8 lastStableOffset: 9",
        f"Dumping {snapshot}",
        (
            "producerId: 7 producerEpoch: 1 coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong[8] lastTimestamp: 99 "
            "firstSequence: 5 lastSequence: 6 lastOffset: 9 offsetDelta: 1 timestamp: 99"
        ),
        "producerId: 8 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: -1 ",
    ]
    documents = logdb_command.json_lines("dump", index, snapshot)
    assert [(line["kind"], line["producer_id"]) for line in documents] == [("aborted", 7), ("producer", 7), ("producer", 8)]
    assert documents[1]["batches"][0] == {"first_sequence": 0, "last_sequence": 4, "last_offset": 4, "offset_delta": 4}


@pytest.mark.parametrize("which", [0, 1])
def test_producer_files_that_are_damaged(logdb_command, tmp_path, which):
    path = producer_files(tmp_path)[which]
    with open(path, "ab") as file:
        file.write(b"x")
    assert path in logdb_command("dump", path, code=1).stdout.splitlines()[1]
    assert logdb_command.json_lines("dump", path, "--index-sanity-check", code=1)[0]["kind"] == "damage"


# ---------------------------------------------------------------- odd files


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_pipe_is_damage_and_hangs_nothing(logdb_command, tmp_path, suffix):
    os.mkfifo(tmp_path / f"{0:020d}{suffix}")
    assert "it is a pipe, not a regular file" in logdb_command("dump", str(tmp_path), code=1).stdout


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_sparse_file_takes_no_memory(logdb_command, tmp_path, suffix):
    path = tmp_path / f"{0:020d}{suffix}"
    path.touch()
    os.truncate(path, 8 << 30)
    (tmp_path / f"{0:020d}.log").touch()
    tracemalloc.start()
    try:
        logdb_command("dump", str(path), code=1)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
