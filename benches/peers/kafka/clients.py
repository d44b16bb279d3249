"""What Kafka's clients do with a broker, whichever it is: confluent-kafka in this process, Kafka's own tools in a JVM.

Each operation is given the address of a broker with an empty topic of one partition, but for ``consume`` and ``perf_consume``, which
find all records there (``fill``).  Knows clients and frames.  Does not know who answers.
"""

import contextlib
import json
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from benches.peers.kafka.jars import TOOLS
from benches.workload import Measure, Work, Wrong, rate

if TYPE_CHECKING:
    from confluent_kafka import Producer

    ClientOperation = Callable[[Work, str], Measure]

TOPIC, WARM_TOPIC = "t", "warm"
_QUEUE = {"queue.buffering.max.messages": 4_000_000, "queue.buffering.max.kbytes": 4_000_000}
_TUNED = {  # the consumer's queue and fetches; its defaults stop it every few hundred milliseconds
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 1_000_000,
    "fetch.message.max.bytes": 8 << 20,
    "queued.max.messages.kbytes": 1 << 20,
}
_POLL_COUNT = 1_000  # records between two polls
_CONSUME_COUNT = 1_000
_PAYLOAD_COUNT = 100_000
_WARM_SHARE = 5  # of the records of a JVM's producer so many parts are written before it is timed
_LATENCY_RATE, _LATENCY_STEP_S = 10_000, 0.001
_SENDER_COUNT = 4
_JAVA = ("java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
_WAIT_S = 60


def make_topic(address: str, name: str = TOPIC) -> None:
    """Wait until a topic has a leader; asking for it makes it."""
    producer = producer_of(address)
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until:
        topic = producer.list_topics(name, timeout=_WAIT_S).topics[name]
        if topic.partitions and all(one.leader >= 0 for one in topic.partitions.values()):
            return
        time.sleep(0.02)
    raise Wrong(f"{address}: no topic within {_WAIT_S} s")


def producer_of(address: str, **more: object) -> "Producer":
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": address, "acks": "all", "log_level": 3, **_QUEUE, **more})


def send(producer: "Producer", keys: list[bytes], values: list[bytes], topic: str = TOPIC) -> None:
    """Send all, and return when all are acknowledged."""
    produce, poll = producer.produce, producer.poll
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        produce(topic, value, key, 0)
        if number % _POLL_COUNT == 0:
            poll(0)
    if left := producer.flush(2 * _WAIT_S):
        raise Wrong(f"{left} records are not acknowledged")


def fill(work: Work, address: str, topic: str = TOPIC) -> None:
    send(producer_of(address), *work.records(), topic)


# ---------------------------------------------------------------- confluent-kafka


def produce(work: Work, address: str) -> Measure:
    """``produce()`` without callbacks: one would take longer than the rest."""
    keys, values = work.records()
    producer = producer_of(address)
    producer.list_topics(TOPIC, timeout=_WAIT_S)
    began = work.start()
    send(producer, keys, values)
    return rate(work.count, time.perf_counter() - began)


def consume(work: Work, address: str) -> Measure:
    """``consume(1000)``, tuned; the first answer is not timed."""
    consume_once(work, address)
    count, seconds = 0, 0.0
    while seconds < 1:
        if not seconds:
            work.start()
        seconds += consume_once(work, address)
        count += work.count
    return rate(count, seconds)


def consume_once(work: Work, address: str, topic: str = TOPIC) -> float:
    """Read all; returns the seconds from the first record on."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False, "log_level": 3, **_TUNED})
    consumer.assign([TopicPartition(topic, 0, 0)])
    first = consumer.poll(_WAIT_S)
    if first is None:
        raise Wrong("no record came")
    began = time.perf_counter()
    count, size_bytes = 1, len(first.value())
    while count < work.count:
        found = consumer.consume(min(_CONSUME_COUNT, work.count - count), _WAIT_S)
        if not found:
            break
        for message in found:
            size_bytes += len(message.value())
        count += len(found)
    seconds = time.perf_counter() - began
    consumer.close()
    work.check((count, size_bytes))
    return seconds


def send_each(work: Work, address: str) -> Measure:
    """One record at a time, acknowledged: ms."""
    return Measure(send_single(work, address) * 1e3, "ms")


def send_single(work: Work, address: str, topic: str = TOPIC) -> float:
    """Send each record when the one before is acknowledged; returns the seconds that one takes."""
    keys, values = work.records()
    producer = producer_of(address, **{"linger.ms": 0})
    send(producer, keys[:1], values[:1], topic)
    began = work.start()
    for key, value in zip(keys[1:], values[1:], strict=True):
        producer.produce(topic, value, key, 0)
        if producer.flush(_WAIT_S):
            raise Wrong("a record is not acknowledged")
    return (time.perf_counter() - began) / (work.count - 1)


@contextlib.contextmanager
def _child(program: str, *arguments: object) -> "Iterator[subprocess.Popen[str]]":
    """A program of this package, in a process of its own."""
    command = [sys.executable, "-m", f"benches.peers.kafka.{program}", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: "subprocess.Popen[str]") -> Any:
    """What a program says next."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise Wrong(f"{process.args!r} ended")
    return json.loads(text)


def follow(work: Work, address: str) -> Measure:
    """Send while a consumer, in another process, reads as fast as it can; until it has read all."""
    keys, values = work.records()
    producer = producer_of(address)
    send(producer, keys[:1], values[:1])
    with _child("follower", address, work.count, "rate") as follower:
        _line(follower)
        began = work.start()
        send(producer, keys[1:], values[1:])
        count, size_bytes, _ = _line(follower)
        seconds = time.perf_counter() - began
    work.check((count, size_bytes))
    return rate(work.count, seconds)


def follow_latency(work: Work, address: str) -> Measure:
    """From a record's ``produce()`` to another process that has it, at 10,000 a second: ms, the median."""
    keys, values = work.records()
    producer = producer_of(address, **{"linger.ms": 0})
    clock, pack = time.monotonic_ns, struct.Struct("<q").pack
    producer.produce(TOPIC, pack(clock()) + values[0][8:], keys[0], 0)
    producer.flush(_WAIT_S)
    each = round(_LATENCY_RATE * _LATENCY_STEP_S)
    with _child("follower", address, work.count, "latency") as follower:
        _line(follower)
        began = work.start()
        for at in range(1, work.count, each):
            if (early_s := began + at / _LATENCY_RATE - time.perf_counter()) > 0:
                time.sleep(early_s)
            for key, value in zip(keys[at : at + each], values[at : at + each], strict=True):
                producer.produce(TOPIC, pack(clock()) + value[8:], key, 0)
            producer.poll(0)
        producer.flush(_WAIT_S)
        count, size_bytes, latencies_ms = _line(follower)
    work.check((count, size_bytes))
    latencies_ms = sorted(latencies_ms[work.count // 10 :])  # without the first tenth
    return Measure(statistics.median(latencies_ms), "ms", f"99 %: {latencies_ms[len(latencies_ms) * 99 // 100]:.2f} ms")


def _several(work: Work, address: str, kind: str) -> Measure:
    with contextlib.ExitStack() as stack:
        each = work.count // _SENDER_COUNT
        senders = [
            stack.enter_context(_child("sender", address, each, work.value_size, work.directory, kind)) for _ in range(_SENDER_COUNT)
        ]
        for sender in senders:
            _line(sender)
        began = work.start()
        for sender in senders:
            assert sender.stdin is not None
            sender.stdin.write("\n")
            sender.stdin.flush()
        for sender in senders:
            _line(sender)
        return rate(each * _SENDER_COUNT, time.perf_counter() - began)


def produce_several(work: Work, address: str) -> Measure:
    """Four producers, each in a process of its own, into one partition."""
    return _several(work, address, "confluent")


def produce_ready(work: Work, address: str) -> Measure:
    """Four connections, each with batches of 1,000 records that were built beforehand: what a broker takes when its clients cost little."""
    return _several(work, address, "ready")


# ---------------------------------------------------------------- Kafka's own tools


def tool(name: str, address: str, *arguments: object) -> str:
    command = [*_JAVA, "-cp", f"{TOOLS.directory}/*", f"org.apache.kafka.tools.{name}", "--bootstrap-server", address]
    command += ["--topic", TOPIC, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"{name}: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout


def _perf_produce(work: Work, address: str, *properties: str) -> Measure:
    payload = work.directory / "payload"
    records = Work(work.directory, min(work.count, _PAYLOAD_COUNT), work.value_size).records()
    payload.write_bytes(b"".join(key + value + b"\n" for key, value in zip(*records, strict=True)))  # the tool knows no keys
    work.start()
    counts = "--num-records", work.count, "--warmup-records", work.count // _WARM_SHARE, "--throughput", -1
    said = tool("ProducerPerformance", address, *counts, "--payload-file", payload, "--command-property", "acks=all", *properties)
    found = re.findall(r"^(\d+) records sent, ([\d.]+) records/sec .*99\.9th", said, re.MULTILINE)
    if not found:
        raise Wrong(f"kafka-producer-perf-test said: {said.strip()[-500:]}")
    return Measure(float(found[-1][1]) / 1e6, "M/s")


def perf_produce(work: Work, address: str) -> Measure:
    """kafka-producer-perf-test at its defaults: idempotent, acks=all, batches of 16 KiB."""
    return _perf_produce(work, address)


def perf_produce_tuned(work: Work, address: str) -> Measure:
    """With batches of 256 KiB."""
    return _perf_produce(work, address, "batch.size=262144", "linger.ms=5")


def perf_consume(work: Work, address: str) -> Measure:
    """kafka-consumer-perf-test: a group of one, twice over the records in one JVM would be asked of a second group, so once."""
    work.start()
    said = tool("ConsumerPerformance", address, "--num-records", work.count, "--hide-header", "--timeout", 60_000)
    columns = [column.strip() for column in said.strip().splitlines()[-1].split(",")]
    if len(columns) < 10 or int(columns[4]) < work.count:
        raise Wrong(f"kafka-consumer-perf-test said: {said.strip()[-500:]}")
    return rate(int(columns[4]), int(columns[7]) / 1e3)


# ---------------------------------------------------------------- single requests


def ask(address: str, key: int, version: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one request, on a connection of its own.

    Raises:
        OSError: Nothing answers.
    """
    from logdb_kafka_api.apis import APIS

    api = APIS[key]
    body = (
        struct.pack(">hhih", key, version, 1, -1)
        + (b"\0" if api.request.is_flexible(version) else b"")
        + api.request.encode(values, version)
    )
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 1) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        size = struct.unpack(">i", _received(connection, 4))[0]
        answer = _received(connection, size)
    begin = 5 if api.response.is_flexible(version) and key != 18 else 4
    decoded: dict[str, Any] = api.response.decode(answer, version, begin)[0]
    return decoded


def _received(connection: socket.socket, size_bytes: int) -> bytes:
    found = connection.recv(size_bytes, socket.MSG_WAITALL)
    if len(found) < size_bytes:
        raise ConnectionResetError("the broker has closed the connection")
    return found


def answers(address: str) -> bool:
    """Whether a broker answers ApiVersions and Metadata, and is in the answer."""
    try:
        return bool(ask(address, 18, 2, {})["api_keys"]) and bool(ask(address, 3, 4, {"topics": []})["brokers"])
    except OSError:
        return False


def end_offset(address: str) -> int:
    """The log end, as its leader says it; -1: it does not yet."""
    asked = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    try:
        found = ask(address, 2, 5, asked)["topics"][0]["partitions"][0]
    except OSError:
        return -1
    return -1 if found["error_code"] else int(found["offset"])


def processor_s(pid: int) -> float:
    """What a process has had of the processors so far."""
    with open(f"/proc/{pid}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


WRITES: "tuple[ClientOperation, ...]" = (
    produce,
    send_each,
    follow,
    follow_latency,
    produce_several,
    produce_ready,
    perf_produce,
    perf_produce_tuned,
)
READS: "tuple[ClientOperation, ...]" = (consume, perf_consume)
