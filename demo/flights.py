"""336,776 flights through logdb: append, consume, replay, a compacted table, kill -9, verify, dataframe.

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

import pandas as pd
import pyarrow as pa
import pyarrow.csv
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

import logdb
from logdb.model import Durability

TOPIC, POSITIONS, PARTITIONS = "flights", "positions", 3
CHUNK = 10_000
INDEPENDENCE_DAY = datetime(2013, 7, 4, tzinfo=UTC)
KILL_AFTER: dict[Durability, int] = {"fsync": 2_000, "interval": 100_500, "os": 100_500}  # appends

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


# ---------------------------------------------------------------- the acts


def append(db: logdb.Database, flights: list[Flight]) -> None:
    """Append all flights; the default partitioner sends an aircraft's flights to one partition, in order."""
    db.create_topic(TOPIC, partitions=PARTITIONS)
    for begin in track(range(0, len(flights), CHUNK), "appending", console=console, transient=True, disable=not console.is_terminal):
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
            assert record.value is not None  # a null value would be a tombstone; flights have none
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
    frame: pd.DataFrame = pyarrow.csv.read_csv(io.BytesIO(b"\n".join([header, *rows]))).to_pandas()
    return dict(frame.groupby("carrier")["dep_delay"].mean())


def locate(db: logdb.Database, header: bytes, flights: list[Flight]) -> None:
    """Where each aircraft was last on its way to, as a table over a compacted topic, before and after compaction."""
    destination = header.split(b",").index(b"dest")
    known = [(flight.tail_number, flight.row.split(b",")[destination], flight.scheduled_ms) for flight in flights if flight.tail_number]
    tail_numbers, airports, times = zip(*known, strict=True)
    db.create_topic(POSITIONS, partitions=PARTITIONS, config={"cleanup.policy": "compact", "segment.bytes": 1 << 20})
    db.append_many(POSITIONS, airports, tail_numbers, timestamps_ms=times)
    positions = db.table(POSITIONS)
    truth = dict(zip(tail_numbers, airports, strict=True))
    logs = [db.log(POSITIONS, partition=partition) for partition in range(PARTITIONS)]
    shown = report("", "aircraft", "records", "bytes", "offsets")
    places, sizes = [], []
    for when in ("before compaction", "after"):
        if when == "after":
            db.compact(POSITIONS)
        assert dict(positions.items()) == truth
        records = [record for log in logs for record in log.read(log.start_offset)]
        places.append({record.key: (record.partition, record.offset) for record in records})
        sizes.append(sum(log.size_bytes for log in logs))
        shown.add_row(when, *(f"{count:,}" for count in (len(truth), len(records), sizes[-1], sum(log.end_offset for log in logs))))
    console.print(shown)
    assert places[0] == places[1]
    assert len(records) == len(truth)
    example = min(truth)
    console.print(f"{example.decode()} was last on its way to {positions[example].decode()}, as before. No offset has changed.")
    console.print(f"{sizes[0] - sizes[1]:,} bytes were given back: {1 - sizes[1] / sizes[0]:.0%}.")


# ---------------------------------------------------------------- the crash


def write_until_killed(path: str, level: Durability) -> None:
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


def kill_a_writer(path: str, level: Durability) -> tuple[int, int]:
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
    """Kill a writer at each level, open again, and hold what is there against what the level promised."""
    table = report("level", "appended", "acknowledged", "found", "broken\npromises", "others\nlost", "open\nms")
    for level in KILL_AFTER:
        path = os.path.join(scratch, f"killed-{level}")
        console.print(f"A process appends at level {level}; kill -9 ends it.")
        with console.status("it appends"):
            appended, acknowledged = kill_a_writer(path, level)
        began = time.perf_counter()
        with logdb.open(path) as db:
            log = db.log(TOPIC, partition=0)
            found = log.end_offset
            open_ms = (time.perf_counter() - began) * 1000
            for record, row in zip(log.read(0), itertools.cycle(rows), strict=False):
                assert record.value == row, f"record {record.offset} came back changed"
        broken, others = max(0, acknowledged - found), max(0, appended - max(acknowledged, found))
        table.add_row(level, *(f"{count:,}" for count in (appended, acknowledged, found, broken, others)), f"{open_ms:.1f}")
        assert broken == 0, f"{broken} acknowledged records lost at level {level}"
    console.print(table)
    console.print(
        "A kill leaves the system's cache alone, so each level kept its promise. The lost records waited in memory: they were not "
        "acknowledged. One record more may be found, if the writer died before it could say so. A power cut may also cost records: "
        "at level interval those of the last second, at level os those that the system had not written out, at level fsync none "
        "that was acknowledged."
    )


# ---------------------------------------------------------------- what is printed


def report(*columns: str) -> Table:
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def show_means(columns: dict[str, dict[str, float]]) -> None:
    table = report("carrier", *columns)
    for carrier in next(iter(columns.values())):
        table.add_row(carrier, *(f"{means[carrier]:.4f}" for means in columns.values()))
    console.print(table)


class Rates:
    """How fast each act was, and how fast the library does its part alone."""

    def __init__(self) -> None:
        self._acts: dict[str, tuple[int, int, float]] = {}
        self._alone: dict[str, float] = {}

    @contextlib.contextmanager
    def measure(self, work: str, flights: list[Flight]) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._acts[work] = len(flights), sum(len(flight.row) for flight in flights), time.perf_counter() - began

    @contextlib.contextmanager
    def measure_alone(self, work: str, count: int) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._alone[work] = count / (time.perf_counter() - began)

    def show(self, *notes: str) -> None:
        table = report("work", "records", "seconds", "MB/s", "records/s", *(["the library\nalone"] if self._alone else []))
        for work, (count, size_bytes, seconds) in self._acts.items():
            numbers = f"{count:,}", f"{seconds:.2f}", f"{size_bytes / seconds / 1e6:,.0f}", f"{count / seconds:,.0f}"
            alone = [f"{self._alone[work]:,.0f}"] if work in self._alone else []
            table.add_row(work, *numbers, *alone)
        console.print(table)
        for note in notes:
            console.print(note)


# ---------------------------------------------------------------- the play


def compare_delays(db: logdb.Database, header: bytes, rows: list[bytes], flights: list[Flight], rates: Rates) -> None:
    """Compute each carrier's mean delay from the log in two ways, and from the table it was filled from."""
    console.rule("Consume: mean departure delay of each carrier, minutes")
    with rates.measure(READ, flights):
        consumed = consume(db, header)
    with rates.measure(FRAMED, flights):
        framed = dataframe(db, header)
    truth = Delays(header)
    for row in rows:
        truth.add(row)
    show_means({"from the table": truth.means(), "consumed": consumed, "by dataframe": framed})
    assert consumed == truth.means()
    assert framed.keys() == consumed.keys()
    assert all(math.isclose(framed[carrier], consumed[carrier]) for carrier in consumed)
    console.print("All three are equal.")


APPENDED, READ, FRAMED = "append_many, flush", "read, Python sums", "read_arrow, pandas"


def measure_library(scratch: str, flights: list[Flight], rates: Rates) -> None:
    """The calls of the acts once more, without the demo's own work."""
    rows, keys, times = [f.row for f in flights], [f.tail_number for f in flights], [f.scheduled_ms for f in flights]
    with logdb.open(os.path.join(scratch, "alone")) as db:
        db.create_topic(TOPIC)
        log = db.log(TOPIC)
        with rates.measure_alone(APPENDED, len(rows)):
            log.append_many(rows, keys, timestamps_ms=times)
            log.flush()
        with rates.measure_alone(READ, len(rows)):
            assert all(record.value for record in log.read(0))
        with rates.measure_alone(FRAMED, len(rows)):
            assert sum(batch.num_rows for batch in log.read_arrow(0, columns=["value"])) == len(rows)


NEXT = """\
{python} demo/flights.py --data-dir flights      the same, and the database stays
{logdb} --data-dir flights topics describe
{logdb} --data-dir flights consume flights --from-beginning --max-messages 3
make demo-cluster                                three nodes, whose leader is killed under load
make demo-spark                                  the delays, hour by hour, by Apache Spark
docs/tutorial.md                                 ten minutes, from one process to three nodes"""


def show_next() -> None:
    console.rule("Try next")
    folder = os.path.relpath(os.path.dirname(sys.executable))
    for command, _, said in (line.partition("   ") for line in NEXT.splitlines()):
        shown = command.format(python=os.path.join(folder, "python"), logdb=os.path.join(folder, "logdb"))
        console.print(f"  {shown:<54}{said.strip()}".rstrip(), soft_wrap=True)


def main(data_dir: str, scratch: str, count: int | None) -> None:
    rates = Rates()
    console.print("Reading the table nycflights13: every flight that left New York City in 2013.")
    header, every_row = read_table()
    rows = every_row[:count]
    flights = flights_of(header, rows)

    console.rule(f"Append {len(flights):,} flights")
    with logdb.open(data_dir) as db:
        with rates.measure(APPENDED, flights):
            append(db, flights)
        for partition in db.describe_topic(TOPIC).partitions:
            console.print(f"{TOPIC}-{partition.partition}: {partition.end_offset:,} records, {partition.size_bytes:,} bytes")
        console.rule("The last known position of each aircraft: a compacted table")
        locate(db, header, flights)

    with logdb.open(data_dir, mode="r") as db:  # as another program would
        compare_delays(db, header, rows, flights, rates)
        console.rule(f"Replay from {INDEPENDENCE_DAY:%d %B}")
        since_ms = round(INDEPENDENCE_DAY.timestamp() * 1000)
        later = [flight for flight in flights if flight.scheduled_ms >= since_ms]
        with rates.measure("replay from a timestamp", later):
            replayed = replay(db, since_ms)
        console.print(f"{replayed:,} flights were replayed; the table has {len(later):,}.")
        assert replayed == len(later)

        console.rule("Verify")
        with rates.measure("verify, every byte", flights):
            found = db.verify()
        assert found.ok, "\n".join(map(str, found.problems))
        console.print(f"{found.record_count:,} records, {found.size_bytes:,} bytes, {found.file_count} files: no problem.")

    console.rule("Kill -9 in mid-append, and open again")
    survive(scratch, every_row)
    console.rule("Rates")
    measure_library(scratch, flights, rates)
    rates.show(
        "MB count the values. Each act is one thread, and most of its time is this demo's own Python.",
        "The last column is the library alone: it appends ready lists to one partition, and reads without adding up.",
    )
    show_next()


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
