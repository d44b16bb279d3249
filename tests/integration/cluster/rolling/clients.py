"""A Python client during restarts: `clients.py CLIENT HOST:PORT,… TOPIC`.

Its producer is idempotent, and its consumer belongs to a group.  It prints `a VALUE` for each acknowledged record, `r VALUE` for each
record that it reads, and `x REASON` for what failed.  The line "stop" by stdin ends the producer, which then prints `sent`.
"""

import asyncio
import itertools
import sys
import threading
import time
import warnings
from typing import Any

PAUSE_S = 0.01
client, servers, topic = sys.argv[1:]
stopped, saying = threading.Event(), threading.Lock()


def say(*words: object) -> None:
    with saying:
        print(*words, flush=True)


def outcome(value: bytes, error: object) -> None:
    say("x", error) if error else say("a", value.decode())


def values() -> Any:
    for number in itertools.count():
        if stopped.wait(PAUSE_S):
            return
        yield b"%d" % number


def librdkafka() -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": client, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])

    def read() -> None:
        while True:
            if (message := consumer.poll(1)) is not None:
                say("x", message.error()) if message.error() else say("r", message.value().decode())

    threading.Thread(target=read, daemon=True).start()
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for value in values():
        producer.produce(topic, value, on_delivery=lambda error, message: outcome(message.value(), error))
        producer.poll(0)
    producer.flush()


def kafka_python() -> None:
    import kafka

    def read() -> None:
        consumer = kafka.KafkaConsumer(topic, bootstrap_servers=servers.split(","), group_id=client, auto_offset_reset="earliest")
        while True:  # kafka-python 3.0.12 loses an assignment that comes after the time of a poll
            for records in consumer.poll(timeout_ms=60_000).values():
                for record in records:
                    say("r", record.value.decode())

    threading.Thread(target=read, daemon=True).start()
    producer = kafka.KafkaProducer(bootstrap_servers=servers.split(","), enable_idempotence=True, acks="all")
    for value in values():
        sent = producer.send(topic, value)
        sent.add_callback(lambda _, value=value: outcome(value, None))
        sent.add_errback(lambda error, value=value: outcome(value, repr(error)))
    producer.flush()


def aiokafka() -> None:
    import aiokafka

    async def read() -> None:
        consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id=client, auto_offset_reset="earliest")
        await consumer.start()
        async for record in consumer:
            say("r", record.value.decode())

    async def run() -> None:
        reading = asyncio.create_task(read())
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
        await producer.start()

        async def send(value: bytes) -> None:
            try:
                await producer.send_and_wait(topic, value)
                outcome(value, None)
            except Exception as error:  # noqa: BLE001 -- the test looks at what failed
                outcome(value, repr(error))

        sending = set()
        for number in itertools.count():
            sending = {one for one in sending if not one.done()}
            if stopped.is_set():
                break
            sending.add(asyncio.create_task(send(b"%d" % number)))
            await asyncio.sleep(PAUSE_S)
        await asyncio.gather(*sending)
        say("sent")
        await reading

    asyncio.run(run())


def ours() -> None:
    import logdb

    def read() -> None:
        with logdb.open(servers.split(",")) as db, db.consumer(topic, group_id=client, auto_offset_reset="earliest") as consumer:
            for record in consumer:
                say("r", record.value.decode())

    threading.Thread(target=read, daemon=True).start()
    with logdb.open(servers.split(",")) as db, db.producer(enable_idempotence=True) as producer:
        for value in values():
            sent = producer.send(topic, value)
            sent.add_done_callback(lambda one, value=value: outcome(value, one.exception()))


def listen() -> None:
    sys.stdin.readline()
    stopped.set()


warnings.simplefilter("ignore", DeprecationWarning)
threading.Thread(target=listen, daemon=True).start()
{"librdkafka": librdkafka, "kafka-python": kafka_python, "aiokafka": aiokafka, "logdb": ours}[client]()
say("sent")
time.sleep(3600)
