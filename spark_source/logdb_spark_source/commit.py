"""The one step in which what tasks have staged becomes part of the database, once.

Knows the calls of a session.  Does not know Spark, nor how batches are built.

A commit, in order:

    1. ``init_producer_id``: whoever commits for the same name, a driver that was given up, say, is fenced; what it left
       open is aborted, what it had decided is completed.
    2. ``fetch_offsets``: the group of that name says which batch was committed last.  This one, or a later one: done.
    3. ``produce``: the staged batches, checksums compared, as one transaction.
    4. ``commit_transaction_offsets``: the batch id + 1 as the group's offset in partition 0 of each topic, in the same
       transaction.
    5. ``end_transaction``: the commit point.

Between 1 and 5 nobody else can commit for that name without a step 1 of its own, which makes our 3 to 5 fail; so what 2
has found still holds at 5.  A crash between any two steps leaves all or nothing, and the same batch, committed again, goes
through 1 and 2 first: there it is done, or all that was left of it is aborted.
"""

import contextlib
import logging
from collections.abc import Sequence

from logdb.codec.convert import stamp_producer
from logdb.errors import LogdbError, ProducerFenced
from logdb.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from logdb.requests.session import Session
from logdb_spark_source.noted import NOTHING
from logdb_spark_source.staging import Staged, check_there, gathered

logger = logging.getLogger(__name__)

_TIMEOUT_MS = 60_000
_TIMEOUT_MS_MAX = 900_000  # transaction.max.timeout.ms
_SLOWEST_BYTES_PER_MS = 1_000
_TRIES = 3


class CommitForgotten(LogdbError):
    """The database does not know a batch that was committed to it: it was replaced, or the sink's group is gone."""

    def __init__(self, name: str, noted: int, found: int) -> None:
        knows = "no batch" if found == NOTHING else f"batch {found} as the last"
        super().__init__(
            f"batch {noted} was committed, as the sink has noted, but group {name!r} of the database knows of {knows}: it is another"
            " database or an older backup, or the group was deleted or has expired; with failOnDataLoss=false writing goes on"
        )
        self.name, self.noted, self.found = name, noted, found


def committed_batch(session: Session, name: str) -> int:
    """The last batch that was committed for ``name``; ``NOTHING`` for none.

    Raises:
        UnstableOffsets: One is being committed.
    """
    return max((position.offset for position in session.fetch_offsets(name, require_stable=True).values()), default=0) - 1


def commit(session: Session, name: str, batch_id: int, files: Sequence[Staged], *, noted: int = NOTHING) -> bool:
    """Commit what ``files`` hold as the batch ``batch_id`` of ``name``.

    What fails with an error after which the same call may succeed, or because somebody else has taken the name over, is
    tried again from step 1, which finds out what became of the last try.

    Args:
        name: The transactional id, and the group that keeps the batch id.
        batch_id: 0 or more, rising.
        files: In the order of their records; with records in them.
        noted: A batch that is known to have been committed before.

    Returns:
        Whether it was this call that appended it: False if it was committed before.

    Raises:
        CommitForgotten: The database does not know of ``noted``.
        ProducerFenced: Somebody else is committing for that name, or this took longer than the transaction may.
        CorruptionError, StagedFileMissing: Of the files; nothing of the batch counts.
        UnknownTopic, UnknownPartition, RecordTooLarge, NotAuthorized, DiskFull and others: as ``Session.produce``; likewise.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return _commit(session, name, batch_id, files, noted)
        except LogdbError as error:
            if not tries_left or not (error.retriable or isinstance(error, ProducerFenced)):
                raise
            logger.warning("committing batch %d of %s: %s; once more", batch_id, name, error)
    raise AssertionError("the last try returns or raises")


def _commit(session: Session, name: str, batch_id: int, files: Sequence[Staged], noted: int) -> bool:
    producer = session.init_producer_id(name, transaction_timeout_ms=_timeout_ms(files))
    found = committed_batch(session, name)
    if found >= batch_id:
        return False
    if found < noted:
        raise CommitForgotten(name, noted, found)
    check_there(files)
    try:
        topics = _produce(session, name, producer, files)
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(batch_id + 1) for topic in sorted(topics)}
        session.commit_transaction_offsets(name, producer, name, offsets)
        session.end_transaction(name, producer, commit=True)
    except BaseException:
        with contextlib.suppress(LogdbError):  # it is refused if it has been committed all the same; else time ends it
            session.end_transaction(name, producer, commit=False)
        raise
    return True


def _produce(session: Session, name: str, producer: ProducerIdAndEpoch, files: Sequence[Staged]) -> set[str]:
    """Append everything; returns the topics."""
    sequences: dict[TopicPartition, int] = {}
    for partition, batches in gathered(files):
        sequences[partition] = stamp_producer(batches, producer, sequences.get(partition, 0), transactional=True)
        session.produce(*partition, batches, transactional_id=name)
    return {partition.topic for partition in sequences}


def _timeout_ms(files: Sequence[Staged]) -> int:
    """As long as a slow network needs: while it is open, readers of committed records wait, also for a driver that has died."""
    size_bytes = sum(staged.size_bytes for staged in files)
    return min(_TIMEOUT_MS + size_bytes // _SLOWEST_BYTES_PER_MS, _TIMEOUT_MS_MAX)
