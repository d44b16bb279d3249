"""336,776 flights through logdb: append, consume, replay, kill -9, verify, dataframe.

The table is nycflights13: every flight that left New York City in 2013.  Each one becomes a record of the
topic `flights`: its key is the aircraft's tail number, its value the row as it stands in the table, its
timestamp the scheduled departure.

    python demo/flights.py                      # in a scratch directory
    python demo/flights.py --data-dir flights   # kept, for `logdb consume flights --data-dir flights …`
"""

import argparse
import contextlib
import io
import itertools
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import distribution
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.progress import track
from rich.table import Table

import logdb

TOPIC, PARTITIONS = "flights", 3
CHUNK = 10_000
INDEPENDENCE_DAY = datetime(2013, 7, 4, tzinfo=UTC)
KILL_AFTER = {"fsync": 2_000, "interval": 100_000, "os": 100_000}  # appends, then SIGKILL

console = Console(highlight=False)


# ---------------------------------------------------------------- the table


class Flight(NamedTuple):
    scheduled_ms: int
    tail_number: bytes | None
    row: bytes


def read_table() -> tuple[bytes, list[bytes]]:
    """The header and the rows, from the files of the installed package (importing it is not needed)."""
    path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(path)) as archive:
        header, *rows = archive.read("flights.csv").splitlines()
    return header, rows


def flights_of(header: bytes, rows: list[bytes]) -> list[Flight]:
    """One Flight a row, in the order in which they were scheduled."""
    columns = header.split(b",")
    tail_number, hour, minute = (columns.index(name) for name in (b"tailnum", b"time_hour", b"minute"))
    hour_ms: dict[bytes, int] = {}
    flights = []
    for row in rows:
        fields = row.split(b",")
        if (text := fields[hour]) not in hour_ms:
            hour_ms[text] = round(datetime.fromisoformat(text.decode()).timestamp() * 1000)
        key = fields[tail_number]
        flights.append(Flight(hour_ms[text] + 60_000 * int(fields[minute]), None if key == b"NA" else key, row))
    return sorted(flights, key=lambda flight: flight.scheduled_ms)


class Delays:
    """Sum and count of departure delays of each carrier; cancelled flights have none."""

    def __init__(self, header: bytes) -> None:
        columns = header.split(b",")
        self._carrier, self._delay = columns.index(b"carrier"), columns.index(b"dep_delay")
        self.sums: dict[str, tuple[int, int]] = {}

    def add(self, row: bytes) -> None:
        fields = row.split(b",")
        if fields[self._delay] != b"NA":
            carrier = fields[self._carrier].decode()
            total, count = self.sums.get(carrier, (0, 0))
            self.sums[carrier] = total + int(fields[self._delay]), count + 1

    def means(self) -> dict[str, float]:
        return {carrier: total / count for carrier, (total, count) in sorted(self.sums.items())}


# ---------------------------------------------------------------- the rates


class Rate(NamedTuple):
    work: str
    record_count: int
    size_bytes: int
    seconds: float


class Rates(list[Rate]):
    @contextlib.contextmanager
    def measure(self, work: str, flights: list[Flight]) -> Iterator[None]:
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        self.append(Rate(work, len(flights), sum(len(flight.row) for flight in flights), seconds))

    def show(self) -> None:
        table = Table("work", "records", "seconds", "records/s", "MB/s of values")
        for column in table.columns[1:]:
            column.justify = "right"
        for work, count, size_bytes, seconds in self:
            table.add_row(work, f"{count:,}", f"{seconds:.2f}", f"{count / seconds:,.0f}", f"{size_bytes / seconds / 1e6:,.0f}")
        console.print(table)


# ---------------------------------------------------------------- the acts


def append(db: logdb.Database, flights: list[Flight]) -> None:
    """Append all flights; the default partitioner sends an aircraft's flights to one partition, in order."""
    db.create_topic(TOPIC, partitions=PARTITIONS)
    for begin in track(range(0, len(flights), CHUNK), "appending", console=console, transient=True):
        chunk = flights[begin : begin + CHUNK]
        db.append_many(
            TOPIC,
            [flight.row for flight in chunk],
            [flight.tail_number for flight in chunk],
            timestamps_ms=[flight.scheduled_ms for flight in chunk],
        )
    db.flush()


def logs(db: logdb.Database) -> list[logdb.Log]:
    return [db.log(TOPIC, partition=partition) for partition in range(PARTITIONS)]


def consume(db: logdb.Database, header: bytes) -> dict[str, float]:
    """Mean departure delay per carrier, out of the records."""
    delays = Delays(header)
    for log in logs(db):
        for record in log.read(log.start_offset):
            delays.add(record.value)
    return delays.means()


def replay(db: logdb.Database, since_ms: int) -> int:
    """How many flights were scheduled at `since_ms` or later, by reading only those."""
    count = 0
    for log in logs(db):
        offset = log.offset_for_timestamp(since_ms)
        count += sum(1 for _ in log.read(offset)) if offset is not None else 0
    return count


def dataframe(db: logdb.Database, header: bytes) -> dict[str, float]:
    """The same means by way of Arrow and pandas."""
    batches = itertools.chain.from_iterable(log.read_arrow(log.start_offset, columns=["value"]) for log in logs(db))
    rows = pa.Table.from_batches(batches)["value"].to_pylist()
    frame = pyarrow.csv.read_csv(io.BytesIO(b"\n".join([header, *rows]))).to_pandas()
    return dict(frame.groupby("carrier")["dep_delay"].mean())


# ---------------------------------------------------------------- the crash


def write_until_killed(path: str, level: str) -> None:
    """What the victim does: append one flight after another and say on stdout how far it is.

    A record is acknowledged by any append at level fsync, and by a flush below it.
    """
    _, rows = read_table()
    with logdb.open(path, durability=level) as db:
        db.create_topic(TOPIC)
        log = db.log(TOPIC, partition=0)
        acknowledged = 0
        for row in itertools.cycle(rows):
            appended = log.append(row) + 1
            if level == "fsync":
                acknowledged = appended
            elif appended % 1_000 == 0:
                log.flush(sync=False)
                acknowledged = appended
            os.write(sys.stdout.fileno(), b"%d %d\n" % (appended, acknowledged))


def kill_a_writer(path: str, level: str) -> tuple[int, int]:
    """Start a writer, kill it in mid-append; returns how many records it had appended and how many were acknowledged."""
    command = [sys.executable, __file__, "--write", path, "--durability", level]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line.split()[0]) >= KILL_AFTER[level]:
                break
        writer.send_signal(signal.SIGKILL)
        *_, last = [line, *(rest for rest in writer.stdout if rest.endswith("\n"))]  # what it still said before it died
    appended, acknowledged = map(int, last.split())
    return appended, acknowledged


def survive(scratch: str, rows: list[bytes]) -> None:
    """Kill a writer at each level, reopen, and hold what is there against what the level promised."""
    table = Table("durability", "appended", "acknowledged", "found", "acknowledged but lost", "others lost", "open")
    for column in table.columns[1:]:
        column.justify = "right"
    for level in ("fsync", "interval", "os"):
        path = os.path.join(scratch, f"killed-{level}")
        appended, acknowledged = kill_a_writer(path, level)
        began = time.perf_counter()
        with logdb.open(path) as db:
            log = db.log(TOPIC, partition=0)
            found = log.end_offset
            open_ms = (time.perf_counter() - began) * 1000
            for record, row in zip(log.read(0), itertools.cycle(rows), strict=False):
                assert record.value == row, f"record {record.offset} came back changed"
        lost = max(0, acknowledged - found)
        assert lost == 0, f"{lost} acknowledged records lost at level {level}"
        others = max(0, appended - max(acknowledged, found))
        table.add_row(level, *(f"{count:,}" for count in (appended, acknowledged, found, lost, others)), f"{open_ms:.1f} ms")
    console.print(table)
    console.print("A kill spares the operating system's cache, so each level kept its promise. A power cut may cost `interval`")
    console.print("its last second and `os` whatever the system had not written out; `fsync` nothing that was acknowledged.\n")


# ---------------------------------------------------------------- the play


def equal(means: dict[str, float], others: dict[str, float]) -> bool:
    return means.keys() == others.keys() and all(math.isclose(means[carrier], others[carrier]) for carrier in means)


def show_means(columns: dict[str, dict[str, float]]) -> None:
    table = Table("carrier", *columns, title="Mean departure delay, minutes", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for carrier in next(iter(columns.values())):
        table.add_row(carrier, *(f"{means[carrier]:.4f}" for means in columns.values()))
    console.print(table)


def main(data_dir: str, scratch: str, count: int | None) -> None:
    rates = Rates()
    header, rows = read_table()
    rows = rows[:count]
    flights = flights_of(header, rows)
    console.print(f"{len(flights):,} flights of 2013, {sum(map(len, rows)) / 1e6:.0f} MB\n")

    with logdb.open(data_dir) as db:
        with rates.measure("append_many, keyed, three partitions, flushed to the disk", flights):
            append(db, flights)
        for partition in db.describe_topic(TOPIC).partitions:
            console.print(f"  partition {partition.partition}: {partition.end_offset:,} records, {partition.size_bytes:,} bytes")
        console.print()

    with logdb.open(data_dir) as db:  # from here on, what a later run of a program would find
        with rates.measure("read, Python sums it up", flights):
            consumed = consume(db, header)
        with rates.measure("read_arrow, pandas sums it up", flights):
            framed = dataframe(db, header)
        truth = Delays(header)
        for row in rows:
            truth.add(row)
        show_means({"from the table": truth.means(), "consumed": consumed, "by dataframe": framed})
        assert consumed == truth.means() and equal(framed, consumed)
        console.print("All three are equal.\n")

        since_ms = round(INDEPENDENCE_DAY.timestamp() * 1000)
        later = [flight for flight in flights if flight.scheduled_ms >= since_ms]
        with rates.measure("replay from a timestamp", later):
            replayed = replay(db, since_ms)
        console.print(f"Replay from {INDEPENDENCE_DAY:%d %B}: {replayed:,} flights; the table has {len(later):,}.\n")
        assert replayed == len(later)

        with rates.measure("verify", flights):
            report = db.verify()
        found = "no problem" if report.ok else "\n".join(map(str, report.problems))
        console.print(f"verify: {found} in {report.record_count:,} records, {report.size_bytes:,} bytes, {report.file_count} files\n")
        assert report.ok

    survive(scratch, rows)
    rates.show()


def run(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="keep the database there (default: a scratch directory)")
    parser.add_argument("--count", type=int, help="take only so many flights")
    parser.add_argument("--write", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--durability", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.write:
        write_until_killed(options.write, options.durability)
        return
    with tempfile.TemporaryDirectory(prefix="logdb-demo-") as scratch:
        main(options.data_dir or os.path.join(scratch, TOPIC), scratch, options.count)


if __name__ == "__main__":
    run()
