"""The sessions of Kafka's quick starts, line by line: Kafka's own programs on the Kafka door.

Skipped, with the reason, where Java or Maven are missing.
"""

import shlex

import pytest

from benches.peers.kafka.jars import PLATFORM
from logdb import testing
from support.java import java, properties, running, worker_settings
from support.kafka_tools import kafka_tools

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]
PROGRAMS = {
    "bin/kafka-topics.sh": ["org.apache.kafka.tools.TopicCommand"],
    "bin/kafka-console-producer.sh": ["org.apache.kafka.tools.ConsoleProducer"],
    "bin/kafka-console-consumer.sh": ["org.apache.kafka.tools.consumer.ConsoleConsumer"],
    "bin/connect-standalone.sh": ["org.apache.kafka.connect.cli.ConnectStandalone"],
    "bin/kafka-streams-application-reset.sh": ["org.apache.kafka.tools.StreamsResetter"],
    "bin/kafka-run-class.sh": [],
}
"""The class that each script runs."""


class Session:
    """A shell in a directory of its own, whose lines call the broker localhost:9092."""

    def __init__(self, broker, directory, tools):
        self._tools = tools
        self.address, self.database, self.directory = broker.bootstrap_servers, broker.database, directory

    def words(self, line):
        script, *arguments = shlex.split(line.replace("localhost:9092", self.address))
        return [*PROGRAMS[script], *arguments]

    def run(self, line, typed=""):
        """Run a line with what is typed into it, in the Java that all such lines share; returns what it prints."""
        code, said, warned = self._tools(*self.words(line), stdin=typed)
        assert code == 0, said + warned
        return said

    def running(self, line, **options):
        """Run a line until the end of the block."""
        return running(java(*self.words(line)), self.directory / "log", cwd=self.directory, **options)

    def printed(self, line, line_count):
        """Run a line until it has printed so many; returns them."""
        path = self.directory / "printed"
        with path.open("w") as output, self.running(line, stdout=output) as program:
            program.until(lambda: path.read_text().count("\n") >= line_count)
        return path.read_text().splitlines()


@pytest.fixture(scope="module")
def tools():
    if (reason := PLATFORM.missing()) is not None:
        pytest.skip(reason)
    with kafka_tools() as started:
        yield started


@pytest.fixture
def session(tmp_path, tools):
    with testing.broker() as broker:
        yield Session(broker, tmp_path, tools)


def test_events(session):
    session.run("bin/kafka-topics.sh --create --topic quickstart-events --bootstrap-server localhost:9092")
    described = session.run("bin/kafka-topics.sh --describe --topic quickstart-events --bootstrap-server localhost:9092")
    assert described.startswith("Topic: quickstart-events\tTopicId: ")
    (partition,) = session.database.describe_topic("quickstart-events").partitions
    replicas = ",".join(map(str, partition.replicas))
    assert f"PartitionCount: 1\tReplicationFactor: {len(partition.replicas)}\tConfigs: " in described
    assert f"\tTopic: quickstart-events\tPartition: 0\tLeader: {partition.leader}\tReplicas: {replicas}\tIsr: " in described
    events = ["This is my first event", "This is my second event"]
    session.run("bin/kafka-console-producer.sh --topic quickstart-events --bootstrap-server localhost:9092", "\n".join(events))
    reads = "bin/kafka-console-consumer.sh --topic quickstart-events --from-beginning --bootstrap-server localhost:9092"
    assert session.printed(reads, 2) == events


def test_import_and_export_as_streams_of_events(session):
    """A file goes to a topic and from it to a file; a second worker goes on where the first one ended."""
    properties(
        session.directory / "connect-standalone.properties",
        bootstrap_servers=session.address,
        offset_storage_file_filename=session.directory / "connect.offsets",
        **worker_settings(),
    )
    ends = {"source": {"file": "test.txt", "topic": "connect-test"}, "sink": {"file": "test.sink.txt", "topics": "connect-test"}}
    for end, named in ends.items():
        properties(
            session.directory / f"connect-file-{end}.properties",
            name=f"local-file-{end}",
            connector_class=f"FileStream{end.title()}",
            tasks_max=1,
            **named,
        )
    source, sink = session.directory / "test.txt", session.directory / "test.sink.txt"
    source.write_text("foo\nbar\n")
    lines = ["foo", "bar"]
    for line in ("Another line", "and one more"):
        with session.running(
            "bin/connect-standalone.sh connect-standalone.properties connect-file-source.properties connect-file-sink.properties"
        ) as connect:
            connect.until(lambda: sink.exists() and sink.read_text().splitlines() == lines)
            with source.open("a") as file:
                file.write(f"{line}\n")
            lines.append(line)
            connect.until(lambda: sink.read_text().splitlines() == lines)
    printed = session.printed("bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic connect-test --from-beginning", 4)
    assert printed == [f'{{"schema":{{"type":"string","optional":false}},"payload":"{line}"}}' for line in lines]


def test_streams(session):
    creates = "bin/kafka-topics.sh --create --bootstrap-server localhost:9092 --replication-factor 1 --partitions 1"
    session.run(f"{creates} --topic streams-plaintext-input")
    session.run(f"{creates} --topic streams-wordcount-output --config cleanup.policy=compact")
    described = session.run("bin/kafka-topics.sh --bootstrap-server localhost:9092 --describe")
    assert "Topic: streams-wordcount-output\t" in described
    assert "cleanup.policy=compact" in described
    properties(session.directory / "streams.properties", bootstrap_servers=session.address, state_dir=session.directory / "state")
    types = "bin/kafka-console-producer.sh --bootstrap-server localhost:9092 --topic streams-plaintext-input"
    reads = """bin/kafka-console-consumer.sh --bootstrap-server localhost:9092
        --topic streams-wordcount-output
        --from-beginning
        --formatter-property print.key=true
        --formatter-property print.value=true
        --formatter-property key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
        --formatter-property value.deserializer=org.apache.kafka.common.serialization.LongDeserializer"""
    with session.running("bin/kafka-run-class.sh org.apache.kafka.streams.examples.wordcount.WordCountDemo streams.properties"):
        session.run(types, "all streams lead to kafka\nhello kafka streams\njoin kafka summit\n")
        printed = session.printed(reads, 11)
    assert printed == [
        *("all\t1", "streams\t1", "lead\t1", "to\t1", "kafka\t1"),
        *("hello\t1", "kafka\t2", "streams\t2"),
        *("join\t1", "kafka\t3", "summit\t1"),
    ]
    internal = {f"streams-wordcount-KSTREAM-AGGREGATE-STATE-STORE-0000000003-{kind}" for kind in ("changelog", "repartition")}
    assert internal <= set(session.run("bin/kafka-topics.sh --bootstrap-server localhost:9092 --list").split())
    resets = "bin/kafka-streams-application-reset.sh --bootstrap-server localhost:9092 --application-id streams-wordcount --force"
    told = session.run(f"{resets} --input-topics streams-plaintext-input")
    assert "Topic: streams-plaintext-input Partition: 0 Offset: 0" in told
    assert not internal & {info.name for info in session.database.topics()}
