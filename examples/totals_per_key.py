"""Totals per key in a compacted topic, by several workers.

An order is keyed by its customer, so one worker at a time reads the new orders of a customer.  It looks up the customer's total in a
table, and writes the new total and its offsets in one transaction.  A worker may be killed at any step, or stopped and continued: each
order counts once.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator

import logdb
from logdb import serde
from logdb.errors import DeliveryTimeout, IllegalGeneration, ProducerFenced, UnknownMember

SESSION_MS = 2_000  # a worker that does not poll for so long loses its partitions
TRANSACTION_MS = 1_000  # a transaction that is open for so long is aborted


def nothing(_step: str) -> None:
    """What happens between two steps: nothing, unless a test stops or kills the process there."""


def create_topics(db: logdb.Database) -> None:
    db.create_topic("orders", partitions=4, if_not_exists=True)
    db.create_topic("totals", partitions=2, config={"cleanup.policy": "compact"}, if_not_exists=True)


def place(db: logdb.Database, orders: Iterator[tuple[str, int]]) -> Counter[str]:
    """Send orders; returns what each customer pays for these."""
    cents_of = Counter[str]()
    with db.producer(key_serializer=serde.string, value_serializer=serde.json) as producer:
        for customer, cents in orders:
            producer.send("orders", cents, key=customer)
            cents_of[customer] += cents
    return cents_of


def work(db: logdb.Database, worker: str, *, idle_ms: int = 10_000, step: Callable[[str], None] = nothing) -> None:
    """Add orders to the totals, until there is none for ``idle_ms``."""
    totals = db.table("totals", key_deserializer=serde.string, value_deserializer=serde.json)

    def transaction() -> logdb.Transaction:
        return db.transaction(
            f"totals-{worker}", transaction_timeout_ms=TRANSACTION_MS, key_serializer=serde.string, value_serializer=serde.json
        )

    with transaction():
        pass  # ends the transaction that an earlier process of this name has left open
    with db.consumer(
        "orders",
        group_id="totals",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_interval_ms=SESSION_MS,
        key_deserializer=serde.string,
        value_deserializer=serde.json,
    ) as consumer:
        while batches := consumer.poll(timeout_ms=idle_ms, max_records=20):
            step("polled")
            added = Counter[str]()
            for records in batches.values():
                for record in records:
                    added[record.key] += record.value
            totals.catch_up()  # an open transaction hides totals that were committed behind it
            before = totals.get_many(added)
            step("looked up")
            try:
                with transaction() as tx:
                    for customer, total in zip(added, before, strict=True):
                        tx.send("totals", (total or 0) + added[customer], key=customer)
                    step("sent")
                    tx.send_offsets(consumer)
                    step("offsets sent")
            except (DeliveryTimeout, IllegalGeneration, ProducerFenced, UnknownMember):
                continue  # it was stopped for too long: others have these orders now, or the next poll returns them again
            step("committed")


def totals_of(db: logdb.Database) -> dict[str, int]:
    return dict(db.table("totals", key_deserializer=serde.string, value_deserializer=serde.json).items())


def made_up_orders(count: int, customers: int, seed: int = 5) -> Iterator[tuple[str, int]]:
    rng = random.Random(seed)
    for _ in range(count):
        yield f"customer-{rng.randrange(customers)}", rng.randrange(100, 10_000)


def run_worker(url: str, worker: str) -> None:
    """The process of one worker."""
    with logdb.open(url) as db:
        work(db, worker, idle_ms=5 * SESSION_MS)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, logdb.open(directory) as db, logdb.serve(db, http="127.0.0.1:0") as server:
        create_topics(db)
        expected = place(db, made_up_orders(3_000, 12))
        first, second = (subprocess.Popen([sys.executable, __file__, server.addresses[0], name]) for name in ("1", "2"))
        while not totals_of(db):
            time.sleep(0.05)
        first.kill()
        second.send_signal(signal.SIGSTOP)  # as if its machine slept
        time.sleep((SESSION_MS + TRANSACTION_MS) / 1000)
        second.send_signal(signal.SIGCONT)
        first.wait()
        second.wait()
        totals = totals_of(db)
        print(f"{len(totals)} customers pay {sum(totals.values()) / 100:,.2f}; the orders were {expected.total() / 100:,.2f}")
        sys.exit(0 if totals == expected else 1)


if __name__ == "__main__":
    run_worker(*sys.argv[1:]) if sys.argv[1:] else main()
