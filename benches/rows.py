"""The table: what is compared with what, what the goal is, and what came out."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from benches.workload import Measure

COUNTS: Mapping[int, int] = {100: 2_000_000, 1024: 200_000}  # records by the size of their values
_SPARK: Mapping[int, int] = {100: 4_000_000}
_LEAST = ("perf_produce", "perf_produce_tuned", "send_each")  # what a broker that only checks and writes is asked for


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison.

    Attributes:
        ours: An operation of our side.
        side: Whose operation ours is: "logdb"; "served" where it is behind a URL, "spark_logdb" where Spark reads it.
        peer: A side and one of its operations; None where the goal is absolute and nothing is like it.
        goal: Least ratio of ours to the peer's at 100 B; none: reported only.
        limit: Largest value of ours (ms, MB, B/B), or the least (M/s, MB/s), instead of a ratio.
        count: Records by size of values, where it is not COUNTS; a size that is not named is left out.
        peer_count: Records of a peer that would take too long for as many; it is the rates that are compared.
    """

    name: str
    work: str
    ours: str
    side: str = "logdb"
    peer: tuple[str, str] | None = None
    goal: float | None = None
    limit: float | None = None
    count: Mapping[int, int] = field(default_factory=lambda: COUNTS)
    peer_count: int | None = None


@dataclass
class Result:
    """One row at one size: every measure of both sides, pair by pair."""

    row: Row
    value_size: int
    ours: list[Measure] = field(default_factory=list)
    peer: list[Measure] = field(default_factory=list)
    trouble: str = ""

    @property
    def ratios(self) -> list[float]:
        """Ours to the peer's, of each pair; above 1 is in our favour."""
        pairs = zip(self.ours, self.peer, strict=False)
        return [own.value / other.value if own.unit.endswith("/s") else other.value / own.value for own, other in pairs]

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the goal; None where there is no goal at this size or no measure."""
        if self.trouble or not self.ours or self.value_size != 100:
            return None
        if self.row.limit is not None:
            median = statistics.median(own.value for own in self.ours)
            return median >= self.row.limit if self.ours[0].unit.endswith("/s") else median <= self.row.limit
        return None if self.row.goal is None else statistics.median(self.ratios) >= self.row.goal


ROWS = (
    Row(name="append", work="append, one a call; buffered file.write", ours="append", peer=("file", "append"), goal=2.5),
    Row(name="append-interval", work="… at the default level; the same file", ours="append_interval", peer=("file", "append")),
    Row(
        name="append-threads",
        work="append, four threads on one log; one thread",
        ours="append_4_threads",
        peer=("logdb", "append"),
        goal=0.75,
    ),
    Row(
        name="many-arrow",
        work="append_many, 1,000 a call; Arrow IPC stream",
        ours="append_many",
        peer=("arrow_ipc", "append_many"),
        goal=1.4,
    ),
    Row(
        name="many-kafka",
        work="append_many, 1,000 a call; Kafka's storage engine",
        ours="append_many",
        peer=("kafka", "append_many"),
        goal=1.4,
    ),
    Row(
        name="many-128k",
        work="… with batch_size=131,072; Arrow IPC stream",
        ours="append_many_128k",
        peer=("arrow_ipc", "append_many"),
    ),
    Row(
        name="batches-in",
        work="ready-made batches in, checked; Kafka's storage engine",
        ours="append_ready",
        peer=("kafka", "append_ready"),
        goal=1.0,
    ),
    Row(
        name="batches-out",
        work="batches out, checked; Kafka's, records iterated",
        ours="read_batches",
        peer=("kafka", "read"),
        goal=1.5,
    ),
    Row(name="batches-out-crc", work="… Kafka's, CRC alone", ours="read_batches", peer=("kafka", "read_batches")),
    Row(
        name="durable",
        work="1,000 a call, each with fdatasync; the plain file",
        ours="append_many_durable",
        peer=("file", "append_many_durable"),
        goal=1.0,
        count={100: 500_000, 1024: 200_000},
    ),
    Row(
        name="group-commit",
        work="durable, one a call: eight threads; one thread",
        ours="append_durable_8_threads",
        peer=("logdb", "append_durable"),
        goal=5.0,
        count={100: 8_000, 1024: 8_000},
    ),
    Row(
        name="producer-send",
        work="producer.send with a callback; confluent-kafka's produce(), mock broker",
        ours="send",
        peer=("confluent", "produce"),
        goal=1.0,
    ),
    Row(name="producer-send-alone", work="… both without callbacks", ours="send_alone", peer=("confluent", "produce_alone")),
    Row(name="scan-value", work="scan to Record: value; lmdb cursor", ours="scan_values", peer=("lmdb", "scan"), goal=1.6),
    Row(name="scan-value-alone", work="… lmdb cursor without its keys", ours="scan_values", peer=("lmdb", "scan_values")),
    Row(
        name="scan-all",
        work="scan: offset, timestamp, key and value; lmdb cursor",
        ours="scan_all",
        peer=("lmdb", "scan"),
        goal=1.0,
    ),
    Row(
        name="scan-zstd",
        work="scan to Record: value, zstd; Kafka's storage engine",
        ours="scan_values_zstd",
        peer=("kafka", "read_zstd"),
        goal=1.0,
    ),
    Row(
        name="group-consume",
        work="consume as a group: poll; log.read",
        ours="group_consume",
        peer=("logdb", "scan_values"),
        goal=0.8,
    ),
    Row(name="group-iterate", work="… for record in consumer", ours="group_iterate", peer=("logdb", "scan_values"), goal=0.8),
    Row(
        name="transactional",
        work="transactions of 10,000 records; the same producer without",
        ours="send_transactional",
        peer=("logdb", "send_interval"),
        goal=0.5,
    ),
    Row(
        name="transactions",
        work="a transaction of 10 records and offsets, at interval",
        ours="transactions",
        limit=2,
        count={100: 20_000},
    ),
    Row(
        name="transactions-threads",
        work="… four workers at once, each with an id of its own",
        ours="transactions_4_threads",
        limit=2,
        count={100: 8_000},
    ),
    Row(name="offset-commits", work="a commit of a group's offset, at interval", ours="offset_commits", limit=0.1, count={100: 20_000}),
    Row(name="arrow-value", work="scan to Arrow: value; lmdb to Arrow", ours="arrow_value", peer=("lmdb", "arrow"), goal=6.0),
    Row(name="arrow-all", work="scan to Arrow: five columns; lmdb to Arrow", ours="arrow_all", peer=("lmdb", "arrow"), goal=5.0),
    Row(
        name="arrow-zstd",
        work="scan to Arrow: value, zstd; the column of a Parquet file, zstd",
        ours="arrow_value_zstd",
        peer=("parquet", "read"),
        goal=0.5,
    ),
    Row(name="get", work="point read, positions cached; lmdb get", ours="get", peer=("lmdb", "get"), goal=0.6),
    Row(name="get-uncached", work="point read, not cached; lmdb get", ours="get_sparse", peer=("lmdb", "get_sparse"), goal=0.2),
    Row(
        name="table",
        work="the first access of db.table(): 10,000 keys, 11 M records",
        ours="table",
        limit=2,  # half a microsecond a record
        count={100: 11_000_000},
    ),
    Row(
        name="open",
        work="open after kill -9 with 2 M records; lmdb",
        ours="recover",
        peer=("lmdb", "recover"),
        limit=10,
        count={100: 2_000_000},
    ),
    Row(
        name="open-small",
        work="… with 200 k records; lmdb",
        ours="recover",
        peer=("lmdb", "recover"),
        limit=10,
        count={100: 200_000},
    ),
    Row(
        name="compaction",
        work="compaction; one read and one write of the log, synced",
        ours="compact",
        peer=("copy", "copy_durable"),
        goal=0.5,
    ),
    Row(name="compaction-cached", work="… a copy that ends in the page cache", ours="compact", peer=("copy", "copy")),
    Row(name="snapshot", work="snapshot of 1,000 sealed segments, under load", ours="snapshot", limit=1_000, count={100: 1_001_000}),
    *(
        Row(
            name=f"partitions-{kind}-{level}-{count}",
            work=f"{said} at {level} over {count:,} partitions in turn; over 100",
            ours=f"{kind}_{level}_{count}",
            peer=("logdb", f"{kind}_{level}_100"),
            goal=1 / 1.5,  # so the time for each partition to get a call grows by an exponent of 1.1 at most: 100 ** 0.1 is 1.58
            count={100: 10_000 if level == "fsync" or kind == "produce" else 200_000},  # so that syncs by time are within
        )
        for kind, said in (("append", "append_many, one record a call,"), ("produce", "producer.send, flushed every 100,"))
        for level in ("os", "interval", "fsync")
        for count in (1_000, 10_000)
    ),
    *(
        Row(
            name=f"disk-{level}",
            work=f"the disk of 1,000 partitions, ten small calls each, at {level}",
            ours=f"disk_{level}",
            limit=64,
            count={100: 10_000},
        )
        for level in ("os", "interval", "fsync")
    ),
    *(
        Row(
            name=f"unsynced-{count}",
            work=f"the oldest record without a sync at interval, flush.ms=1000, over {count:,} partitions that all get records",
            ours=f"unsynced_{count}",
            limit=1_500,
            count={100: 1},
        )
        for count in (100, 1_000, 10_000)
    ),
    Row(name="memory", work="memory of 1,000 open partitions", ours="memory", limit=100, count={100: 1}),
    Row(name="import", work="import logdb", ours="import_", limit=50, count={100: 1}),
    Row(name="import-uncompiled", work="… where no compiled files are kept", ours="import_uncompiled", count={100: 1}),
    *(
        Row(
            name=f"wear-{level}{rate and f'-{rate}'}",
            work=f"bytes to the disk for a byte in a log of 900 MB, {said} at {level}; in an empty one",
            ours=f"wear_{level}_{rate or 0}_large",
            peer=("logdb", f"wear_{level}_{rate or 0}_small"),
            goal=None if limit else 0.9,
            limit=limit,
            count={100: count},
        )
        for level in ("interval", "fsync")
        for rate, said, limit, count in (
            ("", "flat out", 1.3, 1_000_000),
            (10, "10 calls of 5 KB a second", None, 8_000),
            (1, "one such call a second", None, 800),
        )
    ),
    Row(
        name="url-many",
        work="over HTTP: append_many, 64,000 a call; in the process",
        side="served",
        ours="append_many",
        peer=("logdb", "append_many_64k"),
        goal=0.5,
    ),
    Row(
        name="url-scan",
        work="over HTTP: scan to Record; in the process",
        side="served",
        ours="scan_values",
        peer=("logdb", "scan_values"),
        goal=0.7,
    ),
    Row(
        name="url-arrow",
        work="over HTTP: scan to Arrow; in the process",
        side="served",
        ours="arrow_value",
        peer=("logdb", "arrow_value"),
        goal=0.4,
    ),
    Row(
        name="url-many-secured",
        work="… over TLS, by a password: append_many, 64,000 a call",
        side="served",
        ours="append_many_secured",
        peer=("logdb", "append_many_64k"),
    ),
    Row(
        name="url-scan-secured",
        work="… scan to Record",
        side="served",
        ours="scan_values_secured",
        peer=("logdb", "scan_values"),
    ),
    Row(
        name="url-arrow-secured",
        work="… scan to Arrow",
        side="served",
        ours="arrow_value_secured",
        peer=("logdb", "arrow_value"),
    ),
    Row(
        name="url-append",
        work="over HTTP: one record, acknowledged; an empty aiohttp handler",
        side="served",
        ours="append",
        peer=("served", "empty_handler"),
        goal=1 / 1.3,
        count={100: 5_000},
    ),
    Row(
        name="url-append-secured",
        work="… over TLS, by a password",
        side="served",
        ours="append_secured",
        peer=("served", "empty_handler"),
        count={100: 5_000},
    ),
    Row(
        name="url-many-rabbitmq",
        work="over HTTP: append_many, 64,000 a call; RabbitMQ streams, 100 a sub-entry",
        side="served",
        ours="append_many",
        peer=("rabbitmq_streams", "append_entries"),
        goal=2.0,
        count={100: 2_000_000},
        peer_count=1_000_000,
    ),
    Row(
        name="url-many-rabbitmq-each",
        work="… RabbitMQ streams, a message a record, 1,000 a frame",
        side="served",
        ours="append_many",
        peer=("rabbitmq_streams", "append_many"),
        count={100: 2_000_000},
        peer_count=400_000,
    ),
    Row(
        name="url-many-redis",
        work="… Redis Streams, XADD, 1,000 a pipeline",
        side="served",
        ours="append_many",
        peer=("redis_streams", "append_many"),
        count={100: 2_000_000},
        peer_count=200_000,
    ),
    Row(
        name="url-many-nats",
        work="… NATS JetStream, any number unacknowledged",
        side="served",
        ours="append_many",
        peer=("nats_jetstream", "append_many"),
        count={100: 2_000_000},
        peer_count=50_000,
    ),
    Row(
        name="url-scan-rabbitmq",
        work="over HTTP: scan to Record; RabbitMQ streams, a consumer",
        side="served",
        ours="scan_values",
        peer=("rabbitmq_streams", "scan_values"),
        count={100: 2_000_000},
        peer_count=500_000,
    ),
    Row(
        name="url-scan-redis",
        work="… Redis Streams, XRANGE, 1,000 a page",
        side="served",
        ours="scan_values",
        peer=("redis_streams", "scan_values"),
        count={100: 2_000_000},
        peer_count=400_000,
    ),
    Row(
        name="url-scan-nats",
        work="… NATS JetStream, an ordered consumer",
        side="served",
        ours="scan_values",
        peer=("nats_jetstream", "scan_values"),
        count={100: 2_000_000},
        peer_count=50_000,
    ),
    Row(
        name="url-append-rabbitmq",
        work="over HTTP: one record, acknowledged; RabbitMQ streams",
        side="served",
        ours="append",
        peer=("rabbitmq_streams", "append"),
        count={100: 5_000},
    ),
    Row(
        name="url-append-redis",
        work="… Redis Streams",
        side="served",
        ours="append",
        peer=("redis_streams", "append"),
        count={100: 5_000},
    ),
    Row(
        name="url-append-nats",
        work="… NATS JetStream",
        side="served",
        ours="append",
        peer=("nats_jetstream", "append"),
        count={100: 5_000},
    ),
    Row(
        name="url-json",
        work="REST v3: JSON records in one stream",
        side="served",
        ours="stream_json",
        limit=0.1,
        count={100: 200_000},
    ),
    Row(name="url-idle", work="memory of an idle server", side="served", ours="idle", limit=64, count={100: 8_000}),
    Row(
        name="spark-count",
        work="Spark, count; Spark's Kafka source",
        side="spark_logdb",
        ours="count",
        peer=("spark_kafka", "count"),
        goal=3.0,
        count=_SPARK,
    ),
    Row(
        name="spark-count-large",
        work="… with large fetches: count",
        side="spark_logdb",
        ours="count",
        peer=("spark_kafka", "count_large"),
        goal=2.0,
        count=_SPARK,
    ),
    Row(
        name="spark-lengths",
        work="Spark, sum of the values' lengths; Spark's Kafka source",
        side="spark_logdb",
        ours="lengths",
        peer=("spark_kafka", "lengths"),
        goal=3.0,
        count=_SPARK,
    ),
    Row(
        name="spark-lengths-large",
        work="… with large fetches: sum of lengths",
        side="spark_logdb",
        ours="lengths",
        peer=("spark_kafka", "lengths_large"),
        goal=2.0,
        count=_SPARK,
    ),
    Row(
        name="spark-noop",
        work="Spark, all columns to nobody; Spark's Kafka source",
        side="spark_logdb",
        ours="noop",
        peer=("spark_kafka", "noop"),
        goal=3.0,
        count=_SPARK,
    ),
    Row(
        name="spark-noop-large",
        work="… with large fetches: every row, dropped",
        side="spark_logdb",
        ours="noop",
        peer=("spark_kafka", "noop_large"),
        goal=2.0,
        count=_SPARK,
    ),
    Row(
        name="spark-backlog",
        work="Spark, a backlog by AvailableNow; Spark's Kafka source",
        side="spark_logdb",
        ours="backlog",
        peer=("spark_kafka", "backlog"),
        goal=1.0,
        count=_SPARK,
    ),
    Row(
        name="spark-micro-batch",
        work="Spark, a micro-batch at 10 k records/s; Spark's Kafka source",
        side="spark_logdb",
        ours="micro_batch",
        peer=("spark_kafka", "micro_batch"),
        goal=1.0,
        count={100: 100_000},
    ),
    Row(
        name="spark-scan-count",
        work="scan: count; Spark on Parquet that pyarrow wrote",
        side="spark_logdb",
        ours="scan_count",
        peer=("spark_parquet", "count"),
        goal=0.9,
        count=_SPARK,
    ),
    Row(
        name="spark-scan-lengths",
        work="scan: sum of the values' lengths; the same Parquet",
        side="spark_logdb",
        ours="scan_lengths",
        peer=("spark_parquet", "lengths"),
        goal=0.9,
        count=_SPARK,
    ),
    Row(
        name="spark-scan-noop",
        work="scan: all columns to nobody; the same Parquet",
        side="spark_logdb",
        ours="scan_noop",
        peer=("spark_parquet", "noop"),
        goal=0.9,
        count=_SPARK,
    ),
    *(
        Row(
            name=f"kafka-{name}{suffix}",
            work=f"{work}; {what}",
            side="kafka_door",
            ours=operation,
            peer=(peer, operation),
            goal=0.9 if suffix else 1.0,
            count={100: count},
        )
        for name, operation, work, count in (
            ("produce", "produce", "confluent-kafka's produce()", 1_000_000),
            ("consume", "consume", "confluent-kafka's consume(1000), tuned", 1_000_000),
            ("perf-produce", "perf_produce", "kafka-producer-perf-test", 2_000_000),
            ("perf-produce-tuned", "perf_produce_tuned", "kafka-producer-perf-test, batches of 256 KiB", 2_000_000),
            ("perf-consume", "perf_consume", "kafka-consumer-perf-test", 1_000_000),
            ("send", "send_each", "confluent-kafka: one record, acknowledged", 5_000),
            ("follow", "follow", "confluent-kafka: produce, and follow in another process", 1_000_000),
            ("follow-latency", "follow_latency", "… at 10,000 a second: from produce() to the follower, median", 40_000),
        )
        for suffix, peer, what in (
            ("", "kafka_broker", "Kafka"),
            ("-limit", "kafka_nothing", "a broker that does nothing"),
            ("-least", "kafka_least", "a broker that only checks and writes"),
        )
        if not (suffix and name.startswith("follow")) and (suffix != "-least" or operation in _LEAST)
    ),
    Row(
        name="kafka-several",
        work="four producers (confluent-kafka) at once, into one partition; Kafka",
        side="kafka_door",
        ours="produce_several",
        peer=("kafka_broker", "produce_several"),
        limit=2,
        count={100: 1_000_000},
    ),
    Row(
        name="kafka-several-ready",
        work="… four connections with ready-made batches of 1,000; Kafka",
        side="kafka_door",
        ours="produce_ready",
        peer=("kafka_broker", "produce_ready"),
        limit=2,
        count={100: 3_000_000},
    ),
    Row(
        name="kafka-produce-rabbitmq",
        work="confluent-kafka's produce(); RabbitMQ's classic queue, pika",
        side="kafka_door",
        ours="produce",
        peer=("rabbitmq_queue", "produce"),
        goal=1.0,
        count={100: 1_000_000},
        peer_count=10_000,
    ),
    Row(
        name="kafka-consume-rabbitmq",
        work="confluent-kafka's consume(1000), tuned; RabbitMQ's classic queue, pika",
        side="kafka_door",
        ours="consume",
        peer=("rabbitmq_queue", "consume"),
        goal=1.0,
        count={100: 1_000_000},
        peer_count=10_000,
    ),
    Row(
        name="kafka-send-rabbitmq",
        work="confluent-kafka: one record, acknowledged; RabbitMQ's classic queue, pika",
        side="kafka_door",
        ours="send_each",
        peer=("rabbitmq_queue", "send_each"),
        goal=1.0,
        count={100: 5_000},
        peer_count=1_000,
    ),
    Row(
        name="kafka-start",
        work="Kafka's protocol: start to first answer; Kafka",
        side="kafka_door",
        ours="start",
        peer=("kafka_broker", "start"),
        limit=300,
        count={100: 8_000},
    ),
    Row(
        name="kafka-start-testing",
        work="… of logdb.testing.broker()",
        side="kafka_door",
        ours="start_testing",
        limit=300,
        count={100: 8_000},
    ),
    Row(
        name="kafka-restart",
        work="… serving again after kill -9 with 2 M records; Kafka",
        side="kafka_door",
        ours="restart",
        peer=("kafka_broker", "restart"),
        limit=500,
        count={100: 2_000_000},
    ),
    Row(
        name="kafka-resident",
        work="… resident memory after 2 M records in and out; Kafka",
        side="kafka_door",
        ours="resident",
        peer=("kafka_broker", "resident"),
        limit=100,
        count={100: 2_000_000},
    ),
    *(
        Row(
            name=f"cluster-{name}",
            work=f"three brokers, acks=all: {work}; Kafka",
            side="logdb_cluster",
            ours=operation,
            peer=("kafka_cluster", operation),
            goal=goal,
            limit=limit,
            count={100: count},
        )
        for name, operation, work, goal, limit, count in (
            ("produce", "produce", "confluent-kafka's produce()", 1.5, None, 1_000_000),
            ("perf-produce", "perf_produce", "kafka-producer-perf-test", 1.5, None, 1_000_000),
            ("processor", "processor", "processor time of all brokers a record", 2.0, None, 1_000_000),
            ("send", "send_each", "one record, acknowledged; flush.messages=1", 1.0, None, 2_000),
            ("mean", "paced_mean", "latency at 100,000 records a second, mean", 1.0, None, 8_000),
            ("p99", "paced_p99", "… 99 %", 1.0, None, 8_000),
            ("gap", "gap", "without an acknowledgement after kill -9 of the leader", None, 1_500, 8_000),
            ("catch-up", "catch_up", "a follower that was away catches up", None, 200, 4_000_000),
            ("idle", "resident_idle", "memory of a node, idle", None, 128, 8_000),
            ("load", "resident_load", "… after 1 M records", None, 256, 1_000_000),
        )
    ),
    *(
        Row(
            name=f"connect-{name}",
            work=work,
            side="connect",
            ours=operation,
            peer=peer,
            goal=goal,
            limit=limit,
            count={100: count},
        )
        for name, operation, work, peer, goal, limit, count in (
            (
                "source",
                "file_to_topic",
                "Connect: file to topic; Kafka Connect's worker",
                ("connect_java", "file_to_topic"),
                3.0,
                None,
                2_000_000,
            ),
            ("sink", "topic_to_file", "… topic to file; Kafka Connect's worker", ("connect_java", "topic_to_file"), 3.0, None, 2_000_000),
            (
                "resident",
                "resident",
                "… memory of a worker with one connector; Kafka Connect's",
                ("connect_java", "resident"),
                None,
                100,
                200_000,
            ),
            ("parquet", "json_to_parquet", "… JSON to Parquet on S3", None, None, None, 200_000),
            ("upserts", "upserts", "… upserts into PostgreSQL", None, None, None, 100_000),
            (
                "capture",
                "capture",
                "… changed rows of PostgreSQL; Debezium's engine, without a topic",
                ("debezium", "capture"),
                None,
                None,
                1_000_000,
            ),
        )
    ),
)
