"""Offsets of sources, in a compacted topic (``KafkaOffsetBackingStore``).

Key: JSON ``["connector",{partition}]``, in a standalone worker ``["connector",{partition},"identity"]``.  Value: JSON ``{offset}``; a
tombstone forgets it.  A header of each record, ``logdb.commit``, names the task and the transaction: after a commit without an answer it
tells whether the commit took place.
"""

import contextlib
import fcntl
import json
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from logdb import AnyRecord
from logdb_connect.client import Client
from logdb_connect.errors import ConnectError
from logdb_connect.runtime.compacted import CompactedTopic, decoded, encoded

COMMIT_HEADER = "logdb.commit"
"""Its value: ``TASK:TRANSACTION``."""
Fields = Mapping[str, Any]


class Offset(NamedTuple):
    """A committed offset of a source partition."""

    partition: dict[str, Any]
    offset: dict[str, Any]


class OffsetStore:
    """The offsets in one topic.  Threading: any thread."""

    def __init__(
        self, client: Client, topic: str, *, identity: str | None = None, partitions: int = 25, replication: int | None = None
    ) -> None:
        self._identity = identity
        self._offsets: dict[bytes, Offset] = {}
        self._commits: dict[bytes, dict[str, str]] = {}  # the last one of each task; also of tombstones
        self._lock = threading.Lock()
        self._topic = CompactedTopic(client, topic, self._apply, partitions=partitions, replication=replication)
        self.topic = topic

    def catch_up(self) -> None:
        """Read what others have written."""
        self._topic.catch_up()

    def get(self, connector: str, partition: Fields) -> dict[str, Any] | None:
        """The offset as of the last ``catch_up``, or ``note``."""
        with self._lock:
            found = self._offsets.get(_normal(self.key(connector, partition)))
        return None if found is None else dict(found.offset)

    def took_place(self, key: bytes, task: str, commit: str) -> bool:
        """Whether the task's last transaction with an offset of this key is ``commit``.  Other tasks may have written the key since."""
        with self._lock:
            return self._commits.get(_normal(key), {}).get(task) == commit

    def of_connector(self, connector: str) -> list[Offset]:
        """All offsets of a connector."""
        with self._lock:
            found = [(json.loads(key), offset) for key, offset in self._offsets.items()]
        return [offset for key, offset in found if key[0] == connector and key[2:] == self._suffix()]

    def all(self) -> list[tuple[str, Offset]]:
        """All offsets of this worker, with the names of their connectors."""
        with self._lock:
            found = [(json.loads(key), offset) for key, offset in self._offsets.items()]
        return [(key[0], offset) for key, offset in found if key[2:] == self._suffix()]

    def key(self, connector: str, partition: Fields) -> bytes:
        """The key of a record in the topic."""
        return encoded([connector, partition, *self._suffix()])

    def write(self, client: Client, connector: str, offsets: Sequence[tuple[Fields, Fields | None]]) -> None:
        """Set offsets, all or none; None forgets one."""
        with contextlib.closing(client.transactional_producer({}, f"connect-offsets-{self.topic}-{connector}")) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for partition, offset in offsets:
                producer.send(self.topic, None if offset is None else encoded(offset), self.key(connector, partition))
            producer.commit_transaction()
        self.catch_up()

    def _suffix(self) -> list[str]:
        return [] if self._identity is None else [self._identity]

    def _apply(self, record: AnyRecord) -> None:
        key = decoded(record.key)
        if not (isinstance(key, list) and len(key) in (2, 3) and isinstance(key[0], str) and isinstance(key[1], dict)):
            return
        value = decoded(record.value)
        commit = next((data for name, data in record.headers if name == COMMIT_HEADER and data is not None), None)
        normal = encoded([key[0], dict(sorted(key[1].items())), *key[2:]])
        with self._lock:
            if commit is not None:
                task, _, number = commit.decode(errors="replace").rpartition(":")
                self._commits.setdefault(normal, {})[task] = number
            if isinstance(value, dict):
                self._offsets[normal] = Offset(key[1], value)
            else:
                self._offsets.pop(normal, None)


def _normal(key: bytes) -> bytes:
    connector, partition, *rest = json.loads(key)
    return encoded([connector, dict(sorted(partition.items())), *rest])


class OffsetFile:
    """``offset.storage.file.filename`` of a standalone worker: its identity, and a copy of the offsets for people.

    A lock on ``FILE.lock`` keeps other workers away: they would have the same identity.  It ends with ``close``, or with the process.
    """

    def __init__(self, path: str) -> None:
        """Read the file, or write it with a new identity.

        Raises:
            ConnectError: It is another file, cannot be written, or another worker uses it.
        """
        self._path = path
        self._locked = self._lock()
        try:
            document = self._read()
            self.identity = str(uuid.uuid4()) if document is None else document
            self._copied: list[Any] | None = None
            if document is None:
                self.write([])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another worker use the file."""
        os.close(self._locked)

    def _lock(self) -> int:
        try:
            descriptor = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConnectError(f"offset.storage.file.filename={self._path}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                text = "another worker uses this file; give each worker a file of its own"
                raise ConnectError(f"offset.storage.file.filename={self._path}: {text}") from None
            raise ConnectError(f"offset.storage.file.filename={self._path}: cannot be locked: {error.strerror}") from None
        return descriptor

    def _read(self) -> str | None:
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConnectError(f"offset.storage.file.filename={self._path}: {error.strerror}") from None
        if not data:
            return None
        document = decoded(data)
        if not isinstance(document, dict) or not isinstance(document.get("identity"), str):
            raise ConnectError(
                f"offset.storage.file.filename={self._path}: is no file of this worker (a Java worker's cannot be read); name another file"
            )
        return str(document["identity"])

    def write(self, offsets: list[tuple[str, Offset]]) -> None:
        """Replace the file, if the offsets have changed: at any time it is whole."""
        copy = [{"connector": name, "partition": one.partition, "offset": one.offset} for name, one in offsets]
        if copy == self._copied:
            return
        text = json.dumps({"identity": self.identity, "offsets": copy}, indent=1, ensure_ascii=False)
        beside = f"{self._path}.{os.getpid()}.tmp"
        try:
            with open(beside, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise ConnectError(f"offset.storage.file.filename={self._path}: {error.strerror}") from None
        self._copied = copy
