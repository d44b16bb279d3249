"""Spark's own Kafka source, on a real broker: another process on the loopback.

The broker is filled and asked at its defaults; "large" fetches are what its documentation suggests for throughput.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping

from benches.peers.kafka import broker
from benches.peers.kafka.jars import SPARK_SOURCE
from benches.peers.spark import environment
from benches.workload import Measure, Work

PARTITION_COUNT = 2
RECORDS_PER_SECOND = 10_000  # beside a micro-batch
_LARGE: Mapping[str, str] = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "50000",
    "kafka.receive.buffer.bytes": str(4 << 20),
}
_QUEUE = {"queue.buffering.max.messages": 8_000_000, "queue.buffering.max.kbytes": 4_000_000}  # of the client that fills it


def missing() -> str | None:
    return broker.missing() or SPARK_SOURCE.missing() or environment.missing()


def ask(work: Work, source: str, options: Mapping[str, str], action: str) -> Measure:
    """One action of ``spark.program``, in a process of its own; the jars are the same whatever the source, so that Spark is."""
    directory = work.directory / "spark"
    directory.mkdir(exist_ok=True)
    request = {
        "format": source,
        "options": options,
        "action": action,
        "count": work.count,
        "value_size": work.value_size,
        "jars": ",".join(map(str, sorted(SPARK_SOURCE.directory.glob("*.jar")))),
        "directory": str(directory),
    }
    return Measure(**environment.run("benches.peers.spark.program", request))


@contextlib.contextmanager
def beside(write: Callable[[int], None]) -> Iterator[None]:
    """Call ``write(count)`` a hundred times a second, in a thread, so that RECORDS_PER_SECOND are written."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.01):
            write(RECORDS_PER_SECOND // 100)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _read(action: str, more: Mapping[str, str], work: Work) -> Measure:
    from confluent_kafka import Producer

    with broker.broker(work.directory / "kafka") as address:
        producer = Producer({"bootstrap.servers": address, **_QUEUE})
        _make_topic(address)
        keys, values = work.records()
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            producer.produce("t", value, key, partition=number % PARTITION_COUNT)
        if left := producer.flush(120):
            raise TimeoutError(f"{left} records are not acknowledged")
        options = {"kafka.bootstrap.servers": address, "subscribe": "t", **more}
        if action != "micro_batch":
            return ask(work, "kafka", options, action)
        key, value = keys[0], values[0]

        def write(count: int) -> None:
            for number in range(count):
                producer.produce("t", value, key, partition=number % PARTITION_COUNT)
            producer.poll(0)

        with beside(write):
            return ask(work, "kafka", options, action)


def _make_topic(address: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})  # held: what it was asked for ends with it
    for made in admin.create_topics([NewTopic("t", PARTITION_COUNT, 1)]).values():
        made.result(60)


OPERATIONS = {
    **{action: functools.partial(_read, action, {}) for action in ("count", "lengths", "noop", "backlog", "micro_batch")},
    **{f"{action}_large": functools.partial(_read, action, _LARGE) for action in ("count", "lengths", "noop")},
}
