import pytest

from logdb.cli.configs import parse_added
from logdb.model import TOPIC_CONFIGS


def test_list_every_key_with_default_and_meaning(logdb_command):
    assert [entry["key"] for entry in logdb_command.json("configs", "list")] == list(TOPIC_CONFIGS)
    lines = logdb_command.out("configs").splitlines()
    assert len(lines) == 1 + len(TOPIC_CONFIGS)
    assert any(line.split()[:2] == ["preallocate", "false"] for line in lines)


def test_alter_and_describe(filled):
    assert "retention.ms=5" in filled("configs", "alter", "one", "-s", "retention.ms=5", "-s", "preallocate=true").stderr
    assert filled.out("configs", "describe", "one").splitlines()[1:] == [
        "one    preallocate   true   set",
        "one    retention.ms  5      set",
    ]
    document = filled.json("configs", "describe", "one", "--all")["one"]
    assert len(document) == len(TOPIC_CONFIGS)
    assert {"key": "retention.ms", "value": 5, "default": -1, "set": True} in document
    assert {"key": "flush.ms", "value": 1000, "default": 1000, "set": False} in document
    assert filled.json("configs", "alter", "one", "-d", "retention.ms", "-d", "preallocate") == {"topic": "one", "config": {}}
    assert "all defaults" in filled("configs", "describe", "one").stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["alter", "one"], "nothing to alter"),
        (["alter", "one", "-s", "x=1"], "unknown key"),
        (["alter", "one", "-s", "flush.ms=0"], "whole number in"),
        (["describe", "nosuch"], "nosuch"),
        (["--alter", "--add-config", "flush.ms=5"], "--entity-name"),
        (["--alter", "--entity-name", "one", "--add-config", "flush.ms"], "KEY=VALUE"),
        (["--alter", "--describe"], "exactly one"),
        (["--alter", "describe", "one"], "not both"),
    ],
)
def test_refused(filled, args, words):
    assert words in filled("configs", *args, code=2).stderr


def test_as_kafka_configs(filled):
    entity = ("--entity-type", "topics", "--entity-name", "one")
    added, both = "cleanup.policy=[compact,delete],flush.ms=7", "cleanup.policy=compact,delete"
    assert filled.out("configs", "--alter", *entity, "--add-config", added, kafka=True) == "Completed updating config for topic one.\n"
    assert filled.out("configs", "--describe", *entity, kafka=True).splitlines() == [
        "Dynamic configs for topic one are:",
        f"  {both} sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:{both}, DEFAULT_CONFIG:cleanup.policy=delete}}",
        "  flush.ms=7 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:flush.ms=7, DEFAULT_CONFIG:flush.ms=1000}",
    ]
    filled("configs", "--alter", *entity, "--delete-config", "flush.ms,cleanup.policy", kafka=True)
    assert len(filled.out("configs", "--describe", *entity, "--all", kafka=True).splitlines()) == 1 + len(TOPIC_CONFIGS)
    assert filled.json("configs", "--describe", *entity) == {"one": []}


def test_add_config_with_lists():
    assert parse_added("a=1,b=[x,y], c=") == [("a", "1"), ("b", "x,y"), ("c", "")]
    assert parse_added("") == []
