"""The journal: entries that a voter has promised to keep, in one file that grows at its end.

    file      magic 8 bytes · record …
    record    crc u32 · length u32 · index u64 · term u64 · synced u64 · command · zeroes up to a multiple of 8        little-endian

``crc`` is the CRC-32C of all that follows it.  ``synced``: up to this index the journal was durable when the record was written; its own
index in a file that was written as a whole and synced before it got its name.  So a bad record at an index up to the ``synced`` of a later
one is damage, and refused; any other is an unfinished write, and ends the journal.  (No record vouches for one after it, for these may
be cut off and replaced.)

    step                    durable after it
    add                     nothing
    sync                    all entries: one fdatasync for all that were added since the last
    cut                     the shorter file, before anything is added in its place
    drop, reset             the new file: written, synced, renamed over the old one, the directory synced

A flipped byte in entries that one last sync made durable cannot be told from an unfinished write, unless they were known to be committed
(``vote``): the quorum's other voters have them.

Threading: one thread.
"""

import os
import struct

from logdb.codec import crc32c
from logdb.disk import File, replace_file
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb_replication.raft.entries import Entries
from logdb_replication.raft.messages import Entry
from logdb_replication.raft.vote import Vote

MAGIC = b"LDBRAFT1"
COMMAND_SIZE_BYTES_MAX = 1 << 20
_RECORD = struct.Struct("<IIQQQ")
_FIELDS = struct.Struct("<IQQQ")  # the same without the CRC
_ALIGNMENT = 8
_CRC = struct.Struct("<I")


class Journal(Entries):
    """Entries on disk, and the vote beside them.

    Field            Changed by                        Trusted
    ``_ends``        add, cut, drop, reset             the byte where each entry ends
    ``_buffer``      add; emptied by sync              what of the entries is not written yet
    ``synced``       sync, cut, drop, reset            entries up to this index survive a power cut
    """

    def __init__(self, io: IO, path: str, vote: Vote) -> None:
        """Read the journal at ``path``.

        Raises:
            FileNotFoundError: There is none.
            CorruptionError: It is damaged, or ends before what was known to be committed.
        """
        super().__init__([], path)
        self._io, self.vote = io, vote
        self._file = File(io, path, os.O_RDWR)
        data = self._file.read(self._file.size_bytes(), 0)
        self._ends: list[int] = []
        self._buffer = bytearray()
        self.cut_bytes = len(data) - self._read(data)
        if self.cut_bytes:
            self._file.truncate(self._ends[-1])
        self._file.sync()  # what the process before this one wrote may not be
        self.synced = self.last
        if self.synced < vote.commit:
            raise CorruptionError(path, self._ends[-1], f"it ends at index {self.synced}; {vote.commit} was committed")

    def _read(self, data: bytes) -> int:
        """Take the entries of a file; returns where they end."""
        if data[: len(MAGIC)] != MAGIC:
            raise CorruptionError(self.path, 0, "not a journal")
        position = len(MAGIC)
        while found := _record(data, position):
            entry, end, _ = found
            if self._entries and (entry[1] != self._entries[-1][1] + 1 or entry[2] < self._entries[-1][2]):
                raise CorruptionError(self.path, position, f"index {entry[1]}, term {entry[2]} after {self._entries[-1][1:]}")
            self._entries.append(entry)
            self._ends.append(end)
            position = end
        last = self._entries[-1][1] if self._entries else 0
        synced = _synced_beyond(data, position, last)
        if not self._entries or synced > last:
            raise CorruptionError(self.path, position, f"no whole record at index {last + 1}; it was durable up to {synced}")
        return position

    # ------------------------------------------------------------ entries

    @property
    def size_bytes(self) -> int:
        return self._ends[-1]

    def add(self, command: bytes, index: int, term: int) -> None:
        super().add(command, index, term)
        record = _encode(command, index, term, self.synced)
        self._buffer += record
        self._ends.append(self._ends[-1] + len(record))

    def sync(self) -> bool:
        """Make all entries durable; False where they were.  An error is final: the node stops."""
        if self.synced == self.last:
            return False
        self._file.write(self._buffer, self._ends[-1] - len(self._buffer))
        self._buffer = bytearray()
        self._file.sync()
        self.synced = self.last
        return True

    def cut(self, index: int) -> None:
        if index > self.last:
            return
        written = self._ends[-1] - len(self._buffer)
        del self._ends[index - self.base :]
        super().cut(index)
        end = self._ends[-1]
        if end < written:
            self._buffer.clear()
            self._file.truncate(end)
            self._file.sync()
            self.synced = self.last
        else:
            del self._buffer[end - written :]

    def drop(self, index: int) -> None:
        if index > self.base:
            super().drop(index)
            self._rewrite()

    def reset(self, index: int, term: int) -> None:
        super().reset(index, term)
        self._rewrite()

    def _rewrite(self) -> None:
        replace_file(self._io, self.path, encode(self._entries))
        self._file = File(self._io, self.path, os.O_RDWR)
        self._ends, self._buffer = [], bytearray()
        end = len(MAGIC)
        for command, _, _ in self._entries:
            end += _size_bytes(command)
            self._ends.append(end)
        self.synced = self.last

    def close(self) -> None:
        self._file.close()


# ---------------------------------------------------------------- bytes


def encode(entries: list[Entry]) -> bytes:
    """A whole file, which is synced before it gets its name."""
    return MAGIC + b"".join(_encode(command, index, term, index) for command, index, term in entries)


def _encode(command: bytes, index: int, term: int, synced: int) -> bytes:
    body = _FIELDS.pack(len(command), index, term, synced) + command + bytes(-len(command) % _ALIGNMENT)
    return _CRC.pack(crc32c(body)) + body


def _size_bytes(command: bytes) -> int:
    return _RECORD.size + len(command) + -len(command) % _ALIGNMENT


def _record(data: bytes, position: int) -> tuple[Entry, int, int] | None:
    """The entry at ``position``, where it ends, and its ``synced``; None where no whole record is."""
    if position + _RECORD.size > len(data):
        return None
    crc, size_bytes, index, term, synced = _RECORD.unpack_from(data, position)
    start = position + _RECORD.size
    end = start + size_bytes + -size_bytes % _ALIGNMENT
    if not 0 < size_bytes <= COMMAND_SIZE_BYTES_MAX or end > len(data) or crc32c(data[position + _CRC.size : end]) != crc:
        return None
    return (data[start : start + size_bytes], index, term), end, synced


def _synced_beyond(data: bytes, position: int, last: int) -> int:
    """The largest ``synced`` of the whole records after a bad one, which are found wherever they begin."""
    synced = 0
    for place in range(position + _ALIGNMENT, len(data) - _RECORD.size + 1, _ALIGNMENT):
        index, record_synced = struct.unpack_from("<Q8xQ", data, place + 8)
        if last < record_synced and last < index <= last + len(data) and (found := _record(data, place)):
            synced = max(synced, found[2])
    return synced
