import hashlib
import os
import random
import re
from pathlib import Path

import pytest

from logdb.codec import crc32c
from logdb.codec.compression import ZSTD, compress
from logdb.disk import File
from logdb.errors import BackupDamaged, DiskFull, ReadFailed, UnsupportedFormat
from logdb.io import IO
from logdb.store.copy import backup_file
from logdb.store.copy.backup_file import BackupReader, BackupWriter, FileName, Info, Trailer
from support.faulty_io import FaultyIO

INFO = Info("database", "backup", 1_700_000_000_000, 5_000, ("base", "ab" * 32))
NAME = FileName("topic", 3, 1000, "log")
CONTENT = {"topics": [], "logs": [1, 2, 3]}
PAGE = (Path(__file__).parents[4] / "docs" / "inside" / "backup.md").read_text(encoding="utf-8")


def example(name):
    found = re.search(rf"<!-- example: {name} -->\n```\n(.*?)```", PAGE, re.DOTALL)
    return bytes.fromhex(" ".join(line.split(maxsplit=1)[1] for line in found.group(1).splitlines()))


def write(path, files=((NAME, [b"one ", b"two"]),), content=CONTENT, info=INFO, io=None):
    with File(io or IO(), str(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC) as file:
        writer = BackupWriter(file, info)
        for name, pieces in files:
            writer.begin_file(name, sum(len(piece) for piece in pieces))
            for piece in pieces:
                writer.add(piece)
        return writer.finish(content)


def read(path):
    with BackupReader(IO(), str(path)) as reader:
        files = [(name, size_bytes, b"".join(pieces)) for name, size_bytes, pieces in reader.files()]
        return reader.info, reader.content, files


def frame(kind, payload, raw_size=None, stored_size=None):
    stored = compress(ZSTD, payload)
    head = kind + (len(payload) if raw_size is None else raw_size).to_bytes(4, "big")
    head += (len(stored) if stored_size is None else stored_size).to_bytes(4, "big")
    return head + crc32c(stored, crc32c(head)).to_bytes(4, "big") + stored


def assemble(path, *frames, listed=None, position=None):
    """A file of frames, with checksums that are right; ``listed``: the list begins with that frame (the last one)."""
    data, begins = bytearray(backup_file.encode_header()), []
    for one in frames:
        begins.append(len(data))
        data += one
    at = begins[len(frames) - 1 if listed is None else listed]
    data += backup_file.encode_trailer(Trailer(at, position or len(data), hashlib.sha256(data).digest()))
    path.write_bytes(data)


GOOD_INFO = frame(b"INFO", b'{"database_id":"d","backup_id":"b","created_ms":1,"next_producer_id":2,"base":null}')
GOOD_LIST = frame(b"LIST", b"{}")


def file(size_bytes, kind="log"):
    return frame(b"FILE", b'["t",0,0,"%s",%d]' % (kind.encode(), size_bytes))


# ---------------------------------------------------------------- what was written is read


def test_the_page_has_these_bytes():
    assert example("header") == backup_file.encode_header()
    assert example("trailer") == backup_file.encode_trailer(Trailer(400, 700, hashlib.sha256(b"logdb").digest()))


def test_what_was_written_is_read(tmp_path):
    big = [bytes([number]) * backup_file.PIECE_SIZE_BYTES for number in range(3)] + [b"rest"]
    files = [(NAME, [b"one ", b"two"]), (NAME._replace(kind="txnindex"), []), (NAME._replace(base_offset=9), big)]
    checksum = write(tmp_path / "backup", files)
    info, content, found = read(tmp_path / "backup")
    assert (info, content) == (INFO, CONTENT)
    assert found == [(name, sum(map(len, pieces)), b"".join(pieces)) for name, pieces in files]
    data = (tmp_path / "backup").read_bytes()
    assert checksum == hashlib.sha256(data[: -backup_file.TRAILER_SIZE]).hexdigest()


def test_a_list_of_many_pieces(tmp_path):
    content = [random.Random(7).randbytes(1000).hex() for _ in range(2000)]
    write(tmp_path / "backup", content=content)
    assert read(tmp_path / "backup")[1] == content


def test_files_that_are_not_wanted_are_checked_all_the_same(tmp_path):
    write(tmp_path / "backup", [(NAME._replace(base_offset=number), [b"x" * 100]) for number in range(10)])
    with BackupReader(IO(), str(tmp_path / "backup")) as reader:
        assert [name.base_offset for name, _, _ in reader.files()] == list(range(10))
    data = bytearray((tmp_path / "backup").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "backup").write_bytes(data)
    with BackupReader(IO(), str(tmp_path / "backup")) as reader, pytest.raises(BackupDamaged):
        list(reader.files())


# ---------------------------------------------------------------- damage


def test_every_flipped_bit_is_damage(tmp_path):
    write(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    for position in range(len(whole)):
        for mask in (0x01, 0x10, 0x80):
            data = bytearray(whole)
            data[position] ^= mask
            (tmp_path / "flipped").write_bytes(data)
            with pytest.raises(BackupDamaged) as caught:
                read(tmp_path / "flipped")
            assert caught.value.path == str(tmp_path / "flipped"), position


def test_every_length_but_the_whole_is_damage(tmp_path):
    write(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(BackupDamaged):
            read(tmp_path / "cut")
    (tmp_path / "cut").write_bytes(whole + b"\0")
    with pytest.raises(BackupDamaged, match="whole trailer"):
        read(tmp_path / "cut")
    (tmp_path / "cut").write_bytes(whole + whole)
    with pytest.raises(BackupDamaged, match="the trailer belongs to a file"):
        read(tmp_path / "cut")


def test_bytes_of_any_kind(tmp_path):
    rng = random.Random(20_26)
    write(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    for _ in range(500):
        start, stop = sorted(rng.choices(range(len(whole) + 1), k=2))
        junk = whole[:start] + rng.randbytes(rng.choice((0, 1, stop - start, 40))) + whole[stop:]
        if junk != whole:
            (tmp_path / "junk").write_bytes(junk)
            with pytest.raises(BackupDamaged):
                read(tmp_path / "junk")


def test_a_newer_format_has_a_name_of_its_own(tmp_path):
    write(tmp_path / "backup")
    data = bytearray((tmp_path / "backup").read_bytes())
    data[8:12] = (3).to_bytes(4, "big")
    data[12:16] = crc32c(bytes(data[:12])).to_bytes(4, "big")
    (tmp_path / "backup").write_bytes(data)
    with pytest.raises(UnsupportedFormat):
        read(tmp_path / "backup")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ReadFailed):
        read(tmp_path / "nothing")
    with pytest.raises(ReadFailed):
        read(tmp_path)


# ---------------------------------------------------------------- hostile, with checksums that are right


@pytest.mark.parametrize(
    ("frames", "listed"),
    [
        ([GOOD_LIST], 0),
        ([GOOD_INFO, GOOD_INFO, GOOD_LIST], 2),
        ([GOOD_INFO, frame(b"DATA", b"x"), GOOD_LIST], 2),
        ([GOOD_INFO, GOOD_LIST, GOOD_LIST], 2),
        ([GOOD_INFO, GOOD_LIST, file(0)], 1),
        ([GOOD_INFO, frame(b"WHAT", b"x"), GOOD_LIST], 2),
        ([GOOD_INFO, file(5), frame(b"DATA", b"1234"), GOOD_LIST], 3),
        ([GOOD_INFO, file(5), frame(b"DATA", b"123456"), GOOD_LIST], 3),
        ([GOOD_INFO, file(5), frame(b"DATA", b"12345"), frame(b"DATA", b""), GOOD_LIST], 4),
        ([GOOD_INFO, file(-1), GOOD_LIST], 2),
        ([GOOD_INFO, file(0), frame(b"DATA", b"1"), GOOD_LIST], 3),
        ([GOOD_INFO, file(5), file(0), GOOD_LIST], 3),
        ([GOOD_INFO, frame(b"FILE", b'["t",0,0,"log"]'), GOOD_LIST], 2),
        ([GOOD_INFO, frame(b"FILE", b'["t",0,0,"log",true]'), GOOD_LIST], 2),
        ([GOOD_INFO, frame(b"FILE", b'{"t":0}'), GOOD_LIST], 2),
        ([GOOD_INFO, frame(b"FILE", b"\xff"), GOOD_LIST], 2),
        ([frame(b"INFO", b"[]"), GOOD_LIST], 1),
        ([frame(b"INFO", b'{"database_id":"d"}'), GOOD_LIST], 1),
        ([frame(b"INFO", b'{"database_id":"d","backup_id":"b","created_ms":1,"next_producer_id":2,"base":[1]}'), GOOD_LIST], 1),
        ([frame(b"INFO", b'{"database_id":"d","backup_id":"b","created_ms":1,"next_producer_id":-1,"base":null}'), GOOD_LIST], 1),
        ([frame(b"INFO", b'{"database_id":"d","backup_id":"b","created_ms":1e999,"next_producer_id":2,"base":null}'), GOOD_LIST], 1),
        ([GOOD_INFO, frame(b"LIST", b"not json")], 1),
        ([GOOD_INFO, frame(b"LIST", b"[" * 500_000)], 1),
        ([GOOD_INFO, frame(b"LIST", b"{}", raw_size=1), GOOD_LIST], 2),
        ([GOOD_INFO, frame(b"LIST", b"{}", raw_size=3)], 1),
        ([GOOD_INFO, frame(b"LIST", b"{}", stored_size=2**31 - 1)], 1),
        ([GOOD_INFO, frame(b"LIST", b"{}", raw_size=2**32 - 1)], 1),
        ([GOOD_INFO, frame(b"LIST", bytes((1 << 20) + 1))], 1),
    ],
)
def test_frames_in_any_other_order_or_size(tmp_path, frames, listed):
    assemble(tmp_path / "backup", *frames, listed=listed)
    with pytest.raises(BackupDamaged):
        read(tmp_path / "backup")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    assemble(tmp_path / "backup", GOOD_INFO, frame(b"LIST", bytes(64 << 20), raw_size=1 << 20))
    with pytest.raises(BackupDamaged, match="at most"):
        read(tmp_path / "backup")


def test_a_list_without_end(tmp_path):
    assemble(tmp_path / "backup", GOOD_INFO, GOOD_LIST, GOOD_LIST, GOOD_LIST, listed=1)
    with pytest.raises(BackupDamaged, match="more than 5 bytes"):
        BackupReader(IO(), str(tmp_path / "backup"), list_size_bytes_max=5)


def test_no_room(tmp_path):
    io = FaultyIO()
    io.room = 100
    with pytest.raises(DiskFull):
        write(tmp_path / "backup", io=io)
