"""What ``append`` has accepted is written: whatever could not be is refused before, or raises and is kept.

``append`` only encodes into the open batch; compressing and writing come later, and by then a config may be another one, or a
codec may fail.
"""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import zstandard

import logdb
from logdb.codec import compression, header
from logdb.errors import CloseIncomplete, CodecMissing, DiskFull, InvalidBatch, InvalidRecord, RecordTooLarge
from support.batches import Rec, encode_batch, encode_log
from support.faulty_io import FaultyIO
from support.places import opened
from support.serving import served

PACKAGES = [("snappy", "cramjam"), ("lz4", "lz4"), ("zstd", "zstandard")]
# A process in which the packages of the codecs are not installed.
HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("lz4", "zstandard", "cramjam"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import logdb
from logdb.errors import CodecMissing

def missing(call, codec="lz4"):
    try:
        call()
    except CodecMissing as error:
        assert error.codec == codec and f"pip install {error.package}" in str(error), error
    else:
        raise AssertionError(f"{call} was taken")
"""


def without_codecs(program: str, *arguments: object) -> None:
    words = [sys.executable, "-c", HIDDEN + textwrap.dedent(program), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def values(log: logdb.Log) -> list[bytes]:
    return [record.value for record in log.read(log.start_offset)]


# ---------------------------------------------------------------- codecs that are not installed


@pytest.mark.parametrize(("codec", "package"), PACKAGES)
def test_no_topic_comes_to_have_a_codec_that_is_missing(codec: str, package: str, tmp_path: Path) -> None:
    program = """
        path, codec, package = sys.argv[1:]
        config = {"compression.type": codec}
        with logdb.open(path) as db:
            missing(lambda: db.create_topic("c", config=config), codec)
            assert db.topics() == []
            db.create_topic("t")
            missing(lambda: db.alter_topic("t", config=config), codec)
            assert db.describe_topic("t").config == {}
            missing(lambda: db.producer(compression_type=codec), codec)
            db.create_topic("g", config={"compression.type": "gzip"})
            db.log("g").append(b"value")
            db.producer(compression_type="gzip").close()
    """
    without_codecs(program, tmp_path / "db", codec, package)


def test_a_topic_with_a_missing_codec_takes_no_record_and_is_read(tmp_path: Path) -> None:
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        db.log("t").append_many([b"0", b"1"], keys=[b"k", b"k"])
        with db.transaction("left open") as tx:  # its marker is no record
            tx.send("t", b"2", partition=0)
        db.alter_topic("t", config={"compression.type": "lz4"})
    (tmp_path / "batches").write_bytes(encode_log([[Rec(b"v", b"k")]]))
    program = """
        path, batches = sys.argv[1:]
        with logdb.open(path) as db:
            log = db.log("t")
            for call in (
                lambda: log.append(b"x"),
                lambda: log.append(b"x", durability="fsync"),
                lambda: log.append_many([b"x"]),
                lambda: log.append_batches(open(batches, "rb").read()),
                lambda: db.append("t", b"x"),
                lambda: db.append_many("t", [b"x", b"y"]),
            ):
                missing(call)
            with db.producer() as producer:
                future = producer.send("t", b"x", partition=0)
                missing(producer.flush)
                missing(future.result)
            assert [record.value for record in log.read(0)] == [b"0", b"1", b"2"]
            assert [record.value for record in log.read(0, isolation_level="read_committed")] == [b"0", b"1", b"2"]
            db.flush()
            db.alter_topic("t", partitions=3)  # whatever else it has can be altered
            db.alter_topic("t", config={"retention.ms": 1 << 40})
            missing(lambda: log.append(b"x"))
            db.alter_topic("t", config={"compression.type": None})
            assert log.append(b"3") == 4
        with logdb.open(path, mode="r") as db:
            assert [record.value for record in db.log("t").read(0)] == [b"0", b"1", b"2", b"3"]
    """
    without_codecs(program, tmp_path / "db", tmp_path / "batches")


def test_a_transaction_that_a_crash_left_open_is_ended_without_the_codec(tmp_path: Path) -> None:
    program = """if 1:
        import os, sys, logdb
        db = logdb.open(sys.argv[1])
        db.create_topic("t", config={"compression.type": "lz4"})
        tx = db.producer(transactional_id="id")
        tx.init_transactions()
        tx.begin_transaction()
        tx.send("t", b"x").result()
        db.alter_topic("t", config={"compression.type": "none"})
        tx.send("t", b"plain")
        tx.flush()
        db.alter_topic("t", config={"compression.type": "lz4"})
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "db")], check=True, timeout=60)
    program = """
        with logdb.open(sys.argv[1]) as db:
            db.session.dangling.start()
            log = db.log("t")
            assert log.open_transactions() == []
            assert log.last_stable_offset == log.end_offset == 3
    """
    without_codecs(program, tmp_path / "db")


def test_a_server_without_the_codec_refuses_and_a_client_needs_it_for_its_own_batches(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t", config={"compression.type": "lz4"})
        program = """
            with logdb.open(sys.argv[1]) as db:
                missing(lambda: db.log("t").append(b"x"))
                missing(lambda: db.producer(compression_type="lz4"))
                assert db.log("t").end_offset == 0
                with db.producer() as producer:
                    assert producer.send("t", b"x").result().offset == 0  # the server compresses it
        """
        without_codecs(program, server.url)
        assert values(server.database.log("t")) == [b"x"]
    program = """
        with logdb.open(sys.argv[1]) as held, logdb.serve(held, http="127.0.0.1:0") as server, logdb.open(server.addresses[0]) as db:
            missing(lambda: db.create_topic("u", config={"compression.type": "lz4"}))
            missing(lambda: db.alter_topic("t", config={"compression.type": "zstd"}), "zstd")
            with db.producer() as producer:
                future = producer.send("t", b"x")
                missing(producer.flush)
            assert db.log("t").end_offset == 1
    """
    without_codecs(program, tmp_path / "db")


# ---------------------------------------------------------------- codecs that fail


class Failing:
    """A codec that fails at some of its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self._compress, self.error, self.is_on, self.call_count = compression.compress, error, True, 0
        monkeypatch.setattr(compression, "compress", self)

    def __call__(self, codec: int, data: bytes) -> bytes:
        self.call_count += 1
        if self.is_on:
            raise self.error
        return self._compress(codec, data)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("LZ4F_compressFrame failed"), CodecMissing("lz4", "lz4")])
@pytest.mark.parametrize("durability", ["os", "interval", "fsync"])
def test_where_a_codec_fails_records_are_written_uncompressed(error, durability, tmp_path, monkeypatch, caplog) -> None:
    with logdb.open(tmp_path / "db", durability=durability, linger_ms=60_000) as db:
        db.create_topic("t", config={"compression.type": "lz4"})
        failing = Failing(monkeypatch, error)
        log = db.log("t")
        log.append(b"0" * 100)
        log.append_many([b"1" * 100, b"2" * 100])
        failing.is_on = False
        log.append_many([b"3" * 100])
        log.flush()
        codecs = [header(log.read_batches(offset, 1)[0])[1].attributes & 7 for offset in (0, 3)]
        assert (codecs, failing.call_count) == ([0, 3], len(caplog.messages) + 1)
    assert {text.partition(":")[0] for text in caplog.messages} == {"t-0"}
    with logdb.open(tmp_path / "db") as db:
        assert values(db.log("t")) == [number * 100 for number in (b"0", b"1", b"2", b"3")]


def test_a_codec_that_fails_at_a_try_again_keeps_what_is_left(tmp_path, monkeypatch) -> None:
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io, batch_size=1000, linger_ms=60_000) as db:
        db.create_topic("t", config={"compression.type": "zstd"})
        log = db.log("t")
        noise = [os.urandom(800) for _ in range(12)]
        for value in noise:
            log.append(value)
            if value is noise[0]:
                log.flush()
        db.alter_topic("t", config={"segment.bytes": 4000})
        io.fail("create", errno.ENOSPC, ".log")  # the first segment is there, the next is not
        with pytest.raises(DiskFull):
            log.flush()
        assert 1 < log.end_offset == 12
        io.heal()
        failing = Failing(monkeypatch, MemoryError())
        with pytest.raises(MemoryError):
            log.flush()
        failing.is_on = False
        log.flush()
        assert values(log) == noise
    with logdb.open(tmp_path / "db") as db:
        assert values(db.log("t")) == noise


# ---------------------------------------------------------------- batches that a codec makes larger


def test_a_batch_expands_to_256_mib_at_most(tmp_path):
    """Whatever max.message.bytes is: a few KiB of zstd may be gigabytes."""
    size_bytes = (256 << 20) + 1
    stream = zstandard.ZstdCompressor(level=1).compressobj(size=size_bytes)
    body = b"".join(stream.compress(bytes(min(1 << 20, size_bytes - at))) for at in range(0, size_bytes, 1 << 20)) + stream.flush()
    with logdb.open(tmp_path) as db:
        db.create_topic("t", config={"max.message.bytes": (1 << 31) - 1})
        with pytest.raises(InvalidBatch, match=f"zstd: at most {256 << 20} bytes may be decompressed, there are {size_bytes} bytes"):
            db.log("t").append_batches(encode_batch([Rec(None, b"v")], codec=4, compress=lambda _: body))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_a_codec_makes_too_large_stays_as_it_is(codec, place, tmp_path) -> None:
    noise = os.urandom(1000 - 61 - 12)  # with a batch's and a record's header, max.message.bytes to the byte or nearly so
    with opened(place, tmp_path / "db") as db:
        db.create_topic("t", config={"max.message.bytes": 1000})
        with db.producer(compression_type=codec, batch_size=1000) as producer:
            assert producer.send("t", noise).result().offset == 0
        db.alter_topic("t", config={"compression.type": codec})
        assert db.log("t").append(noise) == 1
        db.log("t").flush()
        assert values(db.log("t")) == [noise, noise]


# ---------------------------------------------------------------- configs that change between append and write


@pytest.mark.parametrize(
    "config",
    [
        {"max.message.bytes": 128},
        {"cleanup.policy": "compact"},
        {"segment.bytes": 1024, "segment.index.bytes": 12},
        {"message.timestamp.type": "LogAppendTime"},
        {"message.timestamp.before.max.ms": 0, "message.timestamp.after.max.ms": 0},
        {"compression.type": "zstd", "max.message.bytes": 128},
        {"durability": "fsync"},
    ],
    ids=lambda config: next(iter(config)),
)
def test_what_was_accepted_is_written_under_any_later_config(config, tmp_path) -> None:
    accepted = [b"%d" % number * 300 for number in range(9)]
    with logdb.open(tmp_path / "db", linger_ms=60_000) as db:
        db.create_topic("t")
        log = db.log("t")
        for value in accepted:
            log.append(value, timestamp_ms=1)
        db.alter_topic("t", config=config)
        log.flush()
        assert values(log) == accepted
    with logdb.open(tmp_path / "db") as db:
        assert values(db.log("t")) == accepted
        assert db.verify().problems == []


@pytest.mark.parametrize(
    ("config", "refusal"), [({"max.message.bytes": 128}, RecordTooLarge), ({"cleanup.policy": "compact"}, InvalidRecord)]
)
def test_a_producer_tells_of_each_record_that_the_topic_takes_no_more(config, refusal, place, tmp_path) -> None:
    with opened(place, tmp_path / "db") as db:
        db.create_topic("t")
        producer = db.producer(linger_ms=60_000)
        futures = [producer.send("t", b"x" * 300) for _ in range(3)]
        db.alter_topic("t", config=config)
        with pytest.raises((refusal, logdb.errors.InvalidBatch)):
            producer.flush()
        assert all(future.exception() is not None for future in futures)
        with pytest.raises(refusal):
            producer.send("t", b"x" * 300)
        producer.close()
        assert db.log("t").end_offset == 0


def test_what_is_larger_than_topics_take_by_now_is_read_verified_and_compacted(tmp_path) -> None:
    large = bytes((64 << 20) + 1)  # more than a batch from outside may decompress to at the topic's new config
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"max.message.bytes": 100 << 20, "compression.type": "zstd", "cleanup.policy": "compact"})
        db.log("t").append(b"old", b"a")
        db.log("t").append(large, b"k")
        db.log("t").append(b"new", b"a")
        db.alter_topic("t", config={"max.message.bytes": 1000})
        assert db.verify().problems == []
        db.compact("t")
        assert values(db.log("t")) == [large, b"new"]


# ---------------------------------------------------------------- what cannot be written is told


def test_a_close_that_cannot_write_says_how_much_is_lost(tmp_path) -> None:
    io = FaultyIO()
    db = logdb.open(tmp_path / "db", io=io, linger_ms=60_000)
    db.create_topic("t")
    for _ in range(3):
        db.log("t").append(b"x")
    io.fill_up()
    with pytest.raises(CloseIncomplete) as caught:
        db.close()
    assert caught.value.record_count == 3
