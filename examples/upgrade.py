"""An upgrade with old and new consumers side by side.

The old billing takes amounts as they are; the new one knows discounts.  Since reading takes nothing away, both read the
same orders, each as a group of its own: the new one from the first order on, writing to a topic of its own.  What the two say
is compared before the new one is relied on.  Then the old one is switched off, and the orders that come next are billed
by the new one alone, none twice and none left out: it takes over the old one's offsets.
"""

import json
import tempfile
from collections.abc import Callable
from typing import Any

import logdb
from logdb import TopicPartition, serde

PARTITIONS = 2
Billing = Callable[[dict[str, Any]], int]


def old_billing(order: dict[str, Any]) -> int:
    return int(order["cents"]) * int(order["count"])


def new_billing(order: dict[str, Any]) -> int:
    """Orders of before the upgrade have no discount; the new code has to read them too."""
    return int(order["cents"]) * int(order["count"]) * (100 - int(order.get("discount", 0))) // 100


def create_topics(db: logdb.Database) -> None:
    db.create_topic("orders", partitions=PARTITIONS, if_not_exists=True)
    for name in ("bills", "bills-trial"):
        db.create_topic(name, if_not_exists=True)


def bill(db: logdb.Database, billing: Billing, *, group_id: str, to: str) -> int:
    """Bill the orders that are new to a group; returns how many.  Bills and offsets are one transaction."""
    count = 0
    with db.consumer(
        "orders", group_id=group_id, auto_offset_reset="earliest", isolation_level="read_committed", value_deserializer=serde.json
    ) as consumer:
        while batches := consumer.poll(timeout_ms=300):
            with db.transaction(f"billing-{group_id}") as transaction:
                for order in (record.value for records in batches.values() for record in records):
                    transaction.send(to, json.dumps({"order": order["order"], "cents": billing(order)}).encode())
                    count += 1
                transaction.send_offsets(consumer)
    return count


def bills(db: logdb.Database, topic: str) -> dict[int, int]:
    """What each order was billed; raises ValueError where one was billed twice."""
    found: dict[int, int] = {}
    for record in db.log(topic).read(0, isolation_level="read_committed"):
        made = json.loads(record.value or b"{}")
        if made["order"] in found:
            raise ValueError(f"order {made['order']} was billed twice")
        found[made["order"]] = made["cents"]
    return found


def differences(db: logdb.Database) -> list[int]:
    """Orders that both have billed, and not the same."""
    old, new = bills(db, "bills"), bills(db, "bills-trial")
    return sorted(order for order in old.keys() & new.keys() if old[order] != new[order])


def take_over(db: logdb.Database, *, old: str, new: str) -> None:
    """Let the group ``new`` go on where ``old`` has come to; neither may have members."""
    with db.consumer(group_id=old) as before, db.consumer(group_id=new) as after:
        partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
        before.assign(partitions)
        after.assign(partitions)
        after.commit({partition: found for partition in partitions if (found := before.committed(partition)) is not None})


def place(db: logdb.Database, orders: range, **more: int) -> None:
    with db.producer(value_serializer=serde.json) as producer:
        for number in orders:
            producer.send("orders", {"order": number, "cents": 100 + number, "count": 1 + number % 3, **more}, key=b"%d" % (number % 7))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, logdb.open(directory) as db:
        create_topics(db)
        place(db, range(400))
        print(f"old billing: {bill(db, old_billing, group_id='billing', to='bills')} orders")
        print(f"new billing, on trial: {bill(db, new_billing, group_id='billing-trial', to='bills-trial')} orders from the first one on")
        place(db, range(400, 500))
        bill(db, old_billing, group_id="billing", to="bills")
        bill(db, new_billing, group_id="billing-trial", to="bills-trial")
        print(f"side by side on live orders: {len(differences(db))} differences")
        take_over(db, old="billing", new="billing-2")
        place(db, range(500, 600), discount=10)
        print(f"switched over: {bill(db, new_billing, group_id='billing-2', to='bills')} orders by the new billing alone")
        made = bills(db, "bills")
        print(f"{len(made)} bills for 600 orders, none twice; order 599 at {made[599] / 100:.2f}")


if __name__ == "__main__":
    main()
