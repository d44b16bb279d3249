"""What applications write, as mypy is to see it: nothing to complain of, but for the mistakes, each with its ignore.

Checked by ``mypy`` (an ignore that is not needed is an error, too); never run.
"""

import re
from collections.abc import Mapping

import logdb
from logdb import OffsetAndMetadata, TopicPartition, serde
from logdb.errors import SerializationError


class Masking(logdb.Interceptor):
    def on_send(self, record: logdb.OutgoingRecord) -> logdb.OutgoingRecord | None:
        return record

    def on_consume(self, records: list[logdb.AnyRecord]) -> list[logdb.AnyRecord]:
        return [logdb.ConsumedRecord.of(record, value=b"***") for record in records]


def delivered(error: Exception | None, metadata: logdb.RecordMetadata | None) -> None: ...


def committed(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: BaseException | None) -> None: ...


def assigned(partitions: list[TopicPartition]) -> None: ...


def shout(value: str) -> bytes:
    return value.upper().encode()


def produce(db: logdb.Database) -> int:
    options: logdb.ProducerOptions = {"linger_ms": 1, "acks": "all", "interceptors": [Masking()]}
    with db.producer(**options) as plain:
        future: logdb.SendFuture = plain.send("t", b"v", "k", headers=[("h", b"1")], on_delivery=delivered)
    with db.producer(key_serializer=serde.string, value_serializer=shout) as shouting:
        shouting.send("t", "v", "k")
    with db.producer(transactional_id="x", transaction_timeout_ms=5_000) as transactional:
        transactional.begin_transaction()
        transactional.commit_transaction()
    return future.result(1.5).offset


def consume(db: logdb.Database) -> None:
    with db.consumer(group_id="g", auto_offset_reset="none", partition_assignment_strategy=["sticky"]) as consumer:
        consumer.subscribe(pattern=re.compile("t.*"), on_assigned=assigned)
        consumer.seek(("t", 0), 5)
        try:
            for records in consumer.poll(100).values():
                print([(record.offset, record.value) for record in records])
        except SerializationError as error:
            if error.topic is not None and error.partition is not None and error.offset is not None:
                consumer.seek((error.topic, error.partition), error.offset + 1)
        consumer.commit({("t", 0): 5})
        consumer.commit(consumer.positions())
        consumer.commit_async({TopicPartition("t", 0): 5}, on_commit=committed).result()
        consumer.offsets_for_times(dict.fromkeys(consumer.assignment(), 0))
        with db.transaction("x", transaction_timeout_ms=5_000, linger_ms=0) as transaction:
            transaction.send_offsets(consumer)
    db.reset_offsets("g", consumer.beginning_offsets(consumer.assignment()))
    db.reset_offsets("g", {("t", 0): 1})
    db.delete_group_offsets("g", [("t", 0)])


def serve(path: str) -> logdb.Server:
    with logdb.open(path) as db:
        return logdb.serve(db, http="127.0.0.1:0")


async def both(path: str) -> None:
    async with logdb.aio.open(path) as db:
        async with db.producer(linger_ms=2) as producer, db.consumer("t") as consumer:
            print((await (await producer.send("t", b"v"))).offset, await consumer.poll(timeout_ms=5))
            await consumer.commit(await consumer.end_offsets([("t", 0)]))
        transactional = await db.producer(transactional_id="x")
        await transactional.begin_transaction()
        async with db.transaction("y") as transaction:
            await transaction.send("t", b"v")


def mistakes(db: logdb.Database) -> None:
    db.producer(lingerms=2)  # type: ignore[call-overload]
    db.producer(acks=7)  # type: ignore[call-overload]
    db.producer().begin_transaction()  # type: ignore[attr-defined]
    db.transaction("x", timeout_ms=5)  # type: ignore[call-arg]
    db.consumer("t", auto_offset_reset="smallest")  # type: ignore[arg-type]
    db.consumer(["t"])  # type: ignore[arg-type]
    db.consumer("t").seek("t", 0)  # type: ignore[arg-type]
    db.consumer("t").commit({"t": 0})  # type: ignore[type-var]
