"""The lines of Kafka's quick start, 4.x, with the names that ``logdb kafka-links`` makes, and the file that Kafka ships."""

import os
import signal
import subprocess
import sys

import pytest

from support.ports import free_port

FILE = """\
# What config/server.properties of Kafka 4 sets.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
HAVE_AN_EFFECT = {
    *("listeners", "advertised.listeners", "socket.request.max.bytes", "log.dirs", "num.partitions"),
    *("log.retention.hours", "log.segment.bytes", "log.retention.check.interval.ms"),
    *("controller.listener.names", "listener.security.protocol.map"),
}
CREATE = """
KAFKA_CLUSTER_ID="$(bin/kafka-storage.sh random-uuid)"
bin/kafka-storage.sh format --standalone -t $KAFKA_CLUSTER_ID -c config/server.properties
"""
START = "exec bin/kafka-server-start.sh config/server.properties"
EVENTS = """
bin/kafka-topics.sh --create --topic quickstart-events --bootstrap-server localhost:9092
bin/kafka-topics.sh --describe --topic quickstart-events --bootstrap-server localhost:9092
printf 'This is my first event\\nThis is my second event\\n' | bin/kafka-console-producer.sh --topic quickstart-events --bootstrap-server localhost:9092
bin/kafka-console-consumer.sh --topic quickstart-events --from-beginning --bootstrap-server localhost:9092
"""  # noqa: E501 - lines of a shell


@pytest.fixture
def shell(tmp_path):
    """Begin lines of a shell beside ``bin`` and ``config``; on a free port, and in the test's directory."""
    port = free_port()
    subprocess.run([sys.executable, "-m", "logdb.cli", "kafka-links", tmp_path / "bin"], check=True, capture_output=True)

    def here(text):
        return text.replace("9092", str(port)).replace("/tmp/kraft-combined-logs", str(tmp_path / "logs"))

    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "server.properties").write_text(here(FILE))

    def shell(lines):
        command = ["bash", "-euc", here(lines)]
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    return shell


def test_the_quick_start(shell):
    with shell(CREATE) as storage:
        assert (storage.wait(30), storage.stdout.read()) == (0, "")
    with shell(START) as server:
        assert server.stdout.readline().startswith("127.0.0.1:")
        with shell(EVENTS) as session:
            lines = [session.stdout.readline() for _ in range(5)]
            os.killpg(session.pid, signal.SIGINT)  # as Ctrl-C ends the consumer
        server.terminate()
        assert server.wait(30) == 0
        warnings = server.stderr.read()
    assert lines[0] == "Created topic quickstart-events.\n"
    assert lines[1].startswith("Topic: quickstart-events\tTopicId: ")
    assert lines[2].startswith("\tTopic: quickstart-events\tPartition: 0\tLeader: 0\t")
    assert lines[3:] == ["This is my first event\n", "This is my second event\n"]
    keys = {line.partition("=")[0] for line in FILE.splitlines() if "=" in line}
    assert f"no effect here: {', '.join(sorted(keys - HAVE_AN_EFFECT))}\n" in warnings
