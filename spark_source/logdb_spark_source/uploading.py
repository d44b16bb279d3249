"""Uploads: record batches that Spark's tasks stage at the server, where the driver's commit names them (docs/inside/spark.md).

Driver and executors share nothing but the network.  The CRC of each upload reaches the driver through Spark.

Threading: one thread for one attempt of a task; any thread on the driver.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, cast

from logdb.client.batches import BATCHES_MAX
from logdb.codec import convert, crc32c
from logdb.codec.batch import count_and_attributes
from logdb.errors import CorruptionError, InvalidAnswer, LogdbError
from logdb.model import Buffer, ProducerIdAndEpoch, TopicPartition
from logdb.requests.session import Session

_SEQUENCE_MASK = 2**31 - 1


class UploadMissing(LogdbError):
    """The server lacks an upload that a commit needs; no record of the batch is visible."""

    def __init__(self, piece: "UploadedPiece", reason: str) -> None:
        super().__init__(
            f"{piece.holder} has no upload {piece.id} of {piece.partition}, staged by a task: {reason}. It has expired (upload_idle_ms), or"
            " the server has lost it. Nothing of the batch was written: start the query again, which runs the batch again"
        )
        self.upload, self.holder = piece.id, piece.holder


class _Kept(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def holder(self) -> str: ...


class Uploads(Protocol):
    """The uploads of a session behind a URL."""

    def keep(self, where: TopicPartition, batches: Buffer) -> _Kept: ...

    def append(
        self,
        where: TopicPartition,
        uploads: Sequence[tuple[str, int]],
        producer: ProducerIdAndEpoch,
        sequence: int,
        record_count: int,
        *,
        transactional_id: str,
    ) -> Sequence[str]: ...

    def read(self, where: TopicPartition, holder: str, name: str) -> Buffer: ...

    def discard(self, where: TopicPartition, holder: str, names: Sequence[str]) -> None: ...


def uploads_of(session: Session) -> Uploads:
    """The uploads of a session that has them."""
    return cast("Uploads", session.uploads)  # type: ignore[attr-defined]  # of a session behind a URL


class UploadedPiece(NamedTuple):
    """An upload: whole batches of one partition; ``holder``: the URL of the server that has it."""

    partition: TopicPartition
    id: str
    holder: str
    size_bytes: int
    crc: int
    batch_count: int
    record_count: int


class Uploaded(NamedTuple):
    """The output of one attempt of a task, in the order of its rows; empty without rows."""

    pieces: tuple[UploadedPiece, ...]
    record_count: int

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


class Uploading:
    """The uploads of one attempt of a task."""

    def __init__(self, session: Session) -> None:
        self._uploads = uploads_of(session)
        self._pieces: list[UploadedPiece] = []

    def add(self, partition: TopicPartition, batches: Buffer, record_count: int) -> None:
        """Upload whole batches, uint8[n], borrowed for the call.

        Raises:
            DiskFull: The server keeps no more uploads.
            NotAuthorized, UnknownTopic, UnknownPartition, ServerUnavailable, InvalidAnswer: The server refuses them, or is gone.
        """
        crc, (batch_count, _) = crc32c(batches), count_and_attributes(batches)
        kept = self._uploads.keep(partition, batches)
        self._pieces.append(UploadedPiece(partition, kept.id, kept.holder, len(batches), crc, batch_count, record_count))

    def close(self) -> Uploaded:
        """The description for the driver."""
        return Uploaded(tuple(self._pieces), sum(piece.record_count for piece in self._pieces))

    def discard(self) -> None:
        """The attempt has failed: remove its uploads."""
        _discard(self._uploads, self._pieces)


# ---------------------------------------------------------------- on the driver


def grouped(tasks: Iterable[Uploaded]) -> Iterator[list[UploadedPiece]]:
    """The uploads of all tasks, partition by partition, in the order of the tasks; of at most five batches, which one append may have.

    The log recognizes the last five batches of a producer, if a request has to be sent again.
    """
    pieces: dict[TopicPartition, list[UploadedPiece]] = {}
    for task in tasks:
        for piece in task.pieces:
            pieces.setdefault(piece.partition, []).append(piece)
    for partition in sorted(pieces):
        group: list[UploadedPiece] = []
        for piece in pieces[partition]:
            if group and sum(one.batch_count for one in group) + piece.batch_count > BATCHES_MAX:
                yield group
                group = []
            group.append(piece)
        yield group


def append(session: Session, group: Sequence[UploadedPiece], producer: ProducerIdAndEpoch, sequence: int, transactional_id: str) -> int:
    """Append a group of uploads in the transaction; returns the sequence of the record after it.

    The leader appends what it has.  If leadership has moved since the upload, the batches come through this process.

    Raises:
        UploadMissing: One is nowhere.
        CorruptionError: One has another CRC than was uploaded.
        errors of ``Session.produce``.
    """
    uploads, partition = uploads_of(session), group[0].partition
    record_count = sum(piece.record_count for piece in group)
    named = [(piece.id, piece.crc) for piece in group]
    if uploads.append(partition, named, producer, sequence, record_count, transactional_id=transactional_id):
        batches = bytearray().join(_read(uploads, piece) for piece in group)
        convert.stamp_producer(batches, producer, sequence, transactional=True)
        session.produce(*partition, batches, transactional_id=transactional_id)
    return sequence + record_count & _SEQUENCE_MASK


def _read(uploads: Uploads, piece: UploadedPiece) -> Buffer:
    try:
        batches = uploads.read(piece.partition, piece.holder, piece.id)
    except InvalidAnswer as error:
        raise UploadMissing(piece, str(error)) from error
    if len(batches) != piece.size_bytes or (crc := crc32c(batches)) != piece.crc:
        there = f"{len(batches)} bytes" if len(batches) != piece.size_bytes else f"CRC {crc:#010x}"
        raise CorruptionError(
            f"{piece.holder} upload {piece.id}", 0, f"{there}; {piece.size_bytes} bytes were staged, CRC {piece.crc:#010x}"
        )
    return batches


def discard(session: Session, tasks: Iterable[Uploaded]) -> None:
    """Remove uploads that are no longer needed, if possible; otherwise they expire."""
    _discard(uploads_of(session), [piece for task in tasks for piece in task.pieces])


def _discard(uploads: Uploads, pieces: Iterable[UploadedPiece]) -> None:
    held: dict[tuple[TopicPartition, str], list[str]] = {}
    for piece in pieces:
        held.setdefault((piece.partition, piece.holder), []).append(piece.id)
    for (partition, holder), names in held.items():
        with contextlib.suppress(LogdbError):
            uploads.discard(partition, holder, names)
