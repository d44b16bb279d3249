"""The commit of staged batches: they become part of the database exactly once.

A commit, in order:

        1. ``init_producer_id``: a former committer of the same name, a driver that was given up for example, is fenced; its open
           transaction is aborted, a decided one is completed.
    2. ``fetch_offsets``: the group of that name has the last committed batch.  If it is this one or a later one: done.
    3. ``produce``, or the append of uploads: the staged batches, checksums compared, as one transaction.
    4. ``commit_transaction_offsets``: the batch id + 1 as the group's offset in partition 0 of each topic, in the same
       transaction.
    5. ``end_transaction``: the commit point.

Between 1 and 5 no other process can commit under that name without its own step 1, after which our steps 3 to 5 fail; so the
result of 2 is still true at 5.  A crash between any two steps leaves all or nothing.  The same batch, committed again, goes
through 1 and 2 first: there it is found, or its remains are aborted.
"""

import contextlib
import logging
from collections.abc import Sequence

from logdb.codec.convert import stamp_producer
from logdb.errors import LogdbError, ProducerFenced
from logdb.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from logdb.requests.session import Session
from logdb_spark_source import uploading
from logdb_spark_source.noted import NOTHING
from logdb_spark_source.staging import Staged, check_there, gathered
from logdb_spark_source.uploading import Uploaded

logger = logging.getLogger(__name__)

_TIMEOUT_MS = 60_000
_TIMEOUT_MS_MAX = 900_000  # transaction.max.timeout.ms
_SLOWEST_BYTES_PER_MS = 1_000
_TRIES = 3


class CommitForgotten(LogdbError):
    """The database lacks a batch that was committed to it: it was replaced, or the sink's group was deleted."""

    def __init__(self, name: str, noted: int, found: int) -> None:
        knows = "no batch" if found == NOTHING else f"batch {found} as its last"
        super().__init__(
            f"batch {noted} was committed, as the sink has noted, but group {name!r} of the database has {knows}: it is another"
            " database or an older backup, or the group was deleted or has expired; with failOnDataLoss=false writing continues"
        )
        self.name, self.noted, self.found = name, noted, found


def committed_batch(session: Session, name: str) -> int:
    """The last batch committed for ``name``; ``NOTHING`` for none.

    Raises:
        UnstableOffsets: A commit is in progress.
    """
    return max((position.offset for position in session.fetch_offsets(name, require_stable=True).values()), default=0) - 1


def commit(session: Session, name: str, batch_id: int, files: Sequence[Staged | Uploaded], *, noted: int = NOTHING) -> bool:
    """Commit the content of ``files`` as the batch ``batch_id`` of ``name``.

    After a retriable error, or if another process has fenced this one, it starts again at step 1, which finds out the result of the
    last attempt.

    Args:
        name: The transactional id, and the group that keeps the batch id.
        batch_id: 0 or more, increasing.
        files: In the order of their records; none is empty.
        noted: A batch that is known to be committed.

    Returns:
        Whether this call appended it: False if it was committed before.

    Raises:
        CommitForgotten: The database lacks ``noted``.
        ProducerFenced: Another process is committing under that name, or the transaction timed out.
        CorruptionError, StagedFileMissing, UploadMissing: Of the staged batches; no record of the batch is visible.
        UnknownTopic, UnknownPartition, RecordTooLarge, NotAuthorized, DiskFull and others: as ``Session.produce``; the same.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return _commit(session, name, batch_id, files, noted)
        except LogdbError as error:
            if not tries_left or not (error.retriable or isinstance(error, ProducerFenced)):
                raise
            logger.warning("committing batch %d of %s: %s; trying again", batch_id, name, error)
    raise AssertionError("the last try returns or raises")


def _commit(session: Session, name: str, batch_id: int, files: Sequence[Staged | Uploaded], noted: int) -> bool:
    producer = session.init_producer_id(name, transaction_timeout_ms=_timeout_ms(files))
    found = committed_batch(session, name)
    if found >= batch_id:
        return False
    if found < noted:
        raise CommitForgotten(name, noted, found)
    check_there(one for one in files if isinstance(one, Staged))
    try:
        topics = _produce(session, name, producer, files)
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(batch_id + 1) for topic in sorted(topics)}
        session.commit_transaction_offsets(name, producer, name, offsets)
        session.end_transaction(name, producer, commit=True)
    except BaseException:
        with contextlib.suppress(LogdbError):  # refused if it was committed nevertheless; otherwise the timeout aborts it
            session.end_transaction(name, producer, commit=False)
        raise
    return True


def _produce(session: Session, name: str, producer: ProducerIdAndEpoch, files: Sequence[Staged | Uploaded]) -> set[str]:
    """Append everything; returns the topics."""
    sequences: dict[TopicPartition, int] = {}
    for partition, batches in gathered(one for one in files if isinstance(one, Staged)):
        sequences[partition] = stamp_producer(batches, producer, sequences.get(partition, 0), transactional=True)
        session.produce(*partition, batches, transactional_id=name)
    for group in uploading.grouped(one for one in files if isinstance(one, Uploaded)):
        partition = group[0].partition
        sequences[partition] = uploading.append(session, group, producer, sequences.get(partition, 0), name)
    return {partition.topic for partition in sequences}


def _timeout_ms(files: Sequence[Staged | Uploaded]) -> int:
    """Long enough for a slow network; while it is open, read_committed readers wait, also after the driver has died."""
    size_bytes = sum(staged.size_bytes for staged in files)
    return min(_TIMEOUT_MS + size_bytes // _SLOWEST_BYTES_PER_MS, _TIMEOUT_MS_MAX)
