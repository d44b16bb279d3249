"""Kafka's way to say what is done and with what, and ours, and both at once."""

import pytest


@pytest.fixture
def db(filled):
    filled("groups", "reset-offsets", "g", "-t", "one", "--to-offset", "40", "--execute")
    return filled


@pytest.mark.parametrize(
    "args",
    [
        ("groups", "describe", "g"),
        ("groups", "describe", "--group", "g"),
        ("groups", "describe", "--all-groups"),
        ("groups", "--describe", "--group", "g"),
        ("groups", "--group", "g"),
        ("groups", "--group", "g", "--offsets"),
    ],
)
def test_a_group_is_described(db, args):
    assert db.out(*args).splitlines()[1].split()[:4] == ["g", "one", "0", "40"]


@pytest.mark.parametrize(
    "args",
    [
        ("topics", "describe", "one"),
        ("topics", "describe", "--topic", "one"),
        ("topics", "--describe", "--topic", "one"),
        ("topics", "--topic", "one"),
    ],
)
def test_a_topic_is_described(db, args):
    assert [topic["topic"] for topic in db.json(*args)] == ["one"]


@pytest.mark.parametrize(
    "args", [("describe", "three"), ("describe", "--topic", "three"), ("--entity-name", "three"), ("--topic", "three")]
)
def test_configs_are_described(db, args):
    assert db.json("configs", *args) == {"three": [{"key": "segment.bytes", "value": 4096, "default": 1 << 30, "set": True}]}


def test_verbs_take_names_by_flags(db):
    db("topics", "create", "--topic", "new")
    db("topics", "alter", "--topic", "new", "-p", "2")
    db("configs", "alter", "--topic", "new", "-s", "flush.ms=5")
    assert db.json("topics", "describe", "new")[0]["config"]["flush.ms"] == 5
    db("topics", "delete", "--topic", "new", "--yes")
    assert "would delete group g" in db("groups", "delete", "--group", "g").stderr
    told = db("groups", "delete-offsets", "--group", "g", "-t", "one").stderr
    assert "would delete the offsets of group g in one-0; --execute deletes them" in told
    assert "7" in db.out("groups", "reset-offsets", "--group", "g", "-t", "one", "--to-offset", "7")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("groups", "--group", "g", "describe"), "--group belongs behind the verb: groups describe --group"),
        (("topics", "--topic", "one", "delete", "three", "--yes"), "--topic belongs behind the verb"),
        (("groups", "--group", "g", "--to-earliest"), "exactly one of --list"),
        (("topics", "--partitions", "3", "--topic", "one"), "exactly one of --list"),
        (("groups", "--execute"), "exactly one of --list"),
        (("groups", "delete"), "Missing argument 'GROUP...'"),
        (("topics", "alter", "one", "three", "-p", "9"), "give one TOPIC, not one, three"),
        (("compact",), "Missing argument 'TOPIC...'"),
    ],
)
def test_what_is_not_meant_is_not_done(db, args, said):
    assert said in db(*args, code=2).stderr
    assert [topic["topic"] for topic in db.json("topics")] == ["one", "three"]
