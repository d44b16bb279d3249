"""Orders keyed by retailer.

A retailer's orders have to be handled one after the other: the stock that one order takes is gone for the next.  Different
retailers have nothing to do with each other.  So the key is the retailer, and the partitions are shared out between the
workers of a group: more workers handle more retailers at a time, and no lock is needed anywhere.

What is left in stock is a compacted topic, keyed by retailer; the program reads it as a table.
"""

import json
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import logdb
from logdb import serde
from logdb.errors import DeliveryTimeout, IllegalGeneration, ProducerFenced, UnknownMember

STOCK = 100


def create_topics(db: logdb.Database) -> None:
    db.create_topic("orders", partitions=4, if_not_exists=True)
    db.create_topic("stock", partitions=4, config={"cleanup.policy": "compact"}, if_not_exists=True)


def place(db: logdb.Database, orders: Iterator[tuple[str, dict[str, Any]]]) -> None:
    with db.producer(key_serializer=serde.string, value_serializer=serde.json) as producer:
        for retailer, order in orders:
            producer.send("orders", order, key=retailer)


def work(db: logdb.Database, worker: str, handled: list[tuple[str, str, int, bool]]) -> None:
    """Handle orders until there are no more; notes worker, retailer, order number and whether there was enough in stock."""
    stock = db.table("stock")
    with db.consumer(
        "orders",
        group_id="fulfilment",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        key_deserializer=serde.string,
        value_deserializer=serde.json,
    ) as consumer:
        while batches := consumer.poll(timeout_ms=500, max_records=50):
            stock.catch_up()  # with what the worker before has committed of a partition
            left: dict[str, int] = {}
            done = []
            for records in batches.values():
                for record in records:
                    before = left[record.key] if record.key in left else int(stock.get(record.key, STOCK))
                    filled = record.value["count"] <= before
                    left[record.key] = before - record.value["count"] * filled
                    done.append((worker, record.key, record.value["number"], filled))
            try:
                with db.transaction(f"fulfilment-{worker}") as transaction:
                    for retailer, count in left.items():
                        transaction.send("stock", b"%d" % count, key=retailer.encode())
                    transaction.send_offsets(consumer)
            except (DeliveryTimeout, IllegalGeneration, ProducerFenced, UnknownMember):
                continue  # the process was stopped for too long: the next poll returns these orders again, here or to another worker
            handled += done


def made_up_orders(count: int, retailers: int) -> Iterator[tuple[str, dict[str, Any]]]:
    rng, numbers = random.Random(11), Counter[str]()
    for _ in range(count):
        retailer = f"retailer-{rng.randrange(retailers)}"
        numbers[retailer] += 1
        yield retailer, {"number": numbers[retailer], "count": rng.randrange(1, 6)}


def run(db: logdb.Database, workers: int) -> list[tuple[str, str, int, bool]]:
    """Let so many workers handle all orders, side by side."""
    handled: list[tuple[str, str, int, bool]] = []
    threads = [threading.Thread(target=work, args=(db, f"worker-{number}", handled)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return handled


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, logdb.open(directory) as db:
        create_topics(db)
        place(db, made_up_orders(1_000, 12))
        handled = run(db, workers=2)
        workers, filled = {worker for worker, *_ in handled}, sum(enough for *_, enough in handled)
        print(f"{len(handled):,} orders by {len(workers)} workers, {filled:,} of them filled")
        stock = db.table("stock", key_deserializer=serde.string, value_deserializer=json.loads)
        print("left: " + ", ".join(f"{retailer} {count}" for retailer, count in sorted(stock.items())))


if __name__ == "__main__":
    main()
