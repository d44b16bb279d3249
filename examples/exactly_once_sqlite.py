"""Exactly once into SQLite.

A consumer that commits its offset to logdb and its rows to SQLite can die between the two: then rows are doubled, or lost.
Here both are in one SQLite transaction, and after a start the consumer goes on where SQLite says.  Whenever the process is
killed, each payment is in the table once.

A power cut can take records from a log that a reader has seen.  So the topic is at level fsync, and the leader epoch is stored beside
the offset: if the log has lost a record that was copied, the consumer raises LogTruncated.
"""

import json
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable

import logdb

TOPIC, PARTITIONS = "payments", 2


def nothing(_step: str) -> None:
    """What happens between two steps: nothing, unless a test kills the process there."""


def open_ledger(path: str) -> sqlite3.Connection:
    ledger = sqlite3.connect(path, isolation_level=None)  # transactions begin and end where they say so
    ledger.execute("PRAGMA synchronous = FULL")
    ledger.execute("CREATE TABLE IF NOT EXISTS payments (id INTEGER, account TEXT, cents INTEGER)")
    ledger.execute("CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, offset INTEGER NOT NULL, epoch INTEGER NOT NULL)")
    return ledger


def transfer(db: logdb.Database, ledger: sqlite3.Connection, *, step: Callable[[str], None] = nothing) -> int:
    """Take over all payments that are new; returns how many."""
    count = 0
    with db.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
        for partition, offset, epoch in ledger.execute("SELECT partition, offset, epoch FROM positions").fetchall():
            consumer.seek((TOPIC, partition), logdb.OffsetAndMetadata(offset, epoch))
        while batches := consumer.poll(timeout_ms=200, max_records=10):
            step("polled")
            ledger.execute("BEGIN IMMEDIATE")
            for where, records in batches.items():
                for record in records:
                    payment = json.loads(record.value or b"{}")
                    row = (payment["id"], payment["account"], payment["cents"])
                    ledger.execute("INSERT INTO payments VALUES (?, ?, ?)", row)
                    step("row inserted")
                    count += 1
                position = (where.partition, records[-1].offset + 1, records[-1].leader_epoch)
                ledger.execute("REPLACE INTO positions VALUES (?, ?, ?)", position)
                step("position written")
            ledger.execute("COMMIT")
            step("committed")
    return count


def pay(db: logdb.Database, count: int) -> int:
    """Make payments up; returns their sum in cents."""
    rng, total = random.Random(1), 0
    with db.producer() as producer:
        for number in range(count):
            cents = rng.randrange(1, 10_000)
            account = f"account-{rng.randrange(9)}"
            payment = {"id": number, "account": account, "cents": cents}
            producer.send(TOPIC, json.dumps(payment).encode(), key=account.encode())
            total += cents
    return total


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, logdb.open(f"{directory}/db") as db:
        db.create_topic(TOPIC, partitions=PARTITIONS, config={"durability": "fsync"})
        total = pay(db, 500)
        ledger = open_ledger(f"{directory}/ledger.sqlite")
        print(f"{transfer(db, ledger)} payments transferred, then {transfer(db, ledger)}")
        count, distinct, cents = ledger.execute("SELECT count(*), count(DISTINCT id), sum(cents) FROM payments").fetchone()
        ledger.close()
        print(f"{count} rows, {distinct} of them different, {cents / 100:,.2f} in all; sent were {total / 100:,.2f}")
        sys.exit(0 if (count, distinct, cents) == (500, 500, total) else 1)


if __name__ == "__main__":
    main()
