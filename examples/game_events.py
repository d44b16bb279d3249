"""Game events with cheat alerts.

Events are keyed by user, so one user's events lie in one partition, in order.  The detector keeps the last 20 logins and the
last 20 trades of each user in memory.  What it flags goes to the topic `alerts` in the same transaction as its offsets:
a detector that dies flags nothing twice and misses nothing.  A new one fills its cache from the log, up to where the old
one had come.
"""

import json
import random
import tempfile
from collections import defaultdict, deque
from collections.abc import Iterator
from statistics import median
from typing import Any

import logdb
from logdb import TopicPartition, serde

REMEMBERED = 20
COUNTRIES_MAX = 3  # in a user's last logins
PRICE_FACTOR_MAX = 10  # a trade's price, as against the median of the user's last ones
PRICES_NEEDED = 5


class Cheats:
    """What is known of each user: the last logins and trades."""

    def __init__(self) -> None:
        self._logins: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        self._prices: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))

    def note(self, user: str, event: dict[str, Any]) -> str | None:
        """Remember an event; returns what is suspicious about it, if anything is."""
        if event["kind"] == "login":
            logins = self._logins[user]
            before = len(set(logins))
            logins.append(event["country"])
            countries = len(set(logins))
            return f"logins from {countries} countries" if countries > max(before, COUNTRIES_MAX) else None
        prices = self._prices[user]
        usual = median(prices) if len(prices) >= PRICES_NEEDED else None
        prices.append(event["price"])
        if usual is None or event["price"] <= PRICE_FACTOR_MAX * usual:
            return None
        return f"sold for {event['price']:g}, usually {usual:g}"


def create_topics(db: logdb.Database) -> None:
    db.create_topic("events", partitions=3, if_not_exists=True)
    db.create_topic("alerts", if_not_exists=True)


def play(db: logdb.Database, events: Iterator[tuple[str, dict[str, Any]]]) -> int:
    """What game servers do: send events; returns how many."""
    count = 0
    with db.producer(key_serializer=serde.string, value_serializer=serde.json) as producer:
        for user, event in events:
            producer.send("events", event, key=user)
            count += 1
    return count


def detect(db: logdb.Database, *, polls: int | None = None) -> int:
    """Read events until there are no more (or for so many polls), and flag cheats; returns how many."""
    caches: dict[TopicPartition, Cheats] = {}

    def fill_caches(partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            caches[partition] = Cheats()
            done = consumer.position(partition)
            for record in db.log(*partition).read(db.log(*partition).start_offset, end_offset=done):
                caches[partition].note((record.key or b"").decode(), json.loads(record.value or b"{}"))

    flagged = 0
    with db.consumer(
        group_id="detector",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        key_deserializer=serde.string,
        value_deserializer=serde.json,
    ) as consumer:
        consumer.subscribe("events", on_assigned=fill_caches)
        while polls is None or polls > 0:
            batches = consumer.poll(timeout_ms=300)
            if not batches:
                break
            with db.transaction("detector") as transaction:
                for partition, records in batches.items():
                    for record in records:
                        reason = caches[partition].note(record.key, record.value)
                        if reason:
                            transaction.send("alerts", f"{record.key}: {reason}".encode(), key=record.key.encode())
                            flagged += 1
                transaction.send_offsets(consumer)
            polls = None if polls is None else polls - 1
    return flagged


def made_up_events(count: int, users: int, cheats: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Events of a game: honest users play at home and sell at fair prices."""
    rng = random.Random(7)
    names = [f"user-{number}" for number in range(users)]
    for _ in range(count):
        user = rng.choice(names)
        if rng.random() < 0.5:
            country = rng.choice("ABCDEFGH") if user in cheats and rng.random() < 0.5 else "HOME"
            yield user, {"kind": "login", "country": country}
        else:
            yield user, {"kind": "trade", "price": round(rng.uniform(80, 120), 2)}


def main() -> None:
    cheats = {"user-3", "user-11"}
    with tempfile.TemporaryDirectory() as directory, logdb.open(directory) as db:
        create_topics(db)
        print(f"{play(db, made_up_events(3_000, 20, cheats)):,} events")
        play(db, iter([("user-5", {"kind": "trade", "price": 5_000.0})]))
        print(f"{detect(db)} alerts:")
        for record in db.log("alerts").read(0, isolation_level="read_committed"):
            print("  " + (record.value or b"").decode())


if __name__ == "__main__":
    main()
