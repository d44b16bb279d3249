"""Properties of workers and of connectors, with Kafka's names and defaults.

Source: Kafka's ``WorkerConfig``, ``StandaloneConfig``, ``DistributedConfig``, ``ConnectorConfig``.
"""

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least

_INTERVAL = at_least(0)
ISOLATIONS = ("thread", "process")

WORKER = ConfigDef(
    ConfigKey("bootstrap.servers", "LIST", REQUIRED, "Servers, host:port or URLs; or the directory of a database.", "HIGH"),
    ConfigKey("key.converter", "CLASS", REQUIRED, "Converter of keys.", "HIGH"),
    ConfigKey("value.converter", "CLASS", REQUIRED, "Converter of values.", "HIGH"),
    ConfigKey("header.converter", "CLASS", "org.apache.kafka.connect.storage.SimpleHeaderConverter", "Converter of headers.", "LOW"),
    ConfigKey(
        "listeners",
        "LIST",
        ["http://127.0.0.1:8083"],
        "Addresses of the REST API. An address other than loopback needs https and rest.users.file, or rest.insecure=true.",
        "LOW",
    ),
    ConfigKey(
        "rest.users.file",
        "STRING",
        None,
        "Users of the REST API: a property file, user=password. Without it, all callers are allowed.",
        "MEDIUM",
    ),
    ConfigKey("rest.insecure", "BOOLEAN", False, "Allow addresses other than loopback without TLS and users.", "LOW"),
    ConfigKey("rest.ssl.certfile", "STRING", None, "Certificate of an https listener, PEM.", "LOW"),
    ConfigKey("rest.ssl.keyfile", "STRING", None, "Key of the certificate, PEM.", "LOW"),
    ConfigKey(
        "rest.ssl.cafile", "STRING", None, "Certificates of other workers that this one trusts, PEM; the system's by default.", "LOW"
    ),
    ConfigKey("rest.advertised.host.name", "STRING", None, "Host that other workers reach this one at.", "LOW"),
    ConfigKey("rest.advertised.port", "INT", None, "Port that other workers reach this one at.", "LOW"),
    ConfigKey("rest.advertised.listener", "STRING", None, "Which listener other workers use: http or https.", "LOW"),
    ConfigKey("plugin.path", "LIST", [], "Directories with plugins: Python modules and packages.", "LOW"),
    ConfigKey("connector.classes.allowed", "LIST", [], "The only connectors that may be created; empty: all.", "LOW"),
    ConfigKey("connector.directories.allowed", "LIST", [], "The only directories that connectors may use; empty: all.", "LOW"),
    ConfigKey("connector.commands.allowed", "LIST", [], "Programs that connectors may run, by absolute path; empty: none.", "LOW"),
    ConfigKey(
        "connector.hosts.allowed",
        "LIST",
        [],
        "The only hosts that connectors may reach: names, *.example.com, 10.0.0.0/8; empty: all.",
        "LOW",
    ),
    ConfigKey("config.providers", "LIST", [], "Names of config providers.", "LOW"),
    ConfigKey("offset.flush.interval.ms", "LONG", 60_000, "How often offsets of sinks are committed.", "LOW", _INTERVAL),
    ConfigKey("task.shutdown.graceful.timeout.ms", "LONG", 5_000, "How long to wait for all tasks to stop.", "LOW", _INTERVAL),
    ConfigKey(
        "task.isolation",
        "STRING",
        "thread",
        "Where tasks run: in threads of this worker; or each in a process of its own, which may crash.",
        "LOW",
        values=ISOLATIONS,
    ),
    ConfigKey("topic.creation.enable", "BOOLEAN", True, "Create the topics that sources write to.", "LOW"),
    ConfigKey("topic.tracking.enable", "BOOLEAN", True, "Remember which topics a connector uses.", "LOW"),
    ConfigKey("topic.tracking.allow.reset", "BOOLEAN", True, "Allow PUT /connectors/{c}/topics/reset.", "LOW"),
    ConfigKey(
        "connector.client.config.override.policy",
        "STRING",
        "All",
        "None: connectors may not have producer.override.* and consumer.override.*.",
        "MEDIUM",
        values=("All", "None"),
    ),
    ConfigKey(
        "logdb.client",
        "STRING",
        "auto",
        "How to talk to bootstrap.servers: logdb; kafka, by confluent-kafka; auto: ask what answers there.",
        "LOW",
        values=("auto", "logdb", "kafka"),
    ),
    ConfigKey("client.id", "STRING", "", "Name of this worker for logs of the server.", "LOW"),
)
STANDALONE = WORKER + ConfigDef(
    ConfigKey(
        "offset.storage.file.filename",
        "STRING",
        REQUIRED,
        "File with the identity of this worker, and a copy of the offsets of its sources. If it is lost, sources begin at the start.",
        "HIGH",
    ),
    ConfigKey("offset.storage.topic", "STRING", "connect-offsets-standalone", "Compacted topic with the offsets of sources.", "LOW"),
    ConfigKey("offset.storage.partitions", "INT", 1, "Partitions of that topic, if it is created.", "LOW"),
    ConfigKey("offset.storage.replication.factor", "INT", -1, "Replicas of that topic, if it is created; -1: the server's default.", "LOW"),
    ConfigKey(
        "exactly.once.source.support",
        "STRING",
        "enabled",
        "enabled: records and offsets of sources in one transaction; disabled: records first, offsets after.",
        "HIGH",
        values=("disabled", "enabled"),
    ),
)
DISTRIBUTED = WORKER + ConfigDef(
    ConfigKey("group.id", "STRING", REQUIRED, "Name of the group of workers that share connectors and tasks.", "HIGH"),
    ConfigKey("config.storage.topic", "STRING", REQUIRED, "Compacted topic with the configs of connectors.", "HIGH"),
    ConfigKey("config.storage.replication.factor", "INT", 3, "Replicas of that topic, if it is created.", "LOW"),
    ConfigKey("offset.storage.topic", "STRING", REQUIRED, "Compacted topic with the offsets of sources.", "HIGH"),
    ConfigKey("offset.storage.partitions", "INT", 25, "Partitions of that topic, if it is created.", "LOW"),
    ConfigKey("offset.storage.replication.factor", "INT", 3, "Replicas of that topic, if it is created.", "LOW"),
    ConfigKey("status.storage.topic", "STRING", REQUIRED, "Compacted topic with the statuses of connectors and tasks.", "HIGH"),
    ConfigKey("status.storage.partitions", "INT", 5, "Partitions of that topic, if it is created.", "LOW"),
    ConfigKey("status.storage.replication.factor", "INT", 3, "Replicas of that topic, if it is created.", "LOW"),
    ConfigKey("session.timeout.ms", "INT", 10_000, "How long a worker may be silent before others take its work.", "HIGH", at_least(1)),
    ConfigKey("heartbeat.interval.ms", "INT", 3_000, "How often a worker shows that it is alive.", "HIGH", at_least(1)),
    ConfigKey("rebalance.timeout.ms", "INT", 60_000, "How long a worker may take to join again.", "HIGH", at_least(1)),
    ConfigKey(
        "scheduled.rebalance.max.delay.ms",
        "INT",
        300_000,
        "How long the work of a worker that left waits for its return.",
        "LOW",
        _INTERVAL,
    ),
    ConfigKey(
        "exactly.once.source.support",
        "STRING",
        "disabled",
        "enabled: records and offsets of sources in one transaction; disabled: records first, offsets after.",
        "HIGH",
        values=("disabled", "preparing", "enabled"),
    ),
    ConfigKey("worker.sync.timeout.ms", "INT", 3_000, "How long to read the config topic at a rebalance.", "LOW"),
)

_ERRORS = ConfigDef(
    ConfigKey(
        "errors.retry.timeout", "LONG", 0, "Milliseconds for retries of a failed operation; -1: no limit.", "MEDIUM", group="Error Handling"
    ),
    ConfigKey("errors.retry.delay.max.ms", "LONG", 60_000, "Longest pause between retries.", "MEDIUM", group="Error Handling"),
    ConfigKey("errors.tolerance", "STRING", "none", "all: skip bad records.", "MEDIUM", values=("none", "all"), group="Error Handling"),
    ConfigKey("errors.log.enable", "BOOLEAN", False, "Log each error.", "MEDIUM", group="Error Handling"),
    ConfigKey("errors.log.include.messages", "BOOLEAN", False, "Log the record, too.", "MEDIUM", group="Error Handling"),
)
CONNECTOR = (
    ConfigDef(
        ConfigKey(
            "name", "STRING", REQUIRED, "Globally unique name of the connector.", "HIGH", group="Common", display_name="Connector name"
        ),
        ConfigKey(
            "connector.class", "STRING", REQUIRED, "Name or class of the connector.", "HIGH", group="Common", display_name="Connector class"
        ),
        ConfigKey("tasks.max", "INT", 1, "Most tasks of this connector.", "HIGH", at_least(1), group="Common", display_name="Tasks max"),
        ConfigKey(
            "task.isolation",
            "STRING",
            None,
            "thread or process; the worker's by default.",
            "LOW",
            values=ISOLATIONS,
            group="Common",
        ),
        ConfigKey("tasks.max.enforce", "BOOLEAN", True, "Fail a connector that makes more.", "LOW", group="Common"),
        ConfigKey("key.converter", "CLASS", None, "Converter of keys; the worker's by default.", "LOW", group="Common"),
        ConfigKey("value.converter", "CLASS", None, "Converter of values; the worker's by default.", "LOW", group="Common"),
        ConfigKey("header.converter", "CLASS", None, "Converter of headers; the worker's by default.", "LOW", group="Common"),
        ConfigKey("transforms", "LIST", [], "Names of transforms, in order.", "LOW", group="Transforms"),
        ConfigKey("predicates", "LIST", [], "Names of predicates.", "LOW", group="Predicates"),
        ConfigKey(
            "config.action.reload",
            "STRING",
            "restart",
            "What to do when a secret changes.",
            "LOW",
            values=("none", "restart"),
            group="Common",
        ),
    )
    + _ERRORS
)
SOURCE = CONNECTOR + ConfigDef(
    ConfigKey("topic.creation.groups", "LIST", [], "Groups of settings for topics that are created.", "LOW", group="Topic Creation"),
    ConfigKey(
        "exactly.once.support",
        "STRING",
        "requested",
        "required: refuse a connector, or a worker, that is not exactly once.",
        "MEDIUM",
        values=("requested", "required"),
        group="Exactly Once Support",
    ),
    ConfigKey(
        "transaction.boundary",
        "STRING",
        "poll",
        "If it is set to poll, each transaction has the records of one poll. interval: those of some time. connector: the connector ends "
        "transactions. Unset: the records of a few polls.",
        "MEDIUM",
        values=("poll", "interval", "connector"),
        group="Exactly Once Support",
    ),
    ConfigKey(
        "transaction.boundary.interval.ms",
        "LONG",
        None,
        "The time of transaction.boundary=interval; the worker's offset.flush.interval.ms by default.",
        "LOW",
        at_least(1),
        group="Exactly Once Support",
    ),
    ConfigKey("offsets.storage.topic", "STRING", None, "A topic of its own for the connector's offsets.", "LOW", group="Offsets Topic"),
)
SINK = CONNECTOR + ConfigDef(
    ConfigKey("topics", "LIST", [], "Topics to read, separated by commas.", "HIGH", group="Common"),
    ConfigKey("topics.regex", "STRING", "", "Pattern of topics to read, instead of topics.", "HIGH", group="Common"),
    ConfigKey("errors.deadletterqueue.topic.name", "STRING", "", "Topic for records that failed.", "MEDIUM", group="Error Handling"),
    ConfigKey(
        "errors.deadletterqueue.topic.replication.factor", "INT", 3, "Its replicas, if it is created.", "MEDIUM", group="Error Handling"
    ),
    ConfigKey("errors.deadletterqueue.context.headers.enable", "BOOLEAN", False, "Headers that say why.", "MEDIUM", group="Error Handling"),
)
PREFIXES = (
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "config.providers.",
    "producer.",
    "consumer.",
    "admin.",
    "topic.creation.",
    "security.",
    "sasl.",
    "ssl.",
    "metrics.",
    "logdb.",
)
"""Properties of parts, checked where the part is made."""
