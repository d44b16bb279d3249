"""The records of MirrorMaker 2's internal topics, byte for byte: big endian, strings with a length of 16 bits."""

import struct
from typing import NamedTuple

_AT, _OFFSETS, _VERSION = struct.Struct(">i"), struct.Struct(">qq"), struct.Struct(">h")


def _string(text: str) -> bytes:
    data = text.encode()
    return _VERSION.pack(len(data)) + data


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _VERSION.unpack_from(data, at)
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise ValueError("the string is longer than the record")
    return data[at + 2 : end].decode(), end


class OffsetSync(NamedTuple):
    """A record of the source and its copy: topic and partition of the source, offset there, offset at the target."""

    topic: str
    partition: int
    upstream: int
    downstream: int

    def key(self) -> bytes:
        return _string(self.topic) + _AT.pack(self.partition)

    def value(self) -> bytes:
        return _OFFSETS.pack(self.upstream, self.downstream)

    @classmethod
    def of(cls, key: bytes, value: bytes) -> "OffsetSync":
        """The sync of a record.

        Raises:
            ValueError, struct.error: It is none.
        """
        topic, at = _read_string(key, 0)
        return cls(topic, *_AT.unpack_from(key, at), *_OFFSETS.unpack_from(value))


class Checkpoint(NamedTuple):
    """The committed offset of a group, and what it is at the target; topic and partition are the target's."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str

    def key(self) -> bytes:
        return _string(self.group) + _string(self.topic) + _AT.pack(self.partition)

    def value(self) -> bytes:
        return _VERSION.pack(0) + _OFFSETS.pack(self.upstream, self.downstream) + _string(self.metadata)


def heartbeat(source: str, target: str, now_ms: int) -> tuple[bytes, bytes]:
    """Key and value of a heartbeat."""
    return _string(source) + _string(target), _VERSION.pack(0) + struct.pack(">q", now_ms)
