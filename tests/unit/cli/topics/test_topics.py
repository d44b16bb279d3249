import re

import pytest


def test_create_list_describe(logdb_command):
    assert "created topic a" in logdb_command("topics", "create", "a", "b", "-p", "2", "-c", "retention.ms=5").stderr
    assert logdb_command.json("topics", "list") == [
        {"topic": name, "partition_count": 2, "config": {"retention.ms": 5}} for name in ("a", "b")
    ]
    assert logdb_command.out("topics").splitlines()[1].split() == ["a", "2", "retention.ms=5"]
    (described,) = logdb_command.json("topics", "describe", "b")
    assert [p["partition"] for p in described["partitions"]] == [0, 1]
    assert {p["end_offset"] for p in described["partitions"]} == {0}


def test_no_topics_yet(logdb_command):
    logdb_command("topics", "create", "a")
    logdb_command("topics", "delete", "a", "--yes")
    result = logdb_command("topics", "list")
    assert (result.stdout, "no topics yet" in result.stderr) == ("", True)
    assert logdb_command.json("topics", "list") == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["create", "one"], "already exists"),
        (["create", "a/b"], "'/'"),
        (["create", "x", "-c", "retention.mss=1"], "retention.mss"),
        (["create", "x", "-c", "retention.ms"], "KEY=VALUE"),
        (["create", "x", "-p", "0"], "0"),
        (["create", "x", "-r", "3"], "needs a cluster"),
        (["describe", "nosuch"], "unknown topic 'nosuch'"),
        (["delete", "nosuch"], "unknown topic 'nosuch'"),
        (["alter", "one"], "nothing to alter"),
        (["alter", "three", "-p", "2"], "2"),
        (["--create"], "--topic"),
        (["--create", "--list"], "exactly one"),
        (["--list", "list"], "not both"),
        (["--describe", "--topic", "["], "regular expression"),
    ],
)
def test_refused(filled, args, words):
    assert words in filled("topics", *args, code=2).stderr


def test_if_not_exists(filled):
    filled("topics", "create", "one", "--if-not-exists")
    assert filled.out("topics", "--create", "--topic", "one", "--if-not-exists", kafka=True) == ""


def test_alter(filled):
    assert filled.json("topics", "alter", "one", "-p", "2", "-c", "retention.ms=7", "--yes")["partition_count"] == 2
    assert "2 partitions retention.ms=7" in filled("topics", "alter", "one", "-c", "retention.ms=7", "--execute").stderr
    assert filled.json("topics", "alter", "one", "-d", "retention.ms")["config"] == {}


def test_delete_shows_first(filled):
    result = filled("topics", "delete", "one", "three")
    assert "would delete topic one: 1 partition, 100 records" in result.stderr
    assert "--yes" in result.stderr
    document = filled.json("topics", "delete", "one")
    assert (document["executed"], [topic["topic"] for topic in document["delete"]]) == (False, ["one"])
    assert len(filled.json("topics", "list")) == 2
    assert filled.json("topics", "delete", "one", "--yes") == {"executed": True, "delete": [{"topic": "one"}]}
    assert [topic["topic"] for topic in filled.json("topics", "list")] == ["three"]


# ---------------------------------------------------------------- as kafka-topics


def test_flags_print_as_kafka_does(filled):
    assert filled.out("topics", "--list") == "one\nthree\n"
    head, *rows = filled.out("topics", "--describe", "--topic", "th.*").splitlines()
    assert head.startswith("Topic: three\tTopicId: ")
    assert head.endswith("\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: segment.bytes=4096")
    assert rows[2] == "\tTopic: three\tPartition: 2\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: \tLastKnownElr: "
    assert filled.out("topics", "--describe", "--under-replicated-partitions") == ""
    assert filled.json("topics", "--list") == ["one", "three"]


def test_as_kafka_topics(logdb_command):
    args = ("--topic", "a", "--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=5")
    assert logdb_command.out("topics", "--create", *args, kafka=True) == "Created topic a.\n"
    logdb_command("topics", "--alter", "--topic", "a", "--partitions", "3", "--delete-config", "retention.ms", kafka=True)
    assert "PartitionCount: 3" in logdb_command.out("topics", "--describe", "--topic", "a", kafka=True)
    assert "retention.ms" not in logdb_command.out("topics", "--describe", kafka=True)
    logdb_command("topics", "--delete", "--topic", "nosuch", "--if-exists", kafka=True)
    assert "nosuch" in logdb_command("topics", "--delete", "--topic", "nosuch", code=2, kafka=True).stderr
    result = logdb_command("topics", "--delete", "--topic", "a", kafka=True)
    assert (result.output, logdb_command.out("topics", "--list", kafka=True)) == ("", "\n")
    assert "exactly one" in logdb_command("topics", code=2, kafka=True).stderr


def test_what_kafka_topics_refuses(logdb_command):
    logdb_command("topics", "create", "b_x", "-p", "2")
    told = logdb_command("topics", "--alter", "--topic", "b_x", "--partitions", "2", kafka=True, code=1)
    assert "Topic b_x already has 2 partition(s)." in told.stderr
    told = logdb_command("topics", "--create", "--topic", "b.x", "--if-not-exists", kafka=True, code=1)
    assert "Topic 'b.x' collides with existing topic: b_x" in told.stderr
    logdb_command("topics", "create", "b.x")  # by its own name logdb has no such rule
    assert logdb_command.out("topics", "--list", "--topic", "zz.*", kafka=True) == "\n"
    assert logdb_command.out("topics", "--create", "--topic", "b_x", "--if-not-exists", kafka=True) == ""


def test_what_kafka_topics_describes(filled):
    def lines(*flags):
        found = filled.out("topics", "--describe", *flags, kafka=True).splitlines()
        return ["partition" if line.startswith("\t") else line.split("\t")[0] for line in found]

    assert lines("--topic", "one") == ["Topic: one", "partition"]
    assert lines("--at-min-isr-partitions") == ["partition"] * 4
    assert lines("--topics-with-overrides") == ["Topic: three"]
    for flag in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert (lines(flag), filled.json("topics", "--describe", flag)) == ([], [])
    with filled.open() as db:
        topic_id = db.describe_topic("three").topic_id
    assert lines("--topic-id", topic_id, "--topics-with-overrides") == ["Topic: three"]
    assert "no topic has the id" in filled("topics", "--describe", "--topic-id", "x", kafka=True, code=2).stderr


def test_flag_delete_shows_first_unless_called_as_kafka_topics(filled):
    assert "would delete" in filled("topics", "--delete", "--topic", "one,three").stderr
    filled("topics", "--delete", "--topic", "one,three", "--yes")
    assert filled.out("topics", "--list") == ""


def test_names_that_kafka_warns_of_and_ids_as_it_spells_them(logdb_command):
    told = logdb_command.out("topics", "--create", "--topic", "a.b", kafka=True).splitlines()
    assert (told[0][:32], told[1]) == ("WARNING: Due to limitations in m", "Created topic a.b.")
    head = logdb_command.out("topics", "--describe", "--topic", "a.b", kafka=True).splitlines()[0]
    topic_id = re.search(r"TopicId: ([\w-]{22})\t", head)[1]
    assert logdb_command.out("topics", "--describe", "--topic-id", topic_id, kafka=True).splitlines()[0] == head
