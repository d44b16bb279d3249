"""The file of a backup: header, frames, trailer.  Format: docs/inside/backup.md.  ``backup_list`` has its list."""

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from logdb.codec import crc32c
from logdb.codec.compression import ZSTD, compress, decompress
from logdb.disk import File
from logdb.errors import BackupDamaged, InvalidBatch, ReadFailed, UnsupportedFormat
from logdb.io import IO
from logdb.model import OFFSET_MAX, Buffer

FORMAT = 1
FORMAT_CONTINUED = 2  # of an increment with a file that continues one of its base
HEADER_SIZE = 16
TRAILER_SIZE = 56
PIECE_SIZE_BYTES = 1 << 20  # of the data in one frame, at most
LIST_SIZE_BYTES_MAX = 256 << 20
_MAGIC = b"LOGDBBAK"
_FRAME_HEADER_SIZE = 16
_STORED_SIZE_BYTES_MAX = PIECE_SIZE_BYTES + (64 << 10)  # zstd adds little to data that it cannot compress
_INFO, _FILE, _DATA, _LIST, _ENDS = b"INFO", b"FILE", b"DATA", b"LIST", b"ENDS"
_MAY_FOLLOW = {b"": (_INFO,), _INFO: (_FILE, _LIST), _FILE: (_FILE, _DATA, _LIST), _DATA: (_FILE, _DATA, _LIST), _LIST: (_LIST,)}
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Info(NamedTuple):
    """The first frame of a backup.

    ``next_producer_id``: as in the catalogue.  ``base``: backup id and checksum of the backup that this one adds to.
    """

    database_id: str
    backup_id: str
    created_ms: int
    next_producer_id: int
    base: tuple[str, str] | None


class FileName(NamedTuple):
    """Identifies a file in a backup."""

    topic_id: str
    partition: int
    base_offset: int
    kind: str


class Trailer(NamedTuple):
    """Positions of the list and of the trailer, and the SHA-256 of all bytes before the trailer."""

    list_position: int
    position: int
    checksum: bytes


def encode_header(number: int = FORMAT) -> bytes:
    head = _MAGIC + number.to_bytes(4, "big")
    return head + crc32c(head).to_bytes(4, "big")


def encode_trailer(trailer: Trailer) -> bytes:
    body = _ENDS + trailer.list_position.to_bytes(8, "big") + trailer.position.to_bytes(8, "big") + trailer.checksum
    return body + crc32c(body).to_bytes(4, "big")


# ---------------------------------------------------------------- writing


class BackupWriter:
    """Writes one backup from front to back into an open file.

    Every method raises DiskFull or WriteFailed.
    """

    def __init__(self, file: File, info: Info, *, format_number: int = FORMAT) -> None:
        self._file = file
        self._position, self._digest = 0, hashlib.sha256()
        self._write(encode_header(format_number))
        self._frame(_INFO, _to_json(info._asdict()).encode())

    @property
    def size_bytes(self) -> int:
        """Written so far."""
        return self._position

    def begin_file(self, name: FileName, size_bytes: int) -> None:
        """Begin a file; ``add`` takes its bytes, ``size_bytes`` in all."""
        self._frame(_FILE, _to_json([*name, size_bytes]).encode())

    def add(self, data: Buffer) -> None:
        """The next bytes of the file, at most PIECE_SIZE_BYTES of them."""
        self._frame(_DATA, data)

    def finish(self, content: Any) -> str:
        """Write the list and the trailer; returns the checksum in hexadecimal."""
        position, data = self._position, _to_json(content).encode()
        assert len(data) <= LIST_SIZE_BYTES_MAX, f"a list of {len(data)} bytes"
        for start in range(0, len(data), PIECE_SIZE_BYTES):
            self._frame(_LIST, data[start : start + PIECE_SIZE_BYTES])
        trailer = Trailer(position, self._position, self._digest.digest())
        self._write(encode_trailer(trailer))
        return trailer.checksum.hex()

    def _frame(self, kind: bytes, data: Buffer) -> None:
        payload = compress(ZSTD, data)
        head = kind + len(data).to_bytes(4, "big") + len(payload).to_bytes(4, "big")
        self._write(head + crc32c(payload, crc32c(head)).to_bytes(4, "big") + payload)

    def _write(self, data: bytes) -> None:
        self._file.write(data, self._position)
        self._position += len(data)
        self._digest.update(data)


# ---------------------------------------------------------------- reading


class BackupReader:
    """One open backup; no byte of it is used before it was checked.

    The constructor reads ``info``, ``checksum`` (hexadecimal) and ``content`` (the list, as parsed JSON); ``files`` reads everything.

    Raises:
        BackupDamaged: The file is no backup, or was changed after it was written.
        UnsupportedFormat: A newer logdb wrote it.
        ReadFailed: The operating system cannot read it, or there is no such file.
    """

    def __init__(self, io: IO, path: str, *, list_size_bytes_max: int = LIST_SIZE_BYTES_MAX) -> None:
        self.path, self._list_size_bytes_max = path, list_size_bytes_max
        try:
            self._opened = File(io, path, os.O_RDONLY, follow_link=True)
        except FileNotFoundError as error:
            raise ReadFailed(path, 0, str(error)) from error
        try:
            self._size_bytes = self._opened.size_bytes()
            self._check_header()
            self._trailer = self._read_trailer()
            self.checksum = self._trailer.checksum.hex()
            self.info = self._read_info()
            self.content = self._read_list()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def list_position(self) -> int:
        """Where the list begins."""
        return self._trailer.list_position

    def damaged(self, position: int, reason: str) -> BackupDamaged:
        return BackupDamaged(self.path, position, reason)

    def outline(self) -> bytes:
        """The backup without its files, from which an increment can be made.  Format: docs/inside/backup.md, Outline."""
        stored = int.from_bytes(self._opened.read(_FRAME_HEADER_SIZE, HEADER_SIZE)[8:12], "big")
        info = self._opened.read(_FRAME_HEADER_SIZE + stored, HEADER_SIZE)
        frames = self._opened.read(self._trailer.position - self._trailer.list_position, self._trailer.list_position)
        list_position = HEADER_SIZE + len(info)
        trailer = encode_trailer(Trailer(list_position, list_position + len(frames), self._trailer.checksum))
        return self._opened.read(HEADER_SIZE, 0) + info + frames + trailer

    def files(self) -> Iterator[tuple[FileName, int, Iterator[Buffer]]]:
        """Every file with its size and its bytes, in file order; after the last one the whole backup has been checked.

        Bytes that the caller did not read are skipped before the next file.
        """
        digest = hashlib.sha256(self._opened.read(HEADER_SIZE, 0))
        frames = _Frames(self._frames(HEADER_SIZE, self._trailer.list_position, digest=digest))
        for position, kind, data in frames:
            if kind == _LIST:
                raise self.damaged(position, "the list begins here, not where the trailer says")
            if kind == _FILE:
                name, size_bytes = self._file(position, data)
                pieces = self._pieces(frames, position, size_bytes)
                yield name, size_bytes, pieces
                for _ in pieces:
                    pass
        for _ in self._frames(self._trailer.list_position, self._trailer.position, after=_FILE, digest=digest):
            pass
        if digest.digest() != self._trailer.checksum:
            raise self.damaged(0, f"its checksum is {digest.hexdigest()}, the trailer says {self.checksum}")

    def _pieces(self, frames: "_Frames", position: int, size_bytes: int) -> Iterator[Buffer]:
        left = size_bytes
        while left > 0:
            found = frames.next_of(_DATA)
            if found is None or len(found) > left:
                raise self.damaged(position, f"the bytes of a file of {size_bytes} are {'too many' if found else 'too few'}")
            left -= len(found)
            yield found
        if frames.next_of(_DATA) is not None:
            raise self.damaged(position, f"the bytes of a file of {size_bytes} are too many")

    # ------------------------------------------------------------ the parts

    def _check_header(self) -> None:
        header = self._opened.read(HEADER_SIZE, 0)
        if len(header) < HEADER_SIZE or header[:8] != _MAGIC or crc32c(header[:12]) != int.from_bytes(header[12:], "big"):
            raise self.damaged(0, "it is no backup of logdb, or its header is damaged")
        found = int.from_bytes(header[8:12], "big")
        if found > FORMAT_CONTINUED:
            raise UnsupportedFormat(self.path, found, FORMAT_CONTINUED)

    def _read_trailer(self) -> Trailer:
        position = self._size_bytes - TRAILER_SIZE
        data = self._opened.read(TRAILER_SIZE, position) if position >= HEADER_SIZE else b""
        trailer = Trailer(int.from_bytes(data[4:12], "big"), int.from_bytes(data[12:20], "big"), data[20:52])
        if not data or encode_trailer(trailer) != data:
            raise self.damaged(max(position, 0), "it does not end in a whole trailer: it was cut off, or its end is damaged")
        if trailer.position != position or not HEADER_SIZE < trailer.list_position < position:
            raise self.damaged(position, f"the trailer belongs to a file of {trailer.position + TRAILER_SIZE} bytes")
        return trailer

    def _read_info(self) -> Info:
        position, kind, data = next(self._frames(HEADER_SIZE, self._trailer.list_position), (0, b"", b""))
        fields = self._json(position, data)
        try:
            base, next_producer_id = fields["base"], int(fields["next_producer_id"])
            if not 0 <= next_producer_id <= OFFSET_MAX:
                raise ValueError(f"the producer id {next_producer_id}")
            info = Info(str(fields["database_id"]), str(fields["backup_id"]), int(fields["created_ms"]), next_producer_id, None)
            return info if base is None else info._replace(base=(str(base[0]), str(base[1])))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise self.damaged(position, f"{kind.decode()}: {error!r}") from None

    def _read_list(self) -> Any:
        data, position = bytearray(), self._trailer.list_position
        for at, kind, piece in self._frames(position, self._trailer.position, after=_FILE):
            if kind != _LIST:
                raise self.damaged(at, f"a frame {kind.decode()} in the list")
            data += piece
            if len(data) > self._list_size_bytes_max:
                raise self.damaged(at, f"the list has more than {self._list_size_bytes_max} bytes")
        return self._json(position, bytes(data))

    def _file(self, position: int, data: bytes) -> tuple[FileName, int]:
        fields = self._json(position, data)
        shape = [type(field) for field in fields] if isinstance(fields, list) else []
        if shape != [str, int, int, str, int] or fields[4] < 0:
            raise self.damaged(position, "the name or the size of a file is invalid")
        return FileName(*fields[:4]), fields[4]

    def _json(self, position: int, data: bytes) -> Any:
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self.damaged(position, f"not JSON: {error}") from None

    # ------------------------------------------------------------ frames

    def _frames(
        self, position: int, stop: int, *, after: bytes = b"", digest: "hashlib._Hash | None" = None
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Position, kind and content of the frames in [position, stop), each checked; their bytes are added to ``digest``."""
        while position < stop:
            head = self._opened.read(_FRAME_HEADER_SIZE, position)
            kind, size_bytes, stored = head[:4], int.from_bytes(head[4:8], "big"), int.from_bytes(head[8:12], "big")
            ends = position + _FRAME_HEADER_SIZE + stored
            if len(head) < _FRAME_HEADER_SIZE or stored > _STORED_SIZE_BYTES_MAX or size_bytes > PIECE_SIZE_BYTES or ends > stop:
                raise self.damaged(position, f"a frame of {stored} bytes, {size_bytes} when decompressed, is impossible")
            payload = self._opened.read(stored, position + _FRAME_HEADER_SIZE)
            computed, wanted = crc32c(payload, crc32c(head[:12])), int.from_bytes(head[12:], "big")
            if digest is not None:
                digest.update(head)
                digest.update(payload)
            if computed != wanted:
                raise self.damaged(position, f"the CRC of a frame is {wanted:08x}, computed {computed:08x}")
            if kind not in _MAY_FOLLOW[after]:
                raise self.damaged(position, f"a frame {kind!r} after {after!r}")
            yield position, kind, self._decompressed(position, payload, size_bytes)
            position, after = ends, kind

    def _decompressed(self, position: int, payload: bytes, size_bytes: int) -> bytes:
        try:
            data = bytes(decompress(ZSTD, payload, size_bytes))
        except InvalidBatch as error:
            raise self.damaged(position, error.reason) from None
        if len(data) != size_bytes:
            raise self.damaged(position, f"a frame decompresses to {len(data)} bytes, its header says {size_bytes}")
        return data


class _Frames:
    """An iterator over frames with a lookahead of one."""

    def __init__(self, frames: Iterator[tuple[int, bytes, bytes]]) -> None:
        self._frames = frames
        self._ahead: tuple[int, bytes, bytes] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, bytes, bytes]:
        found, self._ahead = self._ahead or next(self._frames), None
        return found

    def next_of(self, kind: bytes) -> bytes | None:
        """The content of the next frame if it is of ``kind``; otherwise the iterator does not advance."""
        self._ahead = self._ahead or next(self._frames, None)
        if self._ahead is None or self._ahead[1] != kind:
            return None
        return next(self)[2]
