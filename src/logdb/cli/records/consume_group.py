"""``logdb consume --group``: records as a member of a group, committed after this process has written them out."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import logdb
from logdb.cli.kafka.formats import Record

if TYPE_CHECKING:
    from logdb.log.isolation import IsolationLevel

IDLE_MS = 50  # so long without a record, printed records are committed
COMMIT_COUNT = 512


@contextlib.contextmanager
def member(
    db: "logdb.Database", names: Sequence[str], group_id: str, *, from_beginning: bool, isolation_level: "IsolationLevel"
) -> "Iterator[logdb.Consumer]":
    """A consumer of the topics; a block without an error ends with a commit of the records it read."""
    with db.consumer(
        *names,
        group_id=group_id,
        auto_offset_reset="earliest" if from_beginning else "latest",
        isolation_level=isolation_level,
        iteration_timeout_ms=IDLE_MS,
        client_id="logdb-consume",
    ) as consumer:
        yield consumer
        consumer.commit()


def stream(consumer: "logdb.Consumer", *, follow: bool, timeout_ms: int | None) -> Iterator[Record | None]:
    """The group's records; None: write out the records so far, which are then committed.

    Args:
        follow: At the end, wait for more records.
        timeout_ms: End when no record came for so long; None: wait forever.
    """
    idle_ms = 0
    while True:
        count = 0
        for count, record in enumerate(consumer, 1):
            yield record
            if count % COMMIT_COUNT == 0:
                yield None
                consumer.commit()
        yield None
        if count:
            consumer.commit()
        idle_ms = 0 if count else idle_ms + IDLE_MS
        if not follow or (timeout_ms is not None and idle_ms >= timeout_ms):
            return
