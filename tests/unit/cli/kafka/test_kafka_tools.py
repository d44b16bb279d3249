import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from logdb.cli.app import arguments
from logdb.cli.kafka.kafka_tools import KAFKA_TOOLS, NOT_HERE, translated


@pytest.mark.parametrize("tool", KAFKA_TOOLS)
@pytest.mark.parametrize("suffix", ["", ".sh"])
def test_the_name_may_be_the_first_argument(tool, suffix):
    assert arguments(["/usr/bin/logdb", f"{tool}{suffix}", "--list"]) == ([KAFKA_TOOLS[tool], "--list"], True)


@pytest.mark.parametrize("tool", KAFKA_TOOLS)
def test_each_tool_says_the_version(tool):
    assert arguments([tool, "--bootstrap-server", "h:1", "--version"]) == (["--version"], True)


@pytest.mark.local
@pytest.mark.parametrize("name", ["none.properties", "none.toml", ""])
def test_a_file_that_is_not_there_is_named_alone(logdb_command, tmp_path, name):
    arg, _ = arguments(["kafka-server-start.sh", str(tmp_path / name)])
    said = logdb_command(*arg, kafka=True, code=2).stderr
    assert f"logdb: {tmp_path / name}: {'No such file' if name else 'Is a'} " in said
    assert "--config" not in said


@pytest.mark.parametrize(
    ("tool", "given", "wanted"),
    [
        ("kafka-console-producer", "--broker-list h:1 --topic t --batch-size 5 --sync", "--bootstrap-server h:1 --topic t --sync"),
        ("kafka-console-producer", "--broker-list=h:1 --batch-size=5", "--bootstrap-server=h:1"),
        ("kafka-console-producer", "--topic t --timeout", "--topic t"),
        ("kafka-console-producer", "--compression-codec --topic t", "--topic t"),
        ("kafka-console-producer", "--compression-codec zstd --topic t", "--topic t"),
        ("kafka-console-producer", "--topic t --compression-codec=gzip --producer.config f", "--topic t --command-config f"),
        (
            "kafka-console-consumer",
            "--key-deserializer K --value-deserializer=V",
            "--property=key.deserializer=K --property=value.deserializer=V",
        ),
        ("kafka-console-consumer", "--skip-message-on-error --topic t", "--topic t"),
        ("kafka-consumer-groups", "--list --timeout 9000", "--list"),
        ("kafka-log-dirs", "--describe --broker-list 0,1", "--describe"),
        ("kafka-server-start", "s.properties --override a=b", "--config=s.properties --override a=b"),
        ("kafka-server-start", "-daemon s.properties", "--daemon --config=s.properties"),
        ("kafka-server-start", "--help", "--help"),
        ("kafka-topics", "--list --exclude-internal", "--list --exclude-internal"),
    ],
)
def test_flags(tool, given, wanted):
    assert translated(tool, given.split()) == wanted.split()


def test_tools_with_nothing_to_do(logdb_command):
    said = logdb_command("zookeeper-server-start", "-daemon", "config/zookeeper.properties", kafka=True)
    assert (said.stdout, "needs no ZooKeeper" in said.stderr) == ("", True)
    said = logdb_command("kafka-storage", "format", "-t", "x", "-c", "server.properties", "--standalone", kafka=True)
    assert (said.stdout, "no formatted directory" in said.stderr) == ("", True)
    assert re.fullmatch(r"[\w-]{22}\n", logdb_command.out("kafka-storage", "random-uuid", kafka=True))


def test_the_help_leaves_out_tools_with_nothing_to_do(logdb_command):
    assert "zookeeper" not in logdb_command.out("--help")


def test_links(logdb_command, tmp_path):
    there = tmp_path / "bin"
    for _ in range(2):  # the second time they are there
        assert logdb_command.json("kafka-links", str(there))["names"][:2] == ["kafka-topics", "kafka-topics.sh"]
    assert sorted(os.listdir(there)) == sorted(tool + suffix for tool in KAFKA_TOOLS for suffix in ("", ".sh"))
    (there / "kafka-topics").unlink()
    (there / "kafka-topics").write_text("Kafka's own")
    (there / "kafka-acls").unlink()
    assert "kafka-topics is there already" in logdb_command("kafka-links", str(there), code=2).stderr
    assert (there / "kafka-topics").read_text() == "Kafka's own"
    assert not (there / "kafka-acls").exists()


@pytest.mark.skipif(not os.path.exists(os.path.join(os.path.dirname(sys.executable), "logdb")), reason="the script logdb is not installed")
def test_a_link_is_the_tool(logdb_command, tmp_path):
    logdb_command("kafka-links", str(tmp_path))
    made = subprocess.run([tmp_path / "kafka-storage.sh", "random-uuid"], capture_output=True, text=True)
    assert (made.returncode, made.stderr, len(made.stdout)) == (0, "", 23)


def test_the_docs_name_every_tool():
    page = Path(__file__).parents[4] / "docs" / "reference" / "kafka.md"
    lines = page.read_text().split("## Kafka's tools")[1].split("\n## ")[0].splitlines()
    rows = [line.split("|")[1:3] for line in lines if line.startswith("| `")]
    named = {tool.strip(" `"): (verb.strip(" `").split() or [tool.strip(" `")])[0] for tool, verb in rows}
    assert named == KAFKA_TOOLS


@pytest.mark.parametrize("tool", NOT_HERE)
def test_a_tool_that_is_not_here_says_what_to_do(logdb_command, tool):
    for name in (tool, f"{tool}.sh"):
        told = logdb_command(name, "--bootstrap-server", "h:1", code=2).stderr
        assert f"logdb has no {name}: {NOT_HERE[tool]}" in told
    docs = (Path(__file__).parents[4] / "docs" / "reference" / "kafka.md").read_text().split("## Kafka's tools")[1].split("\n## ")[0]
    assert f"`{tool}`" in docs
    assert tool not in KAFKA_TOOLS


def test_properties_of_a_consumer(filled, tmp_path):
    (tmp_path / "client.properties").write_text("group.id=g\nauto.offset.reset=earliest\n")
    flags = ("consume", "--topic", "one", "--command-config", str(tmp_path / "client.properties"), "--max-messages", "2")
    assert filled.out(*flags, kafka=True) == "0\n1\n"
    assert filled.out(*flags, kafka=True) == "2\n3\n"
    assert filled.out(*flags, "--command-property", "group.id=other", kafka=True) == "0\n1\n"
    assert "isolation.level=x" in filled(*flags, "--command-property", "isolation.level=x", kafka=True, code=2).stderr


WORDS = "org.apache.kafka.common.serialization."


def test_the_counts_of_kafka_s_word_count(logdb_command, tmp_path):
    logdb_command("topics", "create", "counts")
    with logdb_command.open() as db:
        db.log("counts").append_many([(2).to_bytes(8, "big"), None], [b"kafka", b"streams"])
    formatter = ("--formatter", "org.apache.kafka.tools.consumer.DefaultMessageFormatter")
    (tmp_path / "formatter.properties").write_text(f"print.key=true\nvalue.deserializer={WORDS}LongDeserializer\n")
    config = ("--formatter-config", str(tmp_path / "formatter.properties"))
    flags = ("consume", "--topic", "counts", "--from-beginning", "--max-messages", "2", *formatter, *config)
    assert logdb_command.out(*flags, "--property", f"key.deserializer={WORDS}StringDeserializer", kafka=True) == "kafka\t2\nstreams\tnull\n"
    refused = logdb_command(*flags, "--property", f"value.deserializer={WORDS}IntegerDeserializer", kafka=True, code=1).stderr
    assert r"counts-0 at offset 0: '\x00\x00\x00\x00\x00\x00\x00\x02' has 8 bytes: its deserializer wants 4" in refused
    assert "must be" in logdb_command(*flags, "--property", "key.deserializer=x.Y", kafka=True, code=2).stderr
    assert "known is" in logdb_command(*flags, "--formatter", "x.Y", kafka=True, code=2).stderr


def test_a_producer_s_reader(filled, tmp_path):
    (tmp_path / "reader.properties").write_text("parse.key=true\nkey.separator=:\n")
    reader = ("--line-reader", "org.apache.kafka.tools.LineMessageReader", "--reader-config", str(tmp_path / "reader.properties"))
    filled("produce", "--topic", "one", *reader, stdin="k:v\n", kafka=True)
    filled("produce", "--topic", "one", *reader, "--property", "key.separator=,", stdin="k,v\n", kafka=True)
    assert filled.out("consume", "one", "-o", "-2", "-f", "%k=%s\\n") == "k=v\nk=v\n"
    assert "known is" in filled("produce", "--topic", "one", "--line-reader", "x.Y", kafka=True, code=2).stderr
