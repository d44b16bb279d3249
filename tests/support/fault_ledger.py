"""What a program was told of its records, and what of that a database contradicts.

A record's value is "writer number padding": each writer of a partition counts from 0, so the numbers of what is read
tell what is missing, doubled, out of order or invented.

    tried       the call began: the record may be there, unless it is
    refused     the call raised, and did not say that it keeps the record: it must not be there
    acked       the level's promise was given: it must be there
    deletes     records below a number may go; deleted: they are gone
    compacts    of a key, only the latest record must be there

Knows numbers.  Does not know how they were written, nor what failed.
"""

from __future__ import annotations

import collections
import contextlib
import json
from collections.abc import Iterable
from typing import Any

import logdb

Stream = tuple[str, int, str]  # topic, partition, writer
KEY_COUNT = 5
TRANSACTIONS = ("a", "b")  # the topics that each transaction writes to


def value(writer: str, number: int) -> bytes:
    return b"%s %d " % (writer.encode(), number) + bytes(60 + number * 37 % 120)


def key(number: int) -> bytes:
    return b"key %d" % (number % KEY_COUNT)


class Ledger:
    """What notes say; each is a list: what, and its numbers."""

    def __init__(self) -> None:
        self.topics: dict[str, bool | None] = {}  # True: it is there, False: it is not, None: it may be
        self.partitions: dict[str, int] = {}
        self.compacted: set[str] = set()
        self.tried: dict[Stream, set[int]] = collections.defaultdict(set)
        self.acked: dict[Stream, set[int]] = collections.defaultdict(set)
        self.refused: dict[Stream, set[int]] = collections.defaultdict(set)
        self.may_go: dict[tuple[str, int], int] = collections.defaultdict(int)
        self.gone: dict[tuple[str, int], int] = collections.defaultdict(int)
        self.transactions: dict[int, str] = {}
        self.offsets: dict[str, tuple[int, int]] = {}  # committed by a group: at least, at most
        self.copies: list[tuple[str, list[str], dict[Stream, set[int]]]] = []  # how, where, what is in it

    @staticmethod
    def of(notes: Iterable[str]) -> Ledger:
        ledger = Ledger()
        for note in notes:
            ledger.take(json.loads(note))
        return ledger

    def take(self, note: list[Any]) -> None:
        match note:
            case ["topic", name, there, partitions]:
                self.topics[name] = there
                self.partitions[name] = partitions
            case ["compacts", name]:
                self.compacted.add(name)
            case ["tried" | "acked" | "refused" as what, topic, partition, writer, first, stop]:
                getattr(self, what)[topic, partition, writer].update(range(first, stop))
            case ["deletes" | "deleted" as what, topic, partition, number]:
                below = self.may_go if what == "deletes" else self.gone
                below[topic, partition] = max(below[topic, partition], number)
            case ["transaction", number, state]:
                self.transactions[number] = state
            case ["offset", group, state, offset]:
                least, most = self.offsets.get(group, (0, 0))
                self.offsets[group] = (offset if state == "acked" else least, max(most, offset))
            case ["copied", how, paths]:
                self.copies.append((how, paths, {stream: set(numbers) for stream, numbers in self.acked.items()}))

    # ------------------------------------------------------------ what contradicts it

    def problems(self, db: logdb.Database, acked: dict[Stream, set[int]] | None = None, *, settled: bool = True) -> list[str]:
        """What is wrong with the records of a database.

        Args:
            acked: What must be in it, if that is less than by now.
            settled: Nothing waits for a disk that has no room: a transaction's markers are then in all of its partitions.
        """
        found = []
        names = {topic.name for topic in db.topics()}
        for topic, there in self.topics.items():
            if acked is None and there is not None and there != (topic in names):
                found.append(f"topic {topic} is {'not ' if there else ''}there")
            for partition in range(self.partitions[topic] if topic in names else 0):
                with contextlib.suppress(logdb.errors.UnknownPartition):
                    found += self._problems_of(db, topic, partition, self.acked if acked is None else acked)
        if acked is None and settled and self.transactions and names.issuperset(TRANSACTIONS):
            found += self._problems_of_transactions(db)
        if acked is None:
            found += self._problems_of_groups(db)
        return found

    def _problems_of_groups(self, db: logdb.Database) -> list[str]:
        found = []
        for group, (least, most) in self.offsets.items():
            committed = max((offset.offset for offset in db._session.fetch_offsets(group, require_stable=True).values()), default=0)
            if not least <= committed <= most:
                found.append(f"group {group} has offset {committed}, of [{least}, {most}]")
        return found

    def _problems_of(self, db: logdb.Database, topic: str, partition: int, acked: dict[Stream, set[int]]) -> list[str]:
        log = db.log(topic, partition)
        read: dict[str, list[int]] = collections.defaultdict(list)
        latest: dict[bytes | None, int] = {}
        try:
            records = list(log.read(log.start_offset))
        except logdb.errors.OffsetOutOfRange:  # retention went by between the two
            records = list(log.read(log.start_offset))
        for record in records:
            writer, number, _ = record.value.split(b" ", 2)
            if topic not in TRANSACTIONS and record.value != value(writer.decode(), int(number)):
                return [f"{log}: offset {record.offset} has {record.value[:40]!r}"]
            read[writer.decode()].append(int(number))
            latest[record.key] = int(number)
        found = []
        for stream in [stream for stream in {*self.tried, *acked} if stream[:2] == (topic, partition)]:
            numbers = read.pop(stream[2], [])
            there, below = set(numbers), self.may_go[topic, partition]
            needed = {number for number in acked.get(stream, ()) if number >= below}
            if topic in self.compacted:
                needed = {max(group) for group in _by_key(needed)}
                needed = {number for number in needed if latest.get(key(number), -1) <= number}
            wrong = {
                "missing": needed - there,
                "invented": there - self.tried[stream],
                "refused, but there": there & self.refused[stream],
                "deleted, but there": {number for number in there if number < self.gone[topic, partition]},
                "out of order, or twice": set() if numbers == sorted(there) else there,
            }
            found += [f"{log}: writer {stream[2]}: {what}: {sorted(which)[:20]}" for what, which in wrong.items() if which]
        found += [f"{log}: writer {writer} is unknown" for writer in read]
        return found

    def _problems_of_transactions(self, db: logdb.Database) -> list[str]:
        by_topic = []
        for topic in TRANSACTIONS:
            log = db.log(topic)
            by_topic.append([int(record.value.split()[1]) for record in log.read(0, isolation_level="read_committed")])
            if log.last_stable_offset != log.end_offset:
                return [f"{log}: a transaction is open"]
        if by_topic[0] != by_topic[1]:
            return [f"transactions {by_topic[0]} are in a, {by_topic[1]} in b"]
        there, found = by_topic[0], []
        if there != sorted(set(there)):
            found.append(f"transactions out of order, or twice: {there}")
        for number, state in self.transactions.items():
            if {"committed": True, "aborted": False}.get(state, number in there) != (number in there):
                found.append(f"transaction {number} was {state}; there are {there}")
        offset = next(iter(db._session.fetch_offsets("g", require_stable=True).values()), None)
        if (offset.offset if offset else 0) != max(there, default=0):
            found.append(f"transactions {there} came with offset {offset}")
        return found


def _by_key(numbers: set[int]) -> list[list[int]]:
    groups = collections.defaultdict(list)
    for number in numbers:
        groups[number % KEY_COUNT].append(number)
    return list(groups.values())
