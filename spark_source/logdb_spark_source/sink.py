"""What Spark writes through, in batches and as a stream: tasks stage their rows, the driver commits them at once.

Knows Spark's order of calls.  Does not know how rows are encoded, nor the steps of a commit.

    driver    plans: options, columns and topics are checked; the topics as they are then go with the plan
    tasks     ``write``: a private file each; what it holds goes to the driver as a message
    driver    ``commit``: all messages, in one transaction; then the files are removed
              ``abort``: the files are removed.  It may come after a commit that landed, and changes nothing in the database

Whatever becomes of a commit, Spark never commits the same messages again: it runs the tasks of the batch again.
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
from logdb.errors import DirectoryLocked, InvalidConfig, LogdbError, NotADatabase
from logdb.requests.session import Session
from logdb_spark_source import noted, staging
from logdb_spark_source.commit import commit
from logdb_spark_source.encoding import Encoder
from logdb_spark_source.location import Location
from logdb_spark_source.staging import Staged, StagingFile
from logdb_spark_source.write_options import WriteOptions, check_schema

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"  # a query's, the same after each restart from its checkpoint
_LOCK_LOOK_S = 0.05


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task tells the driver; ``query_id``: of the stream that it ran for, None in a batch."""

    staged: Staged
    query_id: str | None


class Sink:
    """What both writers share.  Travels with the plan."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Check everything that can be checked before there are rows.

        Raises:
            InvalidConfig: An option, or a column, is not what it should be.
        """
        self.options = WriteOptions.of(given)
        check_schema(schema, self.options)
        self._targets = self.options.targets()

    def stage(self, batches: "Iterator[pyarrow.RecordBatch]") -> Written:
        """Write the rows of one try of a task to a file of its own."""
        file = StagingFile(self.options.staging)
        try:
            encoder = Encoder(self._targets, self.options.topic, file)
            for rows in batches:
                encoder.add(rows)
            encoder.finish()
        except BaseException:
            file.discard()
            raise
        context = TaskContext.get()
        return Written(file.close(), None if context is None else context.getLocalProperty(_QUERY_ID))

    def commit(self, name: str, batch_id: int, files: Sequence[Staged]) -> None:
        """Commit a batch of a stream, or one that is named, and note that."""
        options = self.options
        known = noted.last(options.staging, name) if options.fail_on_data_loss else noted.NOTHING
        with opened(options.place, options.lock_timeout_ms) as session:
            commit(session, name, batch_id, files, noted=known)
        with contextlib.suppress(LogdbError):  # it is committed all the same, and the next batch will be noted
            noted.note(options.staging, name, batch_id)

    def commit_anonymous(self, files: Sequence[Staged]) -> None:
        """Commit what no other batch follows, under a name that is forgotten afterwards."""
        name = f"spark-{uuid.uuid4()}"
        with opened(self.options.place, self.options.lock_timeout_ms) as session:
            commit(session, name, 0, files)
            with contextlib.suppress(LogdbError):  # it is in nobody's way
                session.delete_group(name)

    def clean(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what was staged, and what others left behind long ago."""
        staging.discard(_files(messages))
        staging.reap(self.options.staging)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """What tasks have staged, in the order of their rows; one that had none may have sent no message."""
    return [message.staged for message in messages if isinstance(message, Written) and message.staged.pieces]


class BatchWriter(DataSourceArrowWriter):
    """Appends a DataFrame, all of it or nothing."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidConfig("mode", "overwrite", "allowed is append: a log is not written over")
        self._sink = Sink(given, schema)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        """A task's."""
        return self._sink.stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The driver's, once all tasks have written."""
        files, options = _files(messages), self._sink.options
        if files and options.write_id is not None and options.batch_id is not None:
            self._sink.commit(f"spark-{options.write_id}", options.batch_id, files)
        elif files:
            self._sink.commit_anonymous(files)
        self._sink.clean(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The driver's, when a task or the commit has failed."""
        self._sink.clean(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each batch of a stream once; made anew for the tasks, and for the commit, of each."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            allowed = "allowed is append; logdb_spark_source.upsert, given to foreachBatch, writes what a query with update has changed"
            raise InvalidConfig("outputMode", "complete", allowed)
        self._sink = Sink(given, schema)
        if self._sink.options.write_id is not None:
            raise InvalidConfig("writeId", self._sink.options.write_id, "it is for batch writes: a stream's query has an id of its own")

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        """A task's."""
        return self._sink.stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's
        """The driver's, once all tasks have written."""
        files = _files(messages)
        if files:
            (query_id,) = {message.query_id for message in messages if isinstance(message, Written)}
            if query_id is None:  # batches of several queries would be taken for each other
                raise RuntimeError(f"Spark did not tell the tasks which query they are of ({_QUERY_ID})")
            self._sink.commit(f"spark-{query_id}", batchId, files)
        self._sink.clean(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """The driver's, when a task or the commit has failed."""
        self._sink.clean(messages)


# ---------------------------------------------------------------- the database


@contextlib.contextmanager
def opened(place: Location, lock_timeout_ms: int) -> Iterator[Session]:
    """The session to commit through; a directory is open for writing as long as this lasts.

    Raises:
        DirectoryLocked: Another process still writes to it after ``lock_timeout_ms``.
        NotADatabase: It is not there any more.
    """
    if place.path is None:
        yield place.open().session
        return
    if not os.path.isdir(place.path):
        raise NotADatabase(f"{place.path} is not there any more")
    with _open_to_write(place.path, lock_timeout_ms) as database:
        yield database.session


def _open_to_write(path: str, lock_timeout_ms: int) -> logdb.Database:
    until = time.monotonic() + lock_timeout_ms / 1_000
    while True:
        try:
            return logdb.open(path, mode="a")
        except DirectoryLocked as error:
            if time.monotonic() >= until:
                error.add_note(f"lockTimeout={lock_timeout_ms}ms is over; where an application holds it, serve it, and write to the url")
                raise
        time.sleep(_LOCK_LOOK_S)
