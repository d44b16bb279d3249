"""A cache rebuilt from a compacted topic.

A change of a price is a record of the topic; each shop keeps all prices in a dict and follows the topic.  A shop that starts
has no database to ask: it replays the topic.  Compaction keeps that short, since of each product only the latest price is
left, whatever the number of changes was; the cache it gives is the same.
"""

import random
import tempfile
import threading

import logdb

TOPIC = "prices"


def create_topic(db: logdb.Database) -> None:
    db.create_topic(TOPIC, config={"cleanup.policy": "compact", "segment.bytes": 1 << 20}, if_not_exists=True)


class PriceCache:
    """All prices in memory; ``follow`` brings them up to date."""

    def __init__(self) -> None:
        self._prices: dict[bytes, bytes] = {}
        self._offset = 0
        self._lock = threading.Lock()

    def follow(self, db: logdb.Database) -> int:
        """Take over what is new; returns how many records that were."""
        log, count = db.log(TOPIC), 0
        with self._lock:
            for record in log.read(max(self._offset, log.start_offset), isolation_level="read_committed"):
                if record.value is None:  # a tombstone: the product is no longer sold
                    self._prices.pop(record.key or b"", None)
                else:
                    self._prices[record.key or b""] = record.value
                self._offset, count = record.offset + 1, count + 1
        return count

    def price(self, product: str) -> int | None:
        """In cents; None if it is not sold."""
        found = self._prices.get(product.encode())
        return None if found is None else int(found)

    def __len__(self) -> int:
        return len(self._prices)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PriceCache) and self._prices == other._prices

    __hash__ = None  # type: ignore[assignment]  # it changes


def change(db: logdb.Database, product: str, cents: int | None) -> None:
    """Set a price; None: the product is no longer sold."""
    db.append(TOPIC, None if cents is None else b"%d" % cents, product.encode())


def change_many(db: logdb.Database, count: int, products: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        change(db, f"product-{rng.randrange(products)}", None if rng.random() < 0.05 else rng.randrange(1, 100_000))
    db.flush()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, logdb.open(directory) as db:
        create_topic(db)
        change_many(db, 100_000, 300, seed=1)
        before = PriceCache()
        size, replayed = db.log(TOPIC).size_bytes, before.follow(db)
        print(f"a cache of {len(before)} prices from {replayed:,} records, {size / 1e6:.1f} MB")
        db.compact(TOPIC)
        after = PriceCache()
        size, replayed = db.log(TOPIC).size_bytes, after.follow(db)
        print(f"after compaction from {replayed:,} records, {size / 1e6:.1f} MB: {'the same' if before == after else 'ANOTHER'}")
        change(db, "product-7", 4_711)
        print(f"one more change: {after.follow(db)} record, product-7 now costs {after.price('product-7')}")


if __name__ == "__main__":
    main()
