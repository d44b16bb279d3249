"""``logdb bench``: a short measurement of this machine and its disk.

It works in a scratch directory that is removed; ``benches/`` measures thoroughly, and compares with other systems.
"""

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import click

import logdb
from logdb.cli.terminal.output import emit, progress, say, table
from logdb.cli.terminal.session import Session, here, pass_session
from logdb.cli.terminal.units import WholeNumber
from logdb.requests.report import Progress

VALUE_SIZE_BYTES, KEY_SIZE_BYTES = 100, 16
CALL_COUNT = 1000  # records of one append_many


class Result(NamedTuple):
    """One kind of work; ``size_bytes`` counts keys and values."""

    work: str
    record_count: int
    size_bytes: int
    seconds: float


class Work(NamedTuple):
    """What all kinds of work share: the database and the records."""

    db: "logdb.Database"
    record_count: int
    value: bytes
    keys: list[bytes]


def append(work: Work) -> int:
    log = work.db.log("append", 0)
    one, value = log.append, work.value
    for key in itertools.islice(itertools.cycle(work.keys), work.record_count):
        one(value, key)
    log.flush(sync=False)
    return work.record_count


def append_many(work: Work) -> int:
    log = work.db.log("append_many", 0)
    values = [work.value] * len(work.keys)
    for _ in range(work.record_count // len(work.keys)):
        log.append_many(values, keys=work.keys)
    return work.record_count // len(work.keys) * len(work.keys)


def append_synced(work: Work) -> int:
    """One durable batch of 100 records a call, for about a second."""
    log = work.db.log("append_synced", 0)
    values, count, until = [work.value] * 100, 0, time.monotonic() + 1
    while time.monotonic() < until and count < work.record_count:
        log.append_many(values, keys=work.keys[:100], durability="fsync")
        count += 100
    return count


def scan(work: Work) -> int:
    log = work.db.log("append_many", 0)
    return sum(1 for record in log.read(log.start_offset) if record.value is not None)


def measure(directory: str, record_count: int, value_size_bytes: int, bar: Progress | None) -> Iterator[Result]:
    """Do each kind of work once, in a new database in ``directory``."""
    keys = [b"%0*d" % (KEY_SIZE_BYTES, number) for number in range(CALL_COUNT)]
    kinds: dict[str, Callable[[Work], int]] = {
        "append, a record a call": append,
        f"append_many, {CALL_COUNT:,} a call": append_many,
        "append_many, 100 a call, fsync": append_synced,
        "read, a record at a time": scan,
    }
    with logdb.open(os.path.join(directory, "db"), durability="os") as db:
        for topic in ("append", "append_many", "append_synced"):
            db.create_topic(topic)
        work = Work(db, record_count, os.urandom(value_size_bytes), keys)
        for number, (name, do) in enumerate(kinds.items()):
            if bar is not None:
                bar(number, len(kinds), name)
            began = time.perf_counter()
            count = do(work)
            seconds = time.perf_counter() - began
            yield Result(name, count, count * (value_size_bytes + KEY_SIZE_BYTES), seconds)


@click.command(short_help="Measure appends and reads on this machine.")
@here
@click.option(
    "-n", "--records", "record_count", type=WholeNumber(min=CALL_COUNT), default=1_000_000, show_default=True, help="Number of records."
)
@click.option(
    "-s", "--value-size", type=WholeNumber(min=1, max=500_000), default=VALUE_SIZE_BYTES, show_default=True, help="Bytes of a value."
)
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, writable=True),
    help="Directory on the disk to measure.  [default: the system's temporary directory]",
)
@pass_session
def bench(session: Session, record_count: int, value_size: int, scratch: str | None) -> None:
    """Measure appends and reads on this machine, in a scratch directory."""
    session.refuse_servers("bench measures a disk of this machine")
    directory = tempfile.mkdtemp(prefix="logdb-bench-", dir=scratch)
    try:
        with progress("measuring", sized=False) as bar:
            results = list(measure(directory, record_count, value_size, bar))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if session.as_json:
        columns = ("work", "records", "size_bytes", "seconds")
        emit([dict(zip(columns, result, strict=True)) for result in results])
        return
    rows = [
        (r.work, r.record_count, f"{r.seconds:.2f}", f"{r.record_count / r.seconds / 1e6:.2f}", f"{r.size_bytes / r.seconds / 1e6:,.0f}")
        for r in results
    ]
    table(("WORK", "RECORDS", "SECONDS", "M RECORDS/S", "MB/S"), rows)
    say(f"values of {value_size} B, keys of {KEY_SIZE_BYTES} B, in {scratch or tempfile.gettempdir()}; see benches/ for more")
