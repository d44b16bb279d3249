"""``logdb top``: what topics hold, and how fast they grow, again and again."""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from logdb.cli.terminal.output import clear, emit_line, size_text, table
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.terminal.units import Duration, WholeNumber
from logdb.errors import UnknownTopic

if TYPE_CHECKING:
    import logdb


class Seen(NamedTuple):
    """A topic at one moment."""

    partition_count: int
    record_count: int  # offsets between the starts and the ends of its partitions
    end_offsets: int
    size_bytes: int


def look(db: "logdb.Database") -> dict[str, Seen]:
    """All topics; one that is deleted meanwhile is left out."""
    found = {}
    for topic in db.topics():
        try:
            partitions = db.describe_topic(topic.name).partitions
        except UnknownTopic:
            continue
        ends, starts = sum(one.end_offset for one in partitions), sum(one.start_offset for one in partitions)
        found[topic.name] = Seen(len(partitions), ends - starts, ends, sum(one.size_bytes for one in partitions))
    return found


def rows(before: Mapping[str, Seen], now: Mapping[str, Seen], seconds: float) -> list[dict[str, object]]:
    """A row for each topic, the busiest first; rates are since ``before``."""
    found = []
    for name, seen in now.items():
        past = before.get(name, seen)
        rate = max(0.0, (seen.end_offsets - past.end_offsets) / seconds) if seconds else 0.0
        growth = (seen.size_bytes - past.size_bytes) / seconds if seconds else 0.0
        found.append({
            "topic": name, "partitions": seen.partition_count, "records": seen.record_count, "records_per_s": round(rate, 1),
            "size_bytes": seen.size_bytes, "bytes_per_s": round(max(0.0, growth), 1),
        })  # fmt: skip
    return sorted(found, key=lambda row: (-float(str(row["records_per_s"])), str(row["topic"])))


@click.command(short_help="Show how fast topics grow, until Ctrl-C.")
@common
@click.option("--interval", type=Duration("s", 100), default="2s", show_default=True, help="Time between two looks; at least 100ms.")
@click.option("-n", "--count", type=WholeNumber(min=1), help="End after so many looks.")
@pass_session
def top(session: Session, interval: int, count: int | None) -> None:
    """Show all topics with their sizes and their rates since the last look, the busiest first.

    With --json a line for each topic and look. Bytes are those of files: a rate is 0 while retention deletes faster.
    """
    session.follows = True
    shown, before, at = 0, {}, time.monotonic()  # type: int, dict[str, Seen], float
    with session.read() as db:
        while count is None or shown < count:
            if shown:
                time.sleep(interval / 1000)
            now, then = look(db), time.monotonic()
            show(rows(before, now, then - at if shown else 0.0), as_json=session.as_json)
            before, at, shown = now, then, shown + 1


def show(found: list[dict[str, object]], *, as_json: bool) -> None:
    if as_json:
        for row in found:
            emit_line(row)
    else:
        clear()
        cells = [
            (row["topic"], row["partitions"], row["records"], row["records_per_s"],
             size_text(int(str(row["size_bytes"]))), size_text(round(float(str(row["bytes_per_s"])))))
            for row in found
        ]  # fmt: skip
        table(["topic", "partitions", "records", "records/s", "size", "bytes/s"], cells)
    sys.stdout.flush()
