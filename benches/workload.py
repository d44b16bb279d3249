"""The records that every side gets, and how every timing begins and is counted.

Knows keys, values, files of records and the clock.  Does not know a side.
"""

import gc
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

CACHE = Path(__file__).parent / ".cache"
KEY_SIZE_BYTES = 16
BATCH_COUNT = 1_000  # records a call, for whatever takes many
LARGE_BATCH_COUNT = 64_000  # and where a call is a request
_DISTINCT_COUNT = {100: 1_000_000, 1024: 200_000}
_EVENTS = ("page_view", "click", "purchase", "add_to_cart", "search", "logout", "login", "refund")
_WORDS = (  # noqa: SIM905  # a list of 28 quoted words is no easier to read
    "timeout connection accepted user session checkout payment declined retry upstream gateway cache miss worker "
    "started stopped queue offset partition leader elected replica lagging request response latency budget shipment"
).split()

Keys = list[bytes]
Values = list[bytes]


class Measure(NamedTuple):
    """What one operation of one side came to; ``unit`` is "M/s" (more is better), "ms", "MB" or "B/B": bytes for each byte."""

    value: float
    unit: str
    note: str = ""


def rate(count: int, seconds: float) -> Measure:
    """Records a second, in millions."""
    return Measure(count / seconds / 1e6, "M/s")


class Wrong(Exception):
    """A side did not do the work: what was asked for and what came out are in the message."""


@dataclass(frozen=True)
class Work:
    """What an operation is given.

    Attributes:
        directory: Empty, of this side alone, on the disk that is measured.
        count: Records to write, or to have there before reading.
        value_size: Bytes of each value; keys have KEY_SIZE_BYTES.
    """

    directory: Path
    count: int
    value_size: int

    def records(self) -> tuple[Keys, Values]:
        """``count`` keys and values, each a bytes object of its own; frozen out of garbage collection."""
        row = KEY_SIZE_BYTES + self.value_size
        raw = records_file(self.value_size).read_bytes()
        keys: Keys = []
        values: Values = []
        while len(keys) < self.count:
            end = min(len(raw), (self.count - len(keys)) * row)
            keys += [raw[at : at + KEY_SIZE_BYTES] for at in range(0, end, row)]
            values += [raw[at + KEY_SIZE_BYTES : at + row] for at in range(0, end, row)]
        gc.freeze()
        return keys, values

    def batches(self, count: int = BATCH_COUNT) -> Iterator[tuple[Keys, Values]]:
        """The same, ``count`` at a time."""
        keys, values = self.records()
        for at in range(0, self.count, count):
            yield keys[at : at + count], values[at : at + count]

    def random_offsets(self) -> list[int]:
        """Offsets to read single records at."""
        return random.Random(7).choices(range(self.count), k=200_000)

    def sparse_offsets(self) -> list[int]:
        """The same, so far apart that no two of them lie in one record batch of 16 KiB."""
        rng = random.Random(7)
        offsets = [at + rng.randrange(100) for at in range(0, self.count - 100, 300)]
        rng.shuffle(offsets)
        return offsets

    def start(self) -> float:
        """Settle the machine, then return the time at which the work begins.

        What earlier work left unwritten goes to the disk, so that it is not charged to this one.  Then a file
        of about the data's size is written and deleted: in a virtual machine that gives freed memory back to
        its host, the first write into new page cache costs several times the second.
        """
        os.sync()
        scratch, piece = self.directory.parent / "scratch", bytes(128 << 10)
        with open(scratch, "wb", buffering=0) as file:
            file.writelines(piece for _ in range(self.count * (self.value_size + 40) // len(piece) + 1))
        scratch.unlink()
        gc.collect()
        return time.perf_counter()

    def passes(self, one: Callable[[], tuple[int, int]]) -> Measure:
        """Time passes over all records until a second is measured, after one that is not.

        ``one`` returns the number of records it met and the bytes of their values.
        """
        self.check(one())
        count, seconds = 0, 0.0
        while seconds < 1:
            began = self.start() if not seconds else time.perf_counter()
            met = one()
            seconds += time.perf_counter() - began
            self.check(met)
            count += met[0]
        return rate(count, seconds)

    def check(self, met: tuple[int, int], count: int | None = None) -> None:
        """Compare (records, bytes of values) with what must be there.

        Raises:
            Wrong: they differ.
        """
        count = self.count if count is None else count
        if met != (count, count * self.value_size):
            raise Wrong(f"{met[0]} records with {met[1]} bytes of values instead of {count} with {count * self.value_size}")


def records_file(value_size: int) -> Path:
    """The distinct records of one size, key and value alternately; made at the first call, the same everywhere."""
    path = CACHE / f"records-{value_size}.bin"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        rng, part = random.Random(2013), path.with_suffix(f".{os.getpid()}")
        with open(part, "wb") as file:
            file.writelines(
                b"user-%011d" % rng.randrange(1_000_000) + _value(rng, number, value_size) for number in range(_DISTINCT_COUNT[value_size])
            )
        part.rename(path)
    return path


def _value(rng: random.Random, number: int, size: int) -> bytes:
    """A JSON object of exactly ``size`` bytes that compresses as events do."""
    event = {
        "id": number,
        "ts": 1_700_000_000_000 + number * 37,
        "ev": rng.choice(_EVENTS),
        "ms": rng.randrange(2_000),
    }
    text = json.dumps(event, separators=(",", ":"))[:-1] + ',"msg":"'
    while len(text) < size - 20:
        text += rng.choice(_WORDS) + " " if rng.random() < 0.8 else f"{rng.getrandbits(32):x} "
    return f"{text[: size - 2]:x<{size - 2}}".encode() + b'"}'
