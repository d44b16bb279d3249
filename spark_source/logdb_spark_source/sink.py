"""The writers of Spark, for batches and streams: tasks stage their rows, the driver commits them in one transaction.

    driver    plans: checks options, columns and topics; the topics' state is part of the plan
    tasks     ``write``: each writes a private file, or uploads to the server; a message tells the driver its content
    driver    ``commit``: all messages in one transaction; then the files or uploads are removed
              ``abort``: the files are removed; it may come after a successful commit, and does not change the database

Spark never repeats a commit with the same messages: it runs the tasks of the batch again.
"""

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import logdb
from logdb.errors import DirectoryLocked, InvalidConfig, LogdbError, NotADatabase, ServerUnavailable
from logdb.requests.session import Session
from logdb_spark_source import noted, staging, uploading
from logdb_spark_source.commit import commit
from logdb_spark_source.encoding import Encoder
from logdb_spark_source.executors import open_in_task, said_by_host
from logdb_spark_source.location import Location
from logdb_spark_source.staging import SharedDirectory, Staged, StagingFile
from logdb_spark_source.uploading import Uploaded, Uploading
from logdb_spark_source.write_options import WriteOptions, check_schema

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"  # the query's id, which a restart from its checkpoint keeps
_LOCK_LOOK_S = 0.05


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """A task's message to the driver; ``query_id``: of its stream, None in a batch."""

    staged: Staged | Uploaded
    query_id: str | None


class Sink:
    """The common part of both writers.  It is sent with the plan."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Check everything that is known before there are rows.

        Raises:
            InvalidConfig: An option, or a column, is invalid.
        """
        self.options = WriteOptions.of(given)
        check_schema(schema, self.options)
        self._targets = self.options.targets()
        self._shared = None if self.options.uploads else SharedDirectory.made(self.options.staging)

    def stage(self, batches: "Iterator[pyarrow.RecordBatch]") -> Written:
        """Write the rows of one attempt of a task to its own file, or its uploads.

        Raises:
            StagingNotShared: This machine does not see the driver's directory; no row was encoded.
            AuthenticationFailed, ServerUnavailable: as ``open_in_task``; no row was encoded.
        """
        file: StagingFile | Uploading
        if self._shared is None:
            file = Uploading(open_in_task(self.options.place).session)
        else:
            self._shared.check()
            file = StagingFile(self.options.staging)
        try:
            encoder = Encoder(self._targets, self.options.topic, file)
            for rows in batches:
                encoder.add(rows)
            encoder.finish()
        except BaseException as error:
            file.discard()
            if isinstance(error, ServerUnavailable):
                raise said_by_host(error) from error.__cause__
            raise
        context = TaskContext.get()
        return Written(file.close(), None if context is None else context.getLocalProperty(_QUERY_ID))

    def commit(self, name: str, batch_id: int, files: Sequence[Staged | Uploaded]) -> None:
        """Commit a batch of a stream, or one with a writeId, and note it."""
        options = self.options
        known = noted.last(options.staging, name) if options.fail_on_data_loss else noted.NOTHING
        with opened(options.place, options.lock_timeout_ms) as session:
            commit(session, name, batch_id, files, noted=known)
        with contextlib.suppress(LogdbError):  # it is committed nevertheless, and the next batch writes the note
            noted.note(options.staging, name, batch_id)

    def commit_anonymous(self, files: Sequence[Staged | Uploaded]) -> None:
        """Commit a batch without a successor, under a name that is deleted afterwards."""
        name = f"spark-{uuid.uuid4()}"
        with opened(self.options.place, self.options.lock_timeout_ms) as session:
            commit(session, name, 0, files)
            with contextlib.suppress(LogdbError):  # a leftover does no harm
                session.delete_group(name)

    def clean(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove staged files, also old ones of other queries; or uploads."""
        files = _files(messages)
        if not self.options.uploads:
            staging.discard(one for one in files if isinstance(one, Staged))
            staging.reap(self.options.staging)
        elif files:
            with contextlib.suppress(LogdbError):  # they expire
                uploading.discard(self.options.place.open().session, (one for one in files if isinstance(one, Uploaded)))


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[Staged | Uploaded]:
    """The tasks' staged files or uploads, in the order of their rows; a task without rows may have sent no message."""
    return [message.staged for message in messages if isinstance(message, Written) and message.staged.pieces]


class BatchWriter(DataSourceArrowWriter):
    """Appends a DataFrame atomically."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidConfig("mode", "overwrite", "must be append: records of a log cannot be overwritten")
        self._sink = Sink(given, schema)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        """Called in a task."""
        return self._sink.stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called in the driver when all tasks have written."""
        files, options = _files(messages), self._sink.options
        if files and options.write_id is not None and options.batch_id is not None:
            self._sink.commit(f"spark-{options.write_id}", options.batch_id, files)
        elif files:
            self._sink.commit_anonymous(files)
        self._sink.clean(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called in the driver when a task or the commit has failed."""
        self._sink.clean(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each batch of a stream exactly once; Spark makes a new object for the tasks, and for the commit, of each."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            allowed = "must be append; for update mode give logdb_spark_source.upsert to foreachBatch"
            raise InvalidConfig("outputMode", "complete", allowed)
        self._sink = Sink(given, schema)
        if self._sink.options.write_id is not None:
            raise InvalidConfig("writeId", self._sink.options.write_id, "only batch writes take it: a stream's query has its own id")

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        """Called in a task."""
        return self._sink.stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's
        """Called in the driver when all tasks have written."""
        files = _files(messages)
        if files:
            (query_id,) = {message.query_id for message in messages if isinstance(message, Written)}
            if query_id is None:  # batches of different queries could be confused
                raise RuntimeError(f"Spark did not tell the tasks their query's id ({_QUERY_ID})")
            self._sink.commit(f"spark-{query_id}", batchId, files)
        self._sink.clean(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Called in the driver when a task or the commit has failed."""
        self._sink.clean(messages)


# ---------------------------------------------------------------- the database


@contextlib.contextmanager
def opened(place: Location, lock_timeout_ms: int) -> Iterator[Session]:
    """The session to commit through; a directory is open for writing within the block.

    Raises:
        DirectoryLocked: Another process still writes to it after ``lock_timeout_ms``.
        NotADatabase: The directory is gone.
    """
    if place.path is None:
        yield place.open(patient=True).session
        return
    if not os.path.isdir(place.path):
        raise NotADatabase(f"{place.path} is gone")
    with _open_to_write(place.path, lock_timeout_ms) as database:
        yield database.session


def _open_to_write(path: str, lock_timeout_ms: int) -> logdb.Database:
    until = time.monotonic() + lock_timeout_ms / 1_000
    while True:
        try:
            return logdb.open(path, mode="a")
        except DirectoryLocked as error:
            if time.monotonic() >= until:
                error.add_note(f"lockTimeout={lock_timeout_ms}ms is over; if an application has it open, serve it, and write to the url")
                raise
        time.sleep(_LOCK_LOOK_S)
