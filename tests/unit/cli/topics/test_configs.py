import pytest

from logdb.cli.topics.configs import parse_added
from logdb.model import TOPIC_CONFIGS


def test_list_every_key_with_default_and_meaning(logdb_command):
    assert [entry["key"] for entry in logdb_command.json("configs", "list")] == list(TOPIC_CONFIGS)
    lines = logdb_command.out("configs").splitlines()
    assert len(lines) == 1 + len(TOPIC_CONFIGS)
    assert any(line.split()[:2] == ["preallocate", "false"] for line in lines)


def test_alter_and_describe(filled):
    assert "retention.ms=5" in filled("configs", "alter", "one", "-s", "retention.ms=5", "-s", "preallocate=true", "--yes").stderr
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
    filled("configs", "--alter", *entity, "--delete-config", "flush.ms,cleanup.policy,remote.storage.enable", kafka=True)
    assert "unknown key; known keys: flush.messages" in filled("configs", "alter", "three", "--delete", "flush.none", code=2).stderr
    assert len(filled.out("configs", "--describe", *entity, "--all", kafka=True).splitlines()) == 1 + len(TOPIC_CONFIGS)
    assert filled.json("configs", "--describe", *entity) == {"one": []}


def test_add_config_with_lists():
    assert parse_added("a=1,b=[x,y], c=") == [("a", "1"), ("b", "x,y"), ("c", "")]
    assert parse_added("") == []


def test_kafka_s_configs_of_brokers(filled):
    def out(*flags):
        return filled.out("configs", "--describe", *flags, kafka=True).splitlines()

    broker, default = "Dynamic configs for broker 0 are:", "Default configs for brokers in the cluster are:"
    assert out("--entity-type", "brokers") == [broker, default]
    assert out("--broker", "0") == [broker]
    assert out("--broker-defaults") == out("--entity-type", "brokers", "--entity-default") == [default]
    assert out("--broker", "7") == ["The broker '7' doesn't exist and doesn't have dynamic config."]
    assert out("--topic", "none") == ["The topic 'none' doesn't exist and doesn't have dynamic config."]
    change = ("configs", "--alter", "--add-config", "a=1")
    assert "options at the start" in filled(*change, "--broker", "0", kafka=True, code=2).stderr
    assert "have no quotas" in filled(*change, "--client", "c", kafka=True, code=2).stderr
    assert "give one entity" in filled(*change, "--client", "c", "--broker", "0", kafka=True, code=2).stderr


@pytest.mark.local  # a server with users: tests/integration/kafka/test_tools_beside_kafkas.py
def test_kafka_s_configs_of_users(filled, tmp_path):
    filled("users", "add", "admin", "--super-user", "--password-stdin", stdin="secret\n")

    def alter(*flags, **options):
        return filled("configs", "--alter", *flags, kafka=True, **options)

    def described(*flags):
        return filled.out("configs", "--describe", *flags, kafka=True).splitlines()

    (tmp_path / "quota.properties").write_text("consumer_byte_rate=5\n")
    done = alter("--entity-user", "u", "--add-config", "producer_byte_rate=10", "--add-config-file", str(tmp_path / "quota.properties"))
    assert done.stdout == "Completed updating config for user u.\n"
    quotas = "Quota configs for user-principal 'u' are"
    assert described("--entity-type", "users", "--entity-name", "u") == [f"{quotas} consumer_byte_rate=5.0, producer_byte_rate=10.0"]
    alter("--entity-user", "u", "--delete-config", "consumer_byte_rate")
    assert described("--entity-user", "u") == [f"{quotas} producer_byte_rate=10.0"]
    for key in ("request_percentage", "SCRAM-SHA-1"):
        refused = alter("--entity-user", "u", "--add-config", f"{key}=50,producer_byte_rate=1", code=2).stderr
        assert f"{key}: a user has either" in refused
    assert "Invalid config(s): consumer_byte_rate" in alter("--entity-user", "u", "--delete-config", "consumer_byte_rate", code=2).stderr
    done = alter("--user-defaults", "--add-config", "producer_byte_rate=7")
    assert done.stdout == "Completed updating default config for users in the cluster.\n"
    assert described("--user-defaults") == ["Quota configs for the default user-principal are producer_byte_rate=7.0"]
    alter("--entity-user", "s", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x],SCRAM-SHA-512=[password=y]")
    credentials = "SCRAM credential configs for user-principal 's' are"
    assert described("--entity-user", "s") == [f"{credentials} SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096"]
    alter("--entity-user", "s", "--delete-config", "SCRAM-SHA-256")
    assert described("--entity-user", "s") == [f"{credentials} SCRAM-SHA-512=iterations=4096"]
    assert "must be [password=" in alter("--entity-user", "s", "--add-config", "SCRAM-SHA-256=x", code=2).stderr
    for wrong in ("producer_byte_rate=0.5", "producer_byte_rate=inf", "producer_byte_rate=nan", "producer_byte_rate=1e30", "nonsense=1"):
        assert alter("--entity-user", "u", "--add-config", wrong, code=2).stderr


@pytest.mark.local
def test_set_and_get(filled):
    filled("configs", "set", "one", "retention.ms=1d", "segment.bytes=64MiB")
    assert filled.json("topics", "describe", "one")[0]["config"] == {"retention.ms": 86_400_000, "segment.bytes": 64 << 20}
    assert filled.out("configs", "get", "one") == filled.out("configs", "describe", "one")


@pytest.mark.local
@pytest.mark.parametrize("key", ["retention_ms", "log.retention.ms", "Retention.MS", "retention-ms", "retenton.ms"])
def test_the_key_that_is_meant(filled, key):
    assert "did you mean retention.ms?" in filled("topics", "alter", "one", "-c", f"{key}=1d", code=2).stderr
