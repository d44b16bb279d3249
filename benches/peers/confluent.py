"""confluent-kafka's producer with librdkafka's own mock broker: a thread of the same process, which keeps little and checks nothing.

No other broker runs in the process of its client, so this is what is nearest to an embedded log.
"""

import time
from typing import Any

from benches.peers import not_importable
from benches.workload import Measure, Work, Wrong, rate

_POLL_COUNT = 1_000  # records between two polls, which call back
_CONFIG = {
    "test.mock.num.brokers": 1,
    "log_level": 0,
    "queue.buffering.max.messages": 4_000_000,  # of the defaults, all but its queue's size
    "queue.buffering.max.kbytes": 2_000_000,
}


def missing() -> str | None:
    return not_importable("confluent_kafka")


def produce(work: Work) -> Measure:
    """``produce()`` with a delivery callback a record, until all have been called."""
    return _produce(work, called_back=True)


def produce_alone(work: Work) -> Measure:
    """Without callbacks: whether a record was written stays unknown."""
    return _produce(work, called_back=False)


def _produce(work: Work, *, called_back: bool) -> Measure:
    from confluent_kafka import Producer

    keys, values = work.records()
    producer = Producer(_CONFIG)
    producer.list_topics("t", timeout=10)  # makes it, with four partitions
    delivered = 0

    def delivery(error: Any, message: Any) -> None:
        nonlocal delivered
        delivered += error is None

    options = {"on_delivery": delivery} if called_back else {}
    began = work.start()
    put, poll = producer.produce, producer.poll
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        put("t", value, key, **options)
        if number % _POLL_COUNT == 0:
            poll(0)
    left = producer.flush(120)
    seconds = time.perf_counter() - began
    if left or (called_back and delivered != work.count):
        raise Wrong(f"{left} records are left, {delivered} of {work.count} were delivered")
    return rate(work.count, seconds)


OPERATIONS = {"produce": produce, "produce_alone": produce_alone}
