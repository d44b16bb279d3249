"""Activity tracking, and an audit that tells when something was lost.

Each front end counts the events that it sends, window by window, and publishes the counts to the topic `audit`.  The auditor
counts what arrives, and compares.  A difference is an alert that says whose events are missing, and of which minute: the
pipeline proves itself, it needs no trust.  (Kafka was made for this at LinkedIn, audit included.)
"""

import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import logdb
from logdb import Interceptor, OutgoingRecord, serde

WINDOW_MS = 60_000


def window_of(timestamp_ms: int) -> int:
    return timestamp_ms - timestamp_ms % WINDOW_MS


def create_topics(db: logdb.Database) -> None:
    db.create_topic("activity", partitions=3, if_not_exists=True)
    for name in ("audit", "loss"):
        db.create_topic(name, if_not_exists=True)


class FrontEnd:
    """Sends page views, and once they are over the count of each window.

    Args:
        interceptors: What stands between it and the log; a faulty one may lose events.
    """

    def __init__(self, db: logdb.Database, name: str, interceptors: Iterable[Interceptor] = ()) -> None:
        self._name, self._counts = name, Counter[int]()
        self._activity = db.producer(value_serializer=serde.json, interceptors=tuple(interceptors))
        self._audit = db.producer(value_serializer=serde.json)

    def view(self, user: str, page: str, timestamp_ms: int) -> None:
        event = {"from": self._name, "user": user, "page": page}
        self._activity.send("activity", event, key=user.encode(), timestamp_ms=timestamp_ms)
        self._counts[window_of(timestamp_ms)] += 1

    def close(self) -> None:
        """Have everything written, then say how much it was: the counts never come before what they count."""
        self._activity.close()
        for window, count in self._counts.items():
            self._audit.send("audit", {"from": self._name, "window_ms": window, "count": count})
        self._audit.close()


def audit(db: logdb.Database) -> list[dict[str, Any]]:
    """Compare what was counted with what is there; publishes and returns an alert for each window with a difference."""
    there: Counter[tuple[str, int]] = Counter()
    for partition in range(3):
        for record in db.log("activity", partition).read(0):
            there[json.loads(record.value or b"{}")["from"], window_of(record.timestamp_ms)] += 1
    alerts = []
    with (
        db.consumer("audit", group_id="auditor", auto_offset_reset="earliest", value_deserializer=serde.json) as consumer,
        db.producer(value_serializer=serde.json) as producer,
    ):
        while batches := consumer.poll(timeout_ms=300):
            for counted in (record.value for records in batches.values() for record in records):
                found = there[counted["from"], counted["window_ms"]]
                if found != counted["count"]:
                    alerts.append({**counted, "found": found})
                    producer.send("loss", alerts[-1])
            producer.flush()
            consumer.commit()
    return alerts


class Lossy(Interceptor):
    """A network that loses some events: one in ``every``."""

    def __init__(self, every: int) -> None:
        self._every, self._count = every, 0

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord | None:
        self._count += 1
        return None if self._count % self._every == 0 else record


def made_up_views(count: int) -> Iterator[tuple[str, str, int]]:
    rng = random.Random(3)
    for number in range(count):
        yield f"user-{rng.randrange(50)}", f"/page/{rng.randrange(20)}", 1_700_000_000_000 + number * 100


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, logdb.open(directory) as db:
        create_topics(db)
        for name, interceptors in (("web-1", []), ("web-2", [Lossy(every=400)]), ("web-3", [])):
            front_end = FrontEnd(db, name, interceptors)
            for view in made_up_views(2_000):
                front_end.view(*view)
            front_end.close()
        alerts = audit(db)
        print(f"{len(alerts)} windows with a loss")
        for alert in alerts:
            print(f"  {alert['from']}, minute {alert['window_ms'] // WINDOW_MS}: {alert['found']} of {alert['count']} events arrived")


if __name__ == "__main__":
    main()
