"""Small files of one line: whatever their bytes are, they are read, or called damaged, or of a newer logdb."""

import pytest

from logdb.access import security_document
from logdb.errors import CorruptionError, UnsupportedFormat
from logdb.io import IO
from logdb.store import cluster_file, json_line, topic_file
from logdb.store.copy import snapshot_file
from logdb_replication import incarnations
from logdb_replication.raft.starts_file import StartsFile
from logdb_replication.raft.vote import Vote


def starts(data, path):
    return read(lambda: StartsFile(IO(), path), data, path)


def vote(data, path):
    return read(lambda: Vote(IO(), path), data, path)


def read(load, data, path):
    with open(path, "wb") as file:
        file.write(data)
    return load()


DECODERS = [topic_file.decode, cluster_file.decode, snapshot_file.decode, security_document.decode, json_line.check_security, starts, vote]
HOSTILE = {
    "nothing": b"",
    "deep": b"[" * 4000,
    "deep-in-a-line": b'{"format":1,"a":' + b"[" * 2000 + b"]" * 2000 + b"}",
    "no-object": b"[1]",
    "a-number": b"7",
    "no-text": b"\xff\xfe",
    "no-keys": b"{}",
    "infinite": json_line.encode({"config": {}}, 1).replace(b'"format":1', b'"format":Infinity'),
    "long-number": b'{"format":' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("decode", DECODERS, ids=lambda one: f"{one.__module__}.{one.__name__}")
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_such_line_is_damaged(tmp_path, decode, data):
    with pytest.raises(CorruptionError):
        decode(data, str(tmp_path / "file"))


@pytest.mark.parametrize("decode", DECODERS, ids=lambda one: f"{one.__module__}.{one.__name__}")
@pytest.mark.parametrize("format_number", [float("inf"), float("nan"), None, [], "x", {}, -1])
def test_a_format_that_is_no_number_is_damaged_although_the_crc_fits(tmp_path, decode, format_number):
    with pytest.raises(CorruptionError):
        decode(json_line.encode({}, format_number), str(tmp_path / "file"))


@pytest.mark.parametrize("decode", DECODERS, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_a_newer_format(tmp_path, decode):
    with pytest.raises(UnsupportedFormat):
        decode(json_line.encode({}, 99), str(tmp_path / "file"))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), None, [], "x", {}, 1.5, -1, True])
def test_fields_of_other_types_are_damaged(tmp_path, value):
    """With a CRC that fits: whoever wrote them knew how."""
    path = str(tmp_path / "file")
    for decode, fields in (
        (topic_file.decode, ("topic", "topic_id", "partition", "partition_count", "config", "start_offset")),
        (cluster_file.decode, ("cluster", "node")),
        (snapshot_file.decode, ("database_id", "created_ms", "catalogue_size", "catalogue_crc")),
    ):
        with pytest.raises(CorruptionError):
            decode(json_line.encode(dict.fromkeys(fields, value), 1), path)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), None, [], "x", {}])
def test_fields_of_a_voter_that_are_no_numbers_are_damaged(tmp_path, value):
    for decode, fields in ((vote, ("term", "vote", "commit")), (starts, ("start", "ids", "refused", "others"))):
        with pytest.raises(CorruptionError):
            decode(json_line.encode(dict.fromkeys(fields, value), 1), str(tmp_path / "file"))


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_broker_whose_file_is_damaged_has_no_incarnation(tmp_path, data):
    (tmp_path / cluster_file.BROKER_NAME).write_bytes(data)
    assert incarnations.load(IO(), str(tmp_path)) == ()
