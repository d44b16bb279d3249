"""A directory whose files become records, each file once: CSV, JSON lines, Parquet or plain lines.

A source partition is a file of the directory.  Its offset says how many of its records were read, and of which content: the size, the
time of the last change, and a mark of the first bytes.  So a file that grew is continued, and another one of the same name is read whole.
A file that was written to in the last ``file.minimum.age.ms`` is left until it is quiet.
"""

import csv
import errno
import fnmatch
import hashlib
import io
import itertools
import logging
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, NamedTuple

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least
from logdb_connect.connectors import limits
from logdb_connect.connectors.objects.formats import Rows, parquet_rows
from logdb_connect.converters.json import JsonConverter
from logdb_connect.data import OPTIONAL_STRING, STRING, Field, Schema, SourceBatch
from logdb_connect.errors import ConnectError, DataError
from logdb_connect.plugin import Properties, SourceConnector, SourceTask

_log = logging.getLogger(__name__)

_MARKED = 65_536
_EXTENSIONS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_FORMATS = ("auto", "csv", "json", "lines", "parquet")
_POLICIES = ("NONE", "DELETE", "MOVE")


class _Look(NamedTuple):
    """A file as it is now."""

    size: int
    changed_ns: int
    inode: int


class _Taken(NamedTuple):
    """A file whose records were all given."""

    name: str
    look: _Look


class DirectorySourceTask(SourceTask):
    """Reads files, in the order of their names.

    State:
        _rows: The rest of the present file, without ``_ahead``, its next rows; ``_fault`` stands in place of rows that cannot be read.
        _done: Files without records left, as they looked then.
        _given, _stored: Files to be cleaned up: the last records of ``_stored`` are committed at the next ``commit``.
    """

    def start(self, properties: Properties) -> None:
        self._config = config = DirectorySourceConnector.config_def.parse(properties)
        self._path: str = config["input.path"]
        self._share = int(properties.get("task.index", 0)), int(properties.get("task.count", 1))
        self._file: BinaryIO | None = None
        self._name = ""
        self._read = 0
        self._rows: Iterator[Rows] = iter(())
        self._ahead: Rows | None = None
        self._fault: DataError | None = None
        self._done: dict[str, _Look] = {}
        self._given: list[_Taken] = []
        self._stored: list[_Taken] = []
        for key in ("input.path", *(("finished.path",) if config["cleanup.policy"] == "MOVE" else ()), "error.path"):
            if config[key] is not None:
                limits.check_path(config[key])
                if not os.path.isdir(config[key]):
                    raise ConnectError(f"{key}={config[key]} is no directory. Create it, then restart the task.")

    def poll(self) -> SourceBatch | None:
        self._stored += self._given
        self._given = []
        if self._file is None and not self._next_file():
            self.context.wait(self._config["empty.poll.wait.ms"] / 1000)
            return None
        rows = self._ahead
        if rows is None:
            self._finish() if self._fault is None else self._fail(self._fault)
            return None
        self._look_ahead()
        schema, values = rows
        self._read += len(values)
        return SourceBatch(
            source_partition=self._source_partition(self._name),
            offset={
                "records": self._read,
                "end": self._ahead is None and self._fault is None,
                "size": self._look.size,
                "changed": self._look.changed_ns,
                "mark": self._mark,
            },
            topic=self._config["topic"],
            values=values,
            value_schema=schema,
        )

    def _look_ahead(self) -> None:
        """Read the next rows, so that it is known which are the last."""
        try:
            self._ahead = next(self._rows, None)
        except DataError as error:
            self._ahead, self._fault = None, error

    def commit(self) -> None:
        for taken in self._stored:
            self._clean_up(taken)
        self._stored.clear()

    def stop(self) -> None:
        if getattr(self, "_file", None) is not None:
            self._close()

    def _source_partition(self, name: str) -> dict[str, str]:
        return {"directory": self._path, "file": name}

    # Files --------------------------------------------------------------------------------------------------------------------

    def _next_file(self) -> bool:
        """Open the next file that has records left."""
        quiet_ns = time.time_ns() - self._config["file.minimum.age.ms"] * 1_000_000
        for name in sorted(self._names()):
            look = _look(os.path.join(self._path, name))
            if look is None or look.changed_ns > quiet_ns or self._done.get(name) == look:
                continue
            if self._open(name):
                return True
        return False

    def _names(self) -> Iterator[str]:
        number, count = self._share
        try:
            with os.scandir(self._path) as entries:
                for entry in entries:
                    if (
                        entry.is_file(follow_symlinks=False)
                        and not entry.name.startswith(".")
                        and fnmatch.fnmatchcase(entry.name, self._config["input.file.pattern"])
                        and zlib.crc32(os.fsencode(entry.name)) % count == number
                    ):
                        yield entry.name
        except OSError as error:
            raise ConnectError(f"Cannot list input.path={self._path}: {error.strerror}. Correct it, then restart the task.") from error

    def _open(self, name: str) -> bool:
        """Open a file behind the records that are stored; returns whether it may have more."""
        try:
            descriptor = os.open(os.path.join(self._path, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConnectError(f"Cannot read {name} of {self._path}: {error.strerror}. Correct it, then restart the task.") from error
        self._name, self._look = name, _look_of(os.fstat(descriptor))
        offset = self.context.offset(self._source_partition(name))
        skip = 0
        if offset is not None:
            is_same = (offset.get("size"), offset.get("changed")) == (self._look.size, self._look.changed_ns)
            if is_same and offset.get("end"):
                os.close(descriptor)
                self._take_off()
                return False
            grew = self._look.size > int(offset["size"]) and _mark(descriptor, int(offset["size"])) == offset["mark"]
            skip = int(offset["records"]) if is_same or (grew and self._format() != "parquet") else 0
        self._mark = _mark(descriptor, self._look.size)
        self._file = os.fdopen(descriptor, "rb")
        self._read, self._fault = skip, None
        self._rows = self._skipping(skip)
        self._look_ahead()
        return True

    def _format(self) -> str:
        chosen: str = self._config["input.format"]
        if chosen == "auto":
            return _EXTENSIONS.get(os.path.splitext(self._name)[1].lower(), "lines")
        return chosen

    def _skipping(self, skip: int) -> Iterator[Rows]:
        assert self._file is not None
        for schema, values in _READERS[self._format()](self._file, self._config):
            if rest := values[skip:]:
                yield schema, rest
            skip = max(0, skip - len(values))

    def _finish(self) -> None:
        self._close()
        self._take_off()

    def _take_off(self) -> None:
        self._done[self._name] = self._look
        self._given.append(_Taken(self._name, self._look))

    def _close(self) -> None:
        assert self._file is not None
        self._rows = iter(())  # the former one needs its file to end
        self._file.close()
        self._file = None

    def _fail(self, error: DataError) -> None:
        self._close()
        message = f"Cannot read {self._name} of {self._path} behind its record {self._read}: {error}"
        if self._config["halt.on.error"]:
            raise ConnectError(f"{message}. Correct the file, or set halt.on.error=false; the task continues behind that record.")
        self._done[self._name] = self._look
        _log.error("%s. The rest of the file is left out", message)
        if self._config["error.path"] is not None:
            self._move(_Taken(self._name, self._look), self._config["error.path"])

    # Cleaning up --------------------------------------------------------------------------------------------------------------

    def _clean_up(self, taken: _Taken) -> None:
        policy = self._config["cleanup.policy"]
        if policy == "MOVE":
            self._move(taken, self._config["finished.path"])
        elif policy == "DELETE" and self._is_as_read(taken):
            os.unlink(os.path.join(self._path, taken.name))

    def _is_as_read(self, taken: _Taken) -> bool:
        if _look(os.path.join(self._path, taken.name)) == taken.look:
            return True
        _log.warning("%s of %s changed since it was read: it stays where it is", taken.name, self._path)
        return False

    def _move(self, taken: _Taken, directory: str) -> None:
        """Move a file; another file of that name is never overwritten."""
        if not self._is_as_read(taken):
            return
        source = os.path.join(self._path, taken.name)
        for number in itertools.count():
            try:
                os.link(source, os.path.join(directory, taken.name + (f".{number}" if number else "")), follow_symlinks=False)
            except FileExistsError:
                continue
            except OSError as error:
                where = "It must be on the file system of input.path." if error.errno == errno.EXDEV else ""
                raise ConnectError(f"Cannot move {source} to {directory}: {error.strerror}. {where}") from error
            os.unlink(source)
            return


class DirectorySourceConnector(SourceConnector):
    """The files of a directory, each once."""

    task_class = DirectorySourceTask
    version = "1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("topic", "STRING", REQUIRED, "The topic to write to.", "HIGH"),
        ConfigKey("input.path", "STRING", REQUIRED, "The directory to read files from.", "HIGH"),
        ConfigKey("input.file.pattern", "STRING", "*", "A pattern of the names of files to read, such as *.csv.", "HIGH"),
        ConfigKey(
            "input.format",
            "STRING",
            "auto",
            "The format of the files. auto goes by the end of a name: .csv, .tsv, .json, .jsonl, .ndjson, .parquet; others have lines.",
            "HIGH",
            values=_FORMATS,
        ),
        ConfigKey(
            "cleanup.policy",
            "STRING",
            "NONE",
            "What happens to a file whose records are stored: it stays, is deleted or moved.",
            values=_POLICIES,
        ),
        ConfigKey("finished.path", "STRING", None, "Where cleanup.policy=MOVE moves files, on the same file system.", "MEDIUM"),
        ConfigKey(
            "error.path", "STRING", None, "Where halt.on.error=false moves files that cannot be read. Without it they stay.", "MEDIUM"
        ),
        ConfigKey(
            "halt.on.error",
            "BOOLEAN",
            True,
            "Whether a file that cannot be read fails the task. Else the rest of the file is left out.",
            "MEDIUM",
        ),
        ConfigKey(
            "file.minimum.age.ms", "LONG", 2000, "How long nobody must have written to a file before it is read.", "LOW", at_least(0)
        ),
        ConfigKey("batch.size", "INT", 1000, "The number of records that should be returned with each batch.", "LOW", at_least(1)),
        ConfigKey(
            "empty.poll.wait.ms", "LONG", 500, "The amount of time to wait if a poll returns an empty list of records.", "LOW", at_least(1)
        ),
        ConfigKey(
            "csv.separator.char",
            "STRING",
            ",",
            "The character that separates each field; \\t is a tab.",
            "LOW",
            lambda text: None if len(_separator(text)) == 1 else "must be one character",
        ),
        ConfigKey(
            "csv.first.row.as.header",
            "BOOLEAN",
            True,
            "Whether the first row has the names of the fields. Else they are column01, column02, …",
            "MEDIUM",
        ),
    )

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [{**self._properties, "task.index": str(number), "task.count": str(max_tasks)} for number in range(max_tasks)]

    def check(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        if config["cleanup.policy"] == "MOVE" and config["finished.path"] is None:
            return {"finished.path": "cleanup.policy=MOVE needs finished.path"}
        wrong = [key for key in ("input.path", "finished.path", "error.path") if config[key] is not None and not os.path.isdir(config[key])]
        return {key: f"{config[key]} must be a directory that exists" for key in wrong}


# Formats ------------------------------------------------------------------------------------------------------------------------


def _separator(text: str) -> str:
    return text.replace("\\t", "\t")


def _csv(file: BinaryIO, config: Mapping[str, Any]) -> Iterator[Rows]:
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=_separator(config["csv.separator.char"]), strict=True)
    rows: list[dict[str, str]] = []
    schema: Schema | None = None
    names: list[str] = []
    fault: DataError | None = None
    try:
        for row in reader:
            if schema is None:
                names = row if config["csv.first.row.as.header"] else [f"column{number + 1:02}" for number in range(len(row))]
                if len(set(names)) < len(names):
                    raise DataError("two columns have one name")
                schema = Schema(type="struct", fields=tuple(Field(name, OPTIONAL_STRING) for name in names))
                if config["csv.first.row.as.header"]:
                    continue
            if row and len(row) != len(names):
                raise DataError(f"line {reader.line_num} has {len(row)} fields; the first row has {len(names)}")
            if row:
                rows.append(dict(zip(names, row, strict=True)))
            if len(rows) == config["batch.size"]:
                yield schema, rows
                rows = []
    except DataError as error:
        fault = error
    except (csv.Error, UnicodeDecodeError) as error:
        fault = DataError(f"line {reader.line_num}: {error}")
    finally:
        text.detach()
    if rows:
        yield schema, rows
    if fault is not None:
        raise fault


def _lines(file: BinaryIO, config: Mapping[str, Any]) -> Iterator[Rows]:
    while batch := list(itertools.islice(file, config["batch.size"])):
        yield STRING, [line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace") for line in batch]


def _json(file: BinaryIO, config: Mapping[str, Any]) -> Iterator[Rows]:
    converter = JsonConverter()
    converter.configure({"schemas.enable": False, "converter.type": "value"})
    while batch := list(itertools.islice(file, config["batch.size"])):
        if not (lines := [line for line in batch if not line.isspace()]):
            continue
        try:
            yield None, converter.to_connect_many("", lines)[1]
        except DataError:
            good = []
            for line in lines:
                try:
                    good.append(converter.to_connect("", line)[1])
                except DataError:
                    break
            if good:
                yield None, good
            converter.to_connect("", lines[len(good)])  # raises


def _parquet(file: BinaryIO, config: Mapping[str, Any]) -> Iterator[Rows]:
    return parquet_rows(file, config["batch.size"])


_READERS: Mapping[str, Callable[[BinaryIO, Mapping[str, Any]], Iterator[Rows]]] = {
    "csv": _csv,
    "json": _json,
    "lines": _lines,
    "parquet": _parquet,
}


def _look(path: str) -> _Look | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return _look_of(found) if stat.S_ISREG(found.st_mode) else None


def _look_of(found: os.stat_result) -> _Look:
    return _Look(found.st_size, found.st_mtime_ns, found.st_ino)


def _mark(descriptor: int, size: int) -> str:
    return hashlib.blake2b(os.pread(descriptor, min(size, _MARKED), 0), digest_size=8).hexdigest()
