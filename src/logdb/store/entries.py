"""The catalogue's log entries in the writer's memory; both are changed together.

An exception from outside (Ctrl-C) may come between the commit and the change in memory: then the entries are loaded again.

Threading: all methods, from any thread.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from logdb.errors import LogdbError, UnknownTopic
from logdb.log.readable import ReadableLog
from logdb.meta import Catalogue, Intent, LogEntry, WriteTransaction
from logdb.model import TopicPartition
from logdb.threads import renewed

T = TypeVar("T")


class Entries:
    """The entries of all logs."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._known: dict[TopicPartition, LogEntry] = {}
        self._lock = renewed(threading.Lock())  # taken last

    def load(self) -> None:
        """Load the entries of the catalogue."""
        with self._lock:
            self._load()

    def _load(self) -> None:
        self._known = {TopicPartition(entry.topic, entry.partition): entry for entry in self._catalogue.logs()}

    def names(self) -> list[TopicPartition]:
        return sorted(self._known)

    def with_producers(self) -> list[TopicPartition]:
        """The logs that may have an open transaction."""
        with self._lock:
            return [name for name, entry in self._known.items() if entry.producers_offset >= 0]

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._known

    def get(self, name: TopicPartition) -> LogEntry:
        """The entry of a log; raises UnknownTopic after its topic was deleted."""
        entry = self._known.get(name)
        if entry is None:
            raise UnknownTopic(name.topic)
        return entry

    def change(self, changed: Callable[[], Iterable[LogEntry]], also: Callable[[WriteTransaction], T]) -> T:
        """Commit changed entries, and other changes with them; returns the result of ``also``.

        Args:
            changed: Returns the new entries; no other change runs meanwhile.
            also: Run in the same transaction.
        """
        with self._lock:
            entries = list(changed())

            def write(txn: WriteTransaction) -> T:
                txn.put_logs(entries)
                return also(txn)

            with self._loaded_after_interrupt():
                found = self._catalogue.write(write)
                self._known.update({TopicPartition(entry.topic, entry.partition): entry for entry in entries})
            return found

    def note(self, log: ReadableLog, **fields: Any) -> None:
        """Change fields of one entry, durably; raises UnknownTopic after the log's topic was deleted."""
        name = TopicPartition(log.topic, log.partition)
        self.change(lambda: [self.get(name)._replace(**fields)], lambda _txn: None)

    def forget(self, topic: str, intent: Intent) -> int:
        """Commit the deletion of a topic, with the intent that finishes it; returns the intent's id."""
        with self._lock:
            with self._loaded_after_interrupt():
                number = self._catalogue.write(lambda txn: (txn.delete_topic(topic), txn.add_intent(intent))[-1])
                self._known = {name: entry for name, entry in self._known.items() if name.topic != topic}
            return number

    @contextlib.contextmanager
    def _loaded_after_interrupt(self) -> Iterator[None]:
        try:
            yield
        except LogdbError:
            raise  # nothing was committed, or the store takes no writes
        except BaseException:  # Ctrl-C: it may be committed
            self._load()
            raise
