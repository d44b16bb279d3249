"""The connectors of Kafka's quick start: a file's lines as records, and records as a file's lines.

The source continues exactly after its offsets.  The sink keeps the length of its file beside the offsets, and truncates the file to
that length when it begins: so each record is in the file once.  That needs a regular file, which no other program writes.
"""

import errno
import fcntl
import json
import logging
import os
import select
import stat
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least
from logdb_connect.connectors import limits
from logdb_connect.connectors.follow import Follower, end_of_lines
from logdb_connect.connectors.java_text import java_text
from logdb_connect.data import STRING, SinkRecord, SourceBatch
from logdb_connect.errors import ConnectError, RetriableError
from logdb_connect.plugin import Properties, SinkConnector, SinkTask, SourceConnector, SourceTask

_log = logging.getLogger(__name__)

_IDLE_S = 0.1
_STDIN, _STDOUT = 0, 1
_FULL = {errno.ENOSPC, errno.EDQUOT}


def _not_empty(text: str) -> str | None:
    return None if text else "String must be non-empty"


class FileStreamSourceTask(SourceTask):
    """Reads lines of a file that may grow, or of the standard input.  Bytes that are no UTF-8 become U+FFFD, as with Kafka.

    State:
        _block: Lines that were read at once; consumed up to ``_begin``.
        _values: Its lines as strings; the first ``_taken`` are consumed.
        _sizes: How many bytes each has with its end; None where it has as many as characters, and one more.
    """

    _block: bytes
    _begin: int
    _values: list[str]
    _taken: int
    _sizes: list[int] | None

    def start(self, properties: Properties) -> None:
        config = FileStreamSourceConnector.config_def.parse(properties)
        self._topic, self._batch_size = config["topic"], config["batch.size"]
        self._partition = {"filename": config["file"]}
        self._fill(b"")
        self._input: Follower | _StandardInput
        if config["file"] is None:
            self._input = _StandardInput(config["line.max.bytes"])
        else:
            limits.check_path(config["file"])
            self._input = Follower(
                config["file"],
                rotated=config["rotated.file.pattern"],
                line_bytes_max=config["line.max.bytes"],
                settle_s=config["rotated.file.quiet.ms"] / 1000,
            )
            self._input.resume(self.context.offset(self._partition))

    def poll(self) -> SourceBatch | None:
        if not self._values:
            self._fill(self._input.read())
            if not self._values:
                self.context.wait(_IDLE_S)
                return None
        begin = self._taken
        values = self._values[begin : begin + self._batch_size]
        if begin + len(values) == len(self._values):
            end = len(self._block)
            self._values = []
        elif self._sizes is None:
            end = self._begin + sum(map(len, values)) + len(values)
        else:
            end = self._begin + sum(self._sizes[begin : begin + len(values)])
        self._input.consume(self._block[self._begin : end])
        self._begin, self._taken = end, begin + len(values)
        return SourceBatch(
            source_partition=self._partition,
            offset=self._input.offset,
            topic=self._topic,
            values=values,
            value_schema=STRING,
            timestamp_ms=time.time_ns() // 1_000_000,
        )

    def stop(self) -> None:
        if isinstance(getattr(self, "_input", None), Follower):
            self._input.close()

    def _fill(self, block: bytes) -> None:
        """Split a block of lines."""
        self._block, self._begin, self._taken = block, 0, 0
        text = block.decode(errors="replace")
        self._sizes = None
        if not text.isascii() or "\r" in text:
            self._sizes = list(map(len, block.splitlines(keepends=True)))
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._values = text.split("\n")
        if not self._values[-1]:
            self._values.pop()


class _StandardInput:
    """Lines of the standard input, as ``Follower`` gives those of a file."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._rest = b""
        self._position = 0

    @property
    def offset(self) -> dict[str, Any]:
        return {"position": self._position}

    def consume(self, data: bytes) -> None:
        self._position += len(data)

    def read(self) -> bytes:
        if not select.select([_STDIN], [], [], _IDLE_S)[0]:
            return b""
        data = os.read(_STDIN, 1 << 16)
        block = self._rest + data
        end = end_of_lines(block) if data else len(block)
        self._rest = block[end:]
        if len(self._rest) > self._line_bytes_max:
            raise ConnectError(
                f"A line of the standard input has more than line.max.bytes={self._line_bytes_max} bytes. Raise line.max.bytes."
            )
        return block[:end]

    def close(self) -> None:
        """The standard input stays open."""


class FileStreamSourceConnector(SourceConnector):
    """The lines of a file, or of the standard input, to one topic."""

    task_class = FileStreamSourceTask
    version = "4.1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("file", "STRING", None, "Source filename. If not specified, the standard input will be used", "HIGH"),
        ConfigKey("topic", "STRING", REQUIRED, "The topic to publish data to", "HIGH", _not_empty),
        ConfigKey(
            "batch.size",
            "INT",
            2000,
            "The maximum number of records the source task can read from the file each time it is polled",
            "LOW",
            at_least(1),
        ),
        ConfigKey("line.max.bytes", "INT", 1 << 24, "The length of the longest line. A longer one fails the task", "LOW", at_least(1)),
        ConfigKey(
            "rotated.file.pattern",
            "STRING",
            None,
            "A pattern of the names that rotation gives, in the same directory, such as app.log.*: files that were rotated away while the "
            "task did not run are read, too, in the order of their modification times",
            "LOW",
        ),
        ConfigKey(
            "rotated.file.quiet.ms",
            "LONG",
            1000,
            "How long nobody must have written to a file that was rotated away before the new one is read",
            "LOW",
            at_least(0),
        ),
    )

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [self._properties]

    def validate(self, properties: Properties) -> Mapping[str, str]:
        path = properties.get("file")
        return {"file": f"{path} must be a regular file; it is a directory"} if path and os.path.isdir(path) else {}

    def exactly_once(self, properties: Properties) -> bool:
        return bool(properties.get("file"))

    def alter_offsets(self, properties: Properties, offsets: Mapping[str, Any]) -> None:
        if not properties.get("file"):
            raise ConnectError(
                "Offsets cannot be modified if the 'file' configuration is unspecified. "
                "This is because stdin is used for input and offsets are not tracked."
            )
        for partition, offset in offsets.items():
            check_offset(json.loads(partition), offset, "filename", "position")


def check_offset(partition: Any, offset: Any, part: str, number: str) -> None:
    """Check what an administrator sets as the offset of a source partition.

    Raises:
        ConnectError: It has not the shape ``{part: name}``, ``{number: n}``.
    """
    if not isinstance(partition, Mapping) or part not in partition:
        raise ConnectError(f"Partition objects should contain the key '{part}'")
    if offset is None:
        return
    if not isinstance(offset, Mapping) or number not in offset:
        raise ConnectError(f"Offset objects should either be null or contain the key '{number}'")
    if isinstance(offset[number], bool) or not isinstance(offset[number], int) or offset[number] < 0:
        raise ConnectError(f"The value for the '{number}' key in the offset should be a non-negative number")


class FileStreamSinkTask(SinkTask):
    """Appends each value as a line to a file, or to the standard output.

    State:
        _descriptor: Of the file; locked, so that no other task writes to it.
        _open: The partitions of the task.
        _is_truncatable: Whether the file is a regular one, under the very name that the operator gave.
    """

    _descriptor: int | None = None

    def start(self, properties: Properties) -> None:
        self._path: str | None = FileStreamSinkConnector.config_def.parse(properties)["file"]
        self._open: set[TopicPartition] = set()
        self._is_new = self._is_truncatable = False
        if self._path is None:
            self._descriptor = _STDOUT
            return
        limits.check_path(self._path)
        self._is_new = not os.path.lexists(self._path)
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConnectError(f"Couldn't find or create file '{self._path}' for FileStreamSinkTask: {error.strerror}") from error
        found = os.fstat(self._descriptor)
        named = os.lstat(self._path)
        self._is_truncatable = stat.S_ISREG(named.st_mode) and (named.st_dev, named.st_ino) == (found.st_dev, found.st_ino)
        _lock(self._descriptor, self._path)  # where that fails, stop closes the file

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        if not self._open and self._is_truncatable:
            self._truncate(max((self._committed_length(each) for each in partitions), default=-1))
        self._open.update(partitions)

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not len(records):
            return
        values = records.values if hasattr(records, "values") else [record.value for record in records]
        try:
            data = ("\n".join(values) + "\n").encode(errors="replace")
        except TypeError:  # not all are strings
            data = b"".join(_line(record) for record in records)
        self._write(data)

    def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        assert self._descriptor is not None
        if not self._is_truncatable:
            return offsets
        try:
            os.fsync(self._descriptor)
            if self._is_new:
                _sync_directory(os.path.dirname(os.path.abspath(str(self._path))))
                self._is_new = False
        except OSError as error:
            raise ConnectError(
                f"Cannot sync {self._path}: {error.strerror}. Repair the disk and restart the task: it continues at the committed offsets."
            ) from error
        now = os.fstat(self._descriptor)
        if now.st_nlink == 0:
            raise ConnectError(
                f"{self._path} was deleted while the task wrote to it. Restart the task: it makes a new file, "
                "and the records since the last commit come again."
            )
        note = json.dumps({"length": now.st_size, "inode": now.st_ino, "file": self._path}, separators=(",", ":"))
        return {partition: position._replace(metadata=note) for partition, position in offsets.items()}

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        self._open.difference_update(partitions)

    def stop(self) -> None:
        if self._descriptor is not None and self._descriptor != _STDOUT:
            os.close(self._descriptor)
        self._descriptor = None

    def _committed_length(self, partition: TopicPartition) -> int:
        """The length of this very file when the partition's offset was committed; -1 where that is unknown."""
        committed = self.context.committed(partition)
        if committed is None or not committed.metadata.startswith("{"):
            return -1
        try:
            note = json.loads(committed.metadata)
            length, inode, path = int(note["length"]), note["inode"], note["file"]
        except (ValueError, KeyError, TypeError):
            return -1
        assert self._descriptor is not None
        return length if path == self._path and inode == os.fstat(self._descriptor).st_ino else -1

    def _truncate(self, length: int) -> None:
        """Delete what was written after the last commit: the worker brings these records again."""
        assert self._descriptor is not None
        present = os.fstat(self._descriptor).st_size
        if 0 <= length < present:
            _log.info("Truncating %s from %d to %d bytes, its length at the last commit", self._path, present, length)
            os.ftruncate(self._descriptor, length)
            os.fsync(self._descriptor)
        elif length > present:
            _log.warning("%s has %d bytes; it had %d at the last commit: another program changed it", self._path, present, length)

    def _write(self, data: bytes) -> None:
        assert self._descriptor is not None
        before = os.fstat(self._descriptor).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            if self._is_truncatable:
                os.ftruncate(self._descriptor, before)
                if error.errno in _FULL:
                    raise RetriableError(f"Cannot write to {self._path}: {error.strerror}. The task tries again.") from error
            raise ConnectError(f"Cannot write to {self._path or 'the standard output'}: {error.strerror}") from error


class FileStreamSinkConnector(SinkConnector):
    """Records to the lines of a file, or of the standard output.  One task: it has all partitions, and with them the file's length."""

    task_class = FileStreamSinkTask
    version = "4.1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("file", "STRING", None, "Destination filename. If not specified, the standard output will be used", "HIGH"),
    )

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [self._properties]

    def validate(self, properties: Properties) -> Mapping[str, str]:
        path = properties.get("file")
        return {"file": f"{path} must be a regular file; it is a directory"} if path and os.path.isdir(path) else {}


def _line(record: SinkRecord) -> bytes:
    value = record.value
    text = value if isinstance(value, bytes) else java_text(value, record.value_schema).encode(errors="replace")
    return text + b"\n"


def _lock(descriptor: int, path: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConnectError(
            f"Another task writes to {path}. Each FileStreamSink needs a file of its own; if the other task ends, restart this one."
        ) from None
    except OSError as error:
        _log.warning("Cannot lock %s (%s): make sure that nothing else writes to it", path, error.strerror)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
