"""Clients of a cluster that write down what they see: ours and librdkafka's, plain, in groups, in transactions.

NAME        idempotent producers of both; a consumer without a group; a group of each
NAME-tx     transactional producers of both, some of whose transactions are aborted
NAME-copy   what a consumer of NAME-tx has read, sent on in transactions with its offsets: each value once
"""

import contextlib
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka

import logdb
from logdb.errors import LogdbError
from support.cluster import RACKS, Cluster, Load, stored
from support.history import Anomaly, check

_DRAIN_S, _POLL_MS = 90, 200
_TRANSACTION_MS = _SESSION_MS = 10_000


@contextlib.contextmanager
def _logger(path: Path) -> Iterator[logging.Logger]:
    """One that writes to a file: what a member that lacks records was waiting for."""
    logger, handler = logging.getLogger(str(path)), logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    with contextlib.closing(handler):
        yield logger


class Clients(Load):
    """All of them, from ``__enter__`` to ``__exit__``; ``anomalies`` after that."""

    def __init__(self, nodes: Cluster, name: str, partitions: int, kafka_producers: int = 1) -> None:
        super().__init__(nodes, name, partitions, producers=1, timeout_ms=8_000)
        self._drained = threading.Event()
        self._grouped: dict[str, set[bytes]] = {}
        self.errors: Counter[str] = Counter()
        self.copied = 0
        work = (
            self._transact,
            self._transact_by_kafka,
            self._read_in_a_group,
            self._read_in_a_group_of_kafka,
            self._copy,
        )
        named: dict[str, Callable[[], None]] = {one.__name__.strip("_"): one for one in work}
        named |= {f"produce_by_kafka-{number}": partial(self._produce_by_kafka, number) for number in range(kafka_producers)}
        self._threads += [threading.Thread(target=one, name=name, daemon=True) for name, one in named.items()]

    @property
    def topics(self) -> tuple[str, ...]:
        return self._topic, f"{self._topic}-tx", f"{self._topic}-copy"

    def __exit__(self, *exception: object) -> None:
        """Producers end; consumers go on until they have read all."""
        self._stop.set()
        try:
            if exception[0] is None:
                producers = [one for one in self._threads if "produce" in one.name or "transact" in one.name]
                for thread in producers:
                    thread.join(120)
                assert not any(thread.is_alive() for thread in producers), f"hangs: {[one.name for one in producers if one.is_alive()]}"
                self._drain()
        finally:
            self._drained.set()
            super().__exit__(*exception)

    def _drain(self) -> None:
        end = time.monotonic() + _DRAIN_S
        while any((missing := self.missing()).values()):
            assert time.monotonic() < end, f"not read within {_DRAIN_S} s: {missing}; errors: {self.errors}"
            time.sleep(0.2)

    def missing(self) -> dict[str, int]:
        """How many acknowledged values each reader lacks."""
        plain = {send.value for send in list(self.history.sends) if send.outcome == "ok" and send.transaction is None}
        sent = {send.value for one in list(self.history.transactions) if one.outcome == "ok" for send in list(one.sent)}
        return {name: len(plain - read) for name, read in self._grouped.items()} | {"copy": len(sent - self._copies())}

    def _copies(self) -> set[bytes]:
        """What is copied, as far as a reader sees it."""
        with contextlib.suppress(LogdbError):
            copies = stored(self._nodes, self.topics[2], self._partitions)
            return {value for values in copies.values() for value in values.values()}
        return set()

    def anomalies(self) -> list[Anomaly]:
        """What the history, and what is stored now, contradict."""
        here = {name: stored(self._nodes, name, self._partitions) for name in self.topics}
        found = check(self.history, here[self.topics[0]] | here[self.topics[1]])
        sources, copies = (Counter(value for values in here[name].values() for value in values.values()) for name in self.topics[1:])
        self.copied = copies.total()
        found += [Anomaly("duplicate", f"{value!r} was copied {count} times") for value, count in copies.items() if count > 1]
        found += [Anomaly("G1a", f"{value!r} was copied, and is not there") for value in copies.keys() - sources.keys()]
        return found + [Anomaly("lost-write", f"{value!r} was not copied") for value in sources.keys() - copies.keys()]

    # ------------------------------------------------------------ how each goes on after an error

    def _until(self, end: threading.Event, work: Callable[[], None]) -> None:
        """Do some work again and again; after an error of the cluster anew, which is counted."""
        while not end.is_set():
            try:
                work()
            except (LogdbError, TimeoutError, confluent_kafka.KafkaException) as error:
                kafka = error.args[0] if isinstance(error, confluent_kafka.KafkaException) else None
                self.errors[type(error).__name__ if kafka is None else kafka.name()] += 1
                end.wait(0.1)

    def _group(self, name: str) -> dict[str, Any]:
        """A member whose leaving got lost is soon out of it."""
        how = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "max_poll_interval_ms": _SESSION_MS}
        return {"group_id": f"{self._topic}-{name}", **how}

    def _kafka(self, **config: object) -> dict[str, Any]:
        named = {key.replace("_", "."): value for key, value in config.items()}
        return {"bootstrap.servers": self._nodes.bootstrap_servers, "log_level": 0, "socket.timeout.ms": 5_000, **named}

    def _values(self, name: str) -> Iterator[tuple[bytes, int]]:
        for number in itertools.count():
            yield f"{name}-{number}".encode(), number % self._partitions

    # ------------------------------------------------------------ plain

    def _produce_by_kafka(self, number: int) -> None:
        producer = confluent_kafka.Producer(self._kafka(enable_idempotence=True, linger_ms=1, delivery_timeout_ms=120_000))

        def delivered(send: Any) -> Callable[[Any, Any], None]:
            def call(error: Any, message: Any) -> None:
                if error is None:
                    send.outcome, send.offset = "ok", message.offset()  # None: it was a duplicate
                else:
                    self.errors[error.name()] += 1

            return call

        name = f"kafka-{number}"
        for value, partition in self._values(name):
            if self._stop.is_set():
                break
            send = self.history.send(name, (self._topic, partition), value)
            producer.produce(self._topic, value, partition=partition, on_delivery=delivered(send))
            producer.poll(0.005)
            while len(producer) > 100 and not self._stop.is_set():
                producer.poll(0.1)
        producer.flush(100)

    def _read_in_a_group(self) -> None:
        read = self._grouped.setdefault("group", set())
        assignments = itertools.count()

        def work() -> None:
            assignment = next(assignments)

            def assigned(*_: object) -> None:
                nonlocal assignment
                assignment = next(assignments)

            with logdb.open(self._nodes.urls, timeout_ms=self._timeout_ms) as db, db.consumer(**self._group("ours")) as consumer:
                consumer.subscribe(self._topic, on_assigned=assigned, on_revoked=assigned)
                while not self._drained.is_set():
                    polled = consumer.poll(timeout_ms=_POLL_MS)
                    records = [(tuple(at), record.offset, bytes(record.value)) for at, found in polled.items() for record in found]
                    self.history.poll("group", assignment, records)
                    read.update(value for _, _, value in records)
                    consumer.commit()

        self._until(self._drained, work)

    def _read_in_a_group_of_kafka(self) -> None:
        with _logger(self._nodes.directory / f"{self._topic}-librdkafka.log") as logger:
            self._read_by_kafka(logger)

    def _read_by_kafka(self, logger: logging.Logger) -> None:
        read = self._grouped.setdefault("kafka-group", set())
        assignment = 0

        def assigned(*_: object) -> None:
            nonlocal assignment
            assignment += 1

        config = {"group_id": f"{self._topic}-kafka", "auto_offset_reset": "earliest", "session_timeout_ms": _SESSION_MS}
        told = self._kafka(**config, client_rack=RACKS[1]) | {"debug": "cgrp,topic,metadata", "log_level": 7}
        consumer = confluent_kafka.Consumer(told, logger=logger)
        consumer.subscribe([self._topic], on_assign=assigned, on_revoke=assigned, on_lost=assigned)

        def work() -> None:
            for message in consumer.consume(500, _POLL_MS / 1000):
                if message.error() is not None:
                    self.errors[message.error().name()] += 1
                    continue
                self.history.poll("kafka-group", assignment, [((self._topic, message.partition()), message.offset(), message.value())])
                read.add(message.value())

        self._until(self._drained, work)
        consumer.close()

    # ------------------------------------------------------------ transactions

    def _transact(self) -> None:
        values = self._values("tx")

        def work() -> None:
            with logdb.open(self._nodes.urls, timeout_ms=self._timeout_ms) as db:
                producer = db.producer(transactional_id=f"{self._topic}-ours", transaction_timeout_ms=_TRANSACTION_MS)
                try:
                    while not self._stop.is_set():
                        self._one_transaction(
                            "tx", values, producer.begin_transaction, producer.send, producer.commit_transaction, producer.abort_transaction
                        )
                finally:
                    with contextlib.suppress(LogdbError):
                        producer.close()

        self._until(self._stop, work)

    def _transact_by_kafka(self) -> None:
        values = self._values("kafka-tx")

        def work() -> None:
            config = self._kafka(transactional_id=f"{self._topic}-kafka", transaction_timeout_ms=_TRANSACTION_MS, linger_ms=1)
            producer = confluent_kafka.Producer(config)
            producer.init_transactions(20)

            def send(topic: str, value: bytes, *, partition: int) -> None:
                producer.produce(topic, value, partition=partition)
                producer.poll(0)

            while not self._stop.is_set():
                self._one_transaction(
                    "kafka-tx", values, producer.begin_transaction, send, producer.commit_transaction, producer.abort_transaction
                )

        self._until(self._stop, work)

    def _one_transaction(self, name: str, values: Iterator[tuple[bytes, int]], begin: Any, send: Any, commit: Any, abort: Any) -> None:
        """Of four records; every fifth one is aborted.  After an error nothing is known, but for what the next ``begin`` aborts."""
        begin()
        transaction = self.history.begin(name)
        number = len(self.history.transactions)
        for value, partition in itertools.islice(values, 4):
            entry = self.history.send(name, (self.topics[1], partition), value, transaction)
            send(self.topics[1], value, partition=partition)
            entry.outcome = "ok"  # if its transaction is
        transaction.asked_ns = time.monotonic_ns()
        if number % 5 == 0:
            abort()
            transaction.outcome = "failed"
        else:
            commit()
            transaction.outcome = "ok"
        self._stop.wait(0.02)

    def _copy(self) -> None:
        def work() -> None:
            with (
                logdb.open(self._nodes.urls, timeout_ms=self._timeout_ms) as db,
                db.consumer(self.topics[1], enable_auto_commit=False, **self._group("copy")) as consumer,
            ):
                while not self._drained.is_set():
                    polled = consumer.poll(timeout_ms=_POLL_MS)
                    if polled:
                        self._send_on(db, consumer, polled)

        self._until(self._drained, work)

    def _send_on(self, db: logdb.Database, consumer: Any, polled: Mapping[Any, Any]) -> None:
        with db.transaction(f"{self._topic}-copy", transaction_timeout_ms=_TRANSACTION_MS) as transaction:
            for at, records in polled.items():
                for record in records:
                    transaction.send(self.topics[2], bytes(record.value), partition=at.partition)
            transaction.send_offsets(consumer)
