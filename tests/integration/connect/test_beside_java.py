"""Kafka Connect's Java worker and ours, each on a Kafka listener of its own, with the same property files: topics and answers are the same.
Our worker on a Kafka 4.3.1 leaves the same topics, too.

The files are those that Kafka ships, with transforms added.  Skipped, with the reason, where Java or Maven are missing.
"""

import contextlib
import json

import confluent_kafka
import pytest

from benches.peers.kafka.jars import PLATFORM
from logdb import testing
from logdb_connect.runtime import starting
from support.connect_workers import Rest
from support.java import java, properties, running, worker_settings
from support.kafka_broker import kafka_broker
from support.kafka_tools import kafka_tools
from support.waiting import until

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]
TRANSFORMS = "org.apache.kafka.connect.transforms."
SOURCE = {
    "name": "local-file-source",
    "connector_class": "FileStreamSource",
    "tasks_max": 1,
    "file": "test.txt",
    "topic": "connect-test",
}
SINK = {"name": "local-file-sink", "connector_class": "FileStreamSink", "tasks_max": 1, "file": "test.sink.txt", "topics": "connect-test"}
TRANSFORMED = {
    **SOURCE,
    "name": "transformed",
    "topic": "connect-transformed",
    "transforms": "hoist,insert,key,field,header,cast,route",
    "transforms_hoist_type": f"{TRANSFORMS}HoistField$Value",
    "transforms_hoist_field": "line",
    "transforms_insert_type": f"{TRANSFORMS}InsertField$Value",
    "transforms_insert_static_field": "origin",
    "transforms_insert_static_value": "7",
    "transforms_key_type": f"{TRANSFORMS}ValueToKey",
    "transforms_key_fields": "line",
    "transforms_field_type": f"{TRANSFORMS}ExtractField$Key",
    "transforms_field_field": "line",
    "transforms_header_type": f"{TRANSFORMS}InsertHeader",
    "transforms_header_header": "kind",
    "transforms_header_value_literal": "42",
    "transforms_cast_type": f"{TRANSFORMS}Cast$Value",
    "transforms_cast_spec": "origin:int64",
    "transforms_route_type": f"{TRANSFORMS}RegexRouter",
    "transforms_route_regex": "connect-(.*)",
    "transforms_route_replacement": "$1-routed",
}
PLAIN = {**SOURCE, "name": "plain", "topic": "connect-plain", "value_converter": "org.apache.kafka.connect.storage.StringConverter"}
TOPICS = ("connect-test", "transformed-routed", "connect-plain")
LINES = ["one", "", 'with "quotes" and \\', "ünïcödé 🙂", "tab\there", "x" * 3000, *(f"line {number}" for number in range(500))]


@pytest.fixture(scope="module", autouse=True)
def jars():
    if (reason := PLATFORM.missing()) is not None:
        pytest.skip(reason)


class Side:
    """A worker that has delivered all lines."""

    def __init__(self, rest, address, directory):
        self.rest, self.address, self.directory = rest, address, directory

    def records(self, topic):
        """Partition, key, value and headers of each committed record, as a consumer of others reads them."""
        settings = {"bootstrap.servers": self.address, "group.id": "-", "enable.partition.eof": True, "isolation.level": "read_committed"}
        with contextlib.closing(confluent_kafka.Consumer(settings)) as consumer:
            partitions = consumer.list_topics(timeout=30).topics
            if topic not in partitions:
                return []
            found, ends = [], len(partitions[topic].partitions)
            consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(ends)])
            while ends:
                one = consumer.poll(30)
                if one.error() is None:
                    found.append((one.partition(), one.key(), one.value(), one.headers() or []))
                else:
                    assert one.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, one.error()
                    ends -= 1
        return sorted(found, key=lambda one: one[0])

    def is_done(self):
        sink = self.directory / "test.sink.txt"
        return (
            all(len(self.records(topic)) >= len(LINES) for topic in TOPICS) and sink.exists() and sink.read_text().count("\n") >= len(LINES)
        )


def written(directory, address):
    """The property files, with paths of this side; the worker's port."""
    directory.mkdir()
    (directory / "test.txt").write_text("".join(f"{line}\n" for line in LINES))
    settings = worker_settings()
    worker = properties(
        directory / "connect-standalone.properties",
        bootstrap_servers=address,
        offset_storage_file_filename=directory / "connect.offsets",
        **settings | {"offset_flush_interval_ms": 500},
    )
    files = [
        properties(directory / f"{one['name']}.properties", **one | {"file": directory / one["file"]})
        for one in (SOURCE, SINK, TRANSFORMED, PLAIN)
    ]
    return worker, files, int(str(settings["listeners"]).rpartition(":")[2])


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """Java's worker, and ours."""
    home = tmp_path_factory.mktemp("beside")
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(testing.broker()).bootstrap_servers
        worker, files, port = written(home / "java", address)
        program = stack.enter_context(running(java("org.apache.kafka.connect.cli.ConnectStandalone", worker, *files), home / "log"))
        theirs = Side(Rest(port), address, home / "java")
        ours = stack.enter_context(our_worker(stack.enter_context(testing.broker()).bootstrap_servers, home / "ours"))
        program.until(theirs.is_done, 120)
        yield theirs, ours


@contextlib.contextmanager
def our_worker(address, directory):
    worker, files, port = written(directory, address)
    with starting.standalone(str(worker), [str(file) for file in files]):
        side = Side(Rest(port), address, directory)
        until(side.is_done, "ours", 90)
        yield side


@pytest.fixture(scope="module")
def on_kafka(tmp_path_factory):
    """Our worker on a Kafka."""
    home = tmp_path_factory.mktemp("on-kafka")
    with kafka_broker(home / "broker") as broker, our_worker(broker.address, home / "ours") as side:
        yield side


@pytest.mark.parametrize("topic", TOPICS)
def test_topics_have_the_same_records(sides, topic):
    """Keys, values, headers and partitions, byte by byte."""
    theirs, ours = (side.records(topic) for side in sides)
    assert ours == theirs
    assert len(ours) == len(LINES)


def test_on_a_kafka_topics_and_file_are_the_same(sides, on_kafka):
    theirs, _ = sides
    for topic in TOPICS:
        assert on_kafka.records(topic) == theirs.records(topic)
    assert (on_kafka.directory / "test.sink.txt").read_bytes() == (theirs.directory / "test.sink.txt").read_bytes()


def test_the_sink_writes_the_same_file(sides):
    theirs, ours = ((side.directory / "test.sink.txt").read_bytes() for side in sides)
    assert ours == theirs


def shape(document):
    """Keys and types; of lists, the shapes that occur."""
    if isinstance(document, dict):  # Java's worker shows task.class among the properties of a task
        return {key: shape(value) for key, value in document.items() if key != "task.class"}
    if isinstance(document, list):
        return sorted({json.dumps(shape(one), sort_keys=True) for one in document})
    return type(document).__name__


VALIDATED = {"connector.class": "FileStreamSource", "name": "v", "topic": "t", "tasks.max": "no number"}
CALLS = [
    ("GET", "/", None),
    ("GET", "/connectors", None),
    ("GET", "/connectors?expand=status&expand=info", None),
    ("GET", "/connectors/local-file-source", None),
    ("GET", "/connectors/local-file-source/config", None),
    ("GET", "/connectors/local-file-source/status", None),
    ("GET", "/connectors/local-file-sink/status", None),
    ("GET", "/connectors/plain/tasks", None),
    ("GET", "/connectors/local-file-source/tasks/0/status", None),
    ("GET", "/connectors/local-file-source/topics", None),
    ("GET", "/connectors/local-file-sink/topics", None),
    ("GET", "/connectors/local-file-sink/offsets", None),
    ("GET", "/connectors/unknown", None),
    ("GET", "/connectors/unknown/status", None),
    ("GET", "/connectors/local-file-source/tasks/7/status", None),
    ("GET", "/nowhere", None),
    ("GET", "/health", None),
    ("POST", "/connectors", {"name": "local-file-source", "config": {"connector.class": "FileStreamSource", "topic": "t"}}),
    ("POST", "/connectors", {"name": "bad", "config": {"connector.class": "FileStreamSource"}}),
    ("POST", "/connectors", {"name": "bad", "config": {"connector.class": "no.such.Class"}}),
    ("DELETE", "/connectors/unknown", None),
    ("PUT", "/connectors/unknown/pause", None),
    ("PUT", "/connector-plugins/FileStreamSource/config/validate", VALIDATED),
    ("PUT", "/connector-plugins/FileStreamSink/config/validate", {**VALIDATED, "connector.class": "FileStreamSink", "topics": "t"}),
    ("PATCH", "/connectors/local-file-sink/offsets", {"offsets": []}),
]


@pytest.mark.parametrize(
    ("method", "path", "body"), CALLS, ids=[f"{method} {path} {index}" for index, (method, path, _) in enumerate(CALLS)]
)
def test_answers_have_the_same_status_and_shape(sides, method, path, body):
    (theirs, their_document), (ours, our_document) = (side.rest.call(method, path, body) for side in sides)
    assert ours == theirs, (our_document, their_document)
    if path.endswith("/validate"):
        assert validated(our_document) == validated(their_document)
        return
    assert shape(our_document) == shape(their_document), (our_document, their_document)


def validated(document):
    """The fields that both have: the first error, or the value.  Java's worker adds that a value it could not read is null."""
    known = {"name", "connector.class", "tasks.max", "topic", "topics", "file", "transforms", "predicates", "errors.tolerance"}
    fields = {one["value"]["name"]: one for one in document["configs"]}
    values = {name: one["value"]["errors"][:1] or one["value"]["value"] for name, one in fields.items() if name in known}
    return values, shape(fields["name"]), document["error_count"] > 0


def test_javas_console_tools_read_what_our_worker_wrote(sides):
    _, ours = sides
    with kafka_tools() as run:
        flags = ("--bootstrap-server", ours.address, "--topic", "connect-plain", "--from-beginning", "--timeout-ms", "60000")
        code, told, warned = run("kafka-console-consumer", *flags, "--max-messages", str(len(LINES)))
        assert (code, told.splitlines()) == (0, LINES), warned
        described = ("--bootstrap-server", ours.address, "--describe", "--group", "connect-local-file-sink")
        until(lambda: f" {len(LINES)} " in run("kafka-consumer-groups", *described)[1], "the committed offset", 30)
