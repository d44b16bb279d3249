"""Change data capture that is killed again and again, and what its topic says then; of any kind of origin.

Knows where a capture may die: before each change, and before the origin forgets.  Does not know what makes the changes.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import logdb
from examples.spark import change_capture
from examples.spark.change_capture import Change, Origin, capture

TOPIC = "customers"
AT_ONCE = 5  # records of one append, so that a run that is killed has brought some


class Killed(Exception):
    """Stands for a SIGKILL."""


class Mortal:
    """An origin whose capture dies now and then."""

    def __init__(self, origin: Origin, rng: random.Random) -> None:
        self._origin, self._rng = origin, rng

    def changes(self, after: str | None) -> Iterator[Change]:
        for change in self._origin.changes(after):
            if self._rng.random() < 0.02:
                raise Killed
            yield change

    def forget(self, until: str) -> None:
        if self._rng.random() < 0.5:
            raise Killed
        self._origin.forget(until)


def captured_over_kills(path: Path, make: Callable[[], Origin], work: Callable[[], None], rng: random.Random, *, runs: int) -> int:
    """Capture ``runs`` times what ``work`` has done before each, and once more to the end; returns how many were killed."""
    deaths = 0
    with patch.object(change_capture, "AT_ONCE", AT_ONCE):
        for _ in range(runs):
            work()
            try:
                with logdb.open(path) as db:
                    capture(db, TOPIC, Mortal(make(), rng))
            except Killed:
                deaths += 1
        with logdb.open(path) as db:
            capture(db, TOPIC, make())
    return deaths


def positions(path: Path) -> list[str]:
    """Which change each record says that it is."""
    with logdb.open(path, mode="r") as db:
        return [(dict(record.headers)[change_capture.POSITION] or b"").decode() for record in db.log(TOPIC).read(0)]


def states(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows that the topic says there are, read record by record."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    with logdb.open(path, mode="r") as db:
        for record in db.log(TOPIC).read(0):
            assert record.key is not None
            key = tuple(json.loads(record.key).values())
            found.pop(key, None)
            if record.value is not None:
                row = json.loads(record.value)
                found[key] = tuple(row[name] for name in columns)
    return sorted(found.values(), key=repr)
