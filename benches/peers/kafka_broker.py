"""A real Kafka, and its clients; its JVM has had half a million records in and out before it is timed."""

from benches.peers import not_importable
from benches.peers.kafka import broker
from benches.peers.kafka.jars import TOOLS
from benches.peers.kafka.platforms import operations


def missing() -> str | None:
    return broker.missing() or TOOLS.missing() or not_importable("confluent_kafka")


OPERATIONS = operations(broker.prepare, warm=True)
