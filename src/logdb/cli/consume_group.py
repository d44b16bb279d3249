"""``logdb consume --group``: records as a member of a group, which goes on next time where it has come to.

Knows when to commit: once records are out of this process's hands.  Does not know how they are written (``consume``).
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import logdb
from logdb.cli.formats import Record

if TYPE_CHECKING:
    from logdb.log.isolation import IsolationLevel

IDLE_MS = 50  # without a record, after which what was printed is committed
COMMIT_COUNT = 512


@contextlib.contextmanager
def member(
    db: "logdb.Database", names: Sequence[str], group_id: str, *, from_beginning: bool, isolation_level: "IsolationLevel"
) -> "Iterator[logdb.Consumer]":
    """A consumer of the topics; leaving the block without an error commits what was looked at."""
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
    """The group's records; None when what came before is to be written out, which is then committed.

    Args:
        follow: Wait for more at the end, instead of ending.
        timeout_ms: End when none came for that long; None: wait for ever.
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
