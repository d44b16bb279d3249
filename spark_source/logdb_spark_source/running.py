"""``logdb spark run``: runs a program with a Spark session, and shortens Spark's errors to a sentence."""

import logging
import os
import re
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING

from logdb.threads import started
from logdb_spark_source.launch import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRESS_S = 10.0
_HOST = re.compile(r"\(TID \d+\) \(([^\s()]+) executor ([\w-]+)\)")  # of the task that failed
_OF_PYTHON = re.compile(r"^(?!java\.|org\.|scala\.|sun\.|io\.)((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)): (.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_REMEDIES = (
    (
        re.compile(r"No module named '(?:logdb|pyspark_logdb)"),
        "Install logdb with the extra spark for the Python of every worker, of the version that the driver has",
    ),
    (
        re.compile(r'Cannot run program "[^"]*python[^"]*"'),
        "Install Python at this path on every worker, or name another one by PYSPARK_PYTHON",
    ),
    (re.compile(r"PYTHON_VERSION_MISMATCH"), "Give driver and workers one version of Python: PYSPARK_PYTHON names it"),
    (
        re.compile(r"Python worker failed to connect back"),
        "A process of Python took more than Spark's 10 s to start: nothing was done, start the query again",
    ),
)
_OURS = re.compile(r"^(?:pyspark\.errors\.[\w.]+: )?logdb[\w.]*\.(\w+): (.+)$", re.MULTILINE)  # the last line of a traceback


def run(program: str, arguments: Sequence[str] = (), *, master: str | None = None, config: Mapping[str, str] | None = None) -> str | None:
    """Run a program as ``python program arguments…`` would, with a Spark session that it finds by ``session()`` or ``getOrCreate()``.

    The session is as ``session`` makes it, and ends with the program.

    Args:
        program: A Python file.
        arguments: Its ``sys.argv[1:]``.
        master, config: As for ``session``; they win over the program's own.

    Returns:
        After a failure of Spark: the line of the program and the error; otherwise None.

    Raises:
        JavaMissing: There is no Java that Spark can use.
        SystemExit, and any other exception of the program.
    """
    from pyspark.errors import PySparkException

    began = time.monotonic()
    _say("starting Spark, which takes up to a minute")
    spark = session(master, app_name=os.path.basename(program), config={"spark.log.level": "ERROR"} | dict(config or {}))
    _say(f"Spark {spark.version} runs on {spark.conf.get('spark.master')} after {time.monotonic() - began:.0f} s; running {program}")
    try:
        with _as_main(program, arguments), _quiet_interrupts(), _progress(spark):
            runpy.run_path(program, run_name="__main__")
    except PySparkException as error:
        return f"{_line_of(program, error.__traceback__)}: {_sentence(str(error))}"
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.stop()
    _say(f"{program} ended after {time.monotonic() - began:.0f} s")
    return None


def _say(text: str) -> None:
    """Tell the user on stderr; stdout is the program's."""
    with suppress(OSError):  # nobody reads it any more
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@contextmanager
def _quiet_interrupts() -> Iterator[None]:
    """Without the stack that py4j logs when Ctrl-C or SIGTERM ends a call of the JVM: the command ends by it, as it is meant to."""

    def is_shown(record: logging.LogRecord) -> bool:
        return not (record.exc_info and record.exc_info[0] is not None and issubclass(record.exc_info[0], KeyboardInterrupt))

    logging.root.addFilter(is_shown)
    try:
        yield
    finally:
        logging.root.removeFilter(is_shown)


@contextmanager
def _progress(spark: "SparkSession") -> Iterator[None]:
    """Tell of the first batch with rows of each stream, and then of one every ``_PROGRESS_S``."""
    told: dict[str, float] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            with suppress(Exception):  # the program may stop Spark; this only looks
                for query in spark.streams.active:
                    last, now = query.lastProgress, time.monotonic()
                    if now - told.get(query.id, -_PROGRESS_S) >= _PROGRESS_S:
                        told[query.id] = now
                        rows = 0 if last is None else last.numInputRows
                        at = "its first batch" if last is None else f"batch {last.batchId}, {rows} rows"
                        _say(f"stream {query.name or query.id}: {at}")

    thread = started("logdb-spark-progress", watch)
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _as_main(program: str, arguments: Sequence[str]) -> Iterator[None]:
    """The interpreter state that a program expects: its arguments, and its own directory to import from."""
    argv, sys.argv = sys.argv, [program, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    try:
        yield
    finally:
        sys.argv = argv
        del sys.path[0]


def _line_of(program: str, trace: TracebackType | None) -> str:
    """The innermost line of the program itself."""
    lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == program]
    return f"{program}:{lines[-1]}" if lines else program


def _sentence(text: str) -> str:
    """The error in a message of Spark, without the stacks of two languages: the host of the task, the error, its cause and a remedy."""
    ours, of_python = _OURS.findall(text), _OF_PYTHON.findall(text)
    if ours:
        said = f"{ours[-1][0]}: {ours[-1][1]}"
    elif of_python:
        said = f"{of_python[-1][0].rpartition('.')[2]}: {of_python[-1][1]}"
    else:
        said = text.strip().partition("\n")[0]
        causes = [cause for cause in _CAUSE.findall(text) if cause not in said]
        said += f"; caused by {causes[-1]}" if causes else ""
    hosts = _HOST.findall(text)
    if hosts and hosts[-1][1] != "driver" and "on host " not in said:
        said = f"on host {hosts[-1][0]}: {said}"
    remedy = next((remedy for pattern, remedy in _REMEDIES if pattern.search(text)), None)
    return f"{said}. {remedy}" if remedy else said
