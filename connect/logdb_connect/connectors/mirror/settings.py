"""Properties of the mirror connectors: MirrorMaker 2's names and defaults."""

from collections.abc import Mapping

from logdb_connect.client import below
from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
DEFAULTS = {"key.converter": BYTES, "value.converter": BYTES, "header.converter": BYTES}
"""Records are copied as they are, whatever converters the worker has."""
PREFIXES = ("source.cluster.", "source.consumer.", "source.admin.", "target.cluster.", "target.producer.", "target.admin.")

SHARED = ConfigDef(
    ConfigKey("source.cluster.alias", "STRING", "source", "Alias of the source, for names of topics.", "HIGH"),
    ConfigKey("target.cluster.alias", "STRING", "target", "Alias of the worker's own database, which is the target.", "HIGH"),
    ConfigKey(
        "replication.policy.class",
        "CLASS",
        "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
        "Names of topics at the target: DefaultReplicationPolicy (alias.topic), IdentityReplicationPolicy (topic), or module:Class.",
        "LOW",
    ),
    ConfigKey("replication.policy.separator", "STRING", ".", "Between the alias and the name of a topic.", "LOW"),
)
SOURCE = SHARED + ConfigDef(
    ConfigKey(
        "source.cluster.bootstrap.servers",
        "STRING",
        REQUIRED,
        "The source: host:port of Kafka or of logdb, URLs of logdb, or a directory, which is only read. Properties of security follow "
        "as source.cluster.*, those of the consumer as source.consumer.*.",
        "HIGH",
    ),
    ConfigKey(
        "source.cluster.client",
        "STRING",
        "auto",
        "Protocol of the source: logdb, kafka (needs confluent-kafka), or auto: logdb for directories and URLs; for host:port first "
        "logdb, then Kafka.",
        "LOW",
        values=("auto", "logdb", "kafka"),
    ),
)
TOPICS = ConfigDef(
    ConfigKey("topics", "LIST", [".*"], "Topics to mirror: names or patterns, separated by commas.", "HIGH"),
    ConfigKey(
        "topics.exclude",
        "LIST",
        [r"mm2.*\.internal", r".*\.replica", "__.*"],
        "Topics to leave out; takes precedence over topics.",
        "HIGH",
    ),
)
MIRROR = (
    SOURCE
    + TOPICS
    + ConfigDef(
        ConfigKey("replication.factor", "INT", 2, "Replicas of topics that are created; at most one on each node.", "LOW"),
        ConfigKey("refresh.topics.enabled", "BOOLEAN", True, "Look for new topics and partitions.", "LOW"),
        ConfigKey("refresh.topics.interval.seconds", "LONG", 600, "How often.", "LOW", at_least(1)),
        ConfigKey("sync.topic.configs.enabled", "BOOLEAN", True, "Copy the configs of topics, also when they change.", "LOW"),
        ConfigKey("sync.topic.configs.interval.seconds", "LONG", 600, "How often.", "LOW", at_least(1)),
        ConfigKey(
            "config.properties.exclude",
            "LIST",
            [
                r"follower\.replication\.throttled\.replicas",
                r"leader\.replication\.throttled\.replicas",
                r"message\.timestamp\.difference\.max\.ms",
                r"message\.timestamp\.type",
                r"unclean\.leader\.election\.enable",
                r"min\.insync\.replicas",
            ],
            "Configs that are not copied; patterns.",
            "LOW",
        ),
        ConfigKey("emit.offset-syncs.enabled", "BOOLEAN", True, "Write pairs of offsets, which checkpoints need.", "LOW"),
        ConfigKey("offset.lag.max", "LONG", 100, "Write a pair at least each so many records. A pair also follows within a second.", "LOW"),
        ConfigKey("offset-syncs.topic.replication.factor", "INT", 3, "Replicas of the topic of pairs; at most one on each node.", "LOW"),
        ConfigKey("consumer.poll.timeout.ms", "LONG", 1000, "How long a poll waits for records.", "LOW", at_least(0)),
    )
)
CHECKPOINTS = (
    SOURCE
    + TOPICS
    + ConfigDef(
        ConfigKey("groups", "LIST", [".*"], "Groups whose offsets are translated: names or patterns, separated by commas.", "HIGH"),
        ConfigKey(
            "groups.exclude",
            "LIST",
            ["console-consumer-.*", "connect-.*", "__.*"],
            "Groups to leave out; takes precedence over groups.",
            "HIGH",
        ),
        ConfigKey("emit.checkpoints.enabled", "BOOLEAN", True, "Write translated offsets into ALIAS.checkpoints.internal.", "LOW"),
        ConfigKey("emit.checkpoints.interval.seconds", "LONG", 60, "How often.", "LOW", at_least(1)),
        ConfigKey(
            "sync.group.offsets.enabled",
            "BOOLEAN",
            False,
            "Commit translated offsets for groups of the same name at the target. A group that has members there keeps its own, and no "
            "offset goes back.",
            "LOW",
        ),
        ConfigKey("sync.group.offsets.interval.seconds", "LONG", 60, "How often.", "LOW", at_least(1)),
        ConfigKey("checkpoints.topic.replication.factor", "INT", 3, "Replicas of that topic; at most one on each node.", "LOW"),
    )
)
HEARTBEATS = SHARED + ConfigDef(
    ConfigKey("emit.heartbeats.enabled", "BOOLEAN", True, "Write heartbeats.", "LOW"),
    ConfigKey("emit.heartbeats.interval.seconds", "LONG", 1, "How often.", "LOW", at_least(1)),
    ConfigKey("heartbeats.topic.replication.factor", "INT", 3, "Replicas of the topic heartbeats; at most one on each node.", "LOW"),
)


def source_client(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties of the source's client."""
    return {**below("source.cluster.", properties), **below("source.consumer.", properties)}
