"""Properties of ``logdb.runner=spark``: what they are, and which of a sink's have no effect then."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from logdb_connect.config import ConfigDef, ConfigKey, at_least
from logdb_connect.connectors import limits
from logdb_connect.errors import ConfigError, ConnectError

RUNNER_SETTING, CHECKPOINT = "logdb.runner", "spark.sql.streaming.checkpointLocation"
RUNNER = ConfigDef(
    ConfigKey(
        RUNNER_SETTING,
        "STRING",
        "worker",
        "worker: tasks of this worker. spark: a Structured Streaming query, whose properties are spark.*; tasks.max has no effect then.",
        "LOW",
        values=("worker", "spark"),
        group="Spark",
    ),
    ConfigKey("spark.master", "STRING", "local[*]", "Where Spark runs: local[4], spark://host:7077, yarn.", "LOW", group="Spark"),
    ConfigKey(
        CHECKPOINT,
        "STRING",
        None,
        "Directory or URL for checkpoints, which all workers of the group reach; needed with logdb.runner=spark. The query's is below it, "
        "under the connector's name.",
        "LOW",
        group="Spark",
    ),
    ConfigKey(
        "logdb.spark.max.offsets.per.trigger",
        "LONG",
        1_000_000,
        "Most offsets of one micro-batch.",
        "LOW",
        at_least(1),
        group="Spark",
    ),
    ConfigKey("logdb.spark.trigger.interval.ms", "LONG", 0, "Least time between two micro-batches.", "LOW", at_least(0), group="Spark"),
)
NO_EFFECT: Mapping[str, frozenset[str]] = {
    "objects": frozenset(
        {
            "file.delim",
            "filename.offset.zero.pad.width",
            "rotate.file.on.partition.change",
            "rotate.interval.ms",
            "rotate.schedule.interval.ms",
            "s3.compression.level",
            "s3.part.retries",
            "s3.part.size",
            "s3.retry.backoff.ms",
            "storage.class",
            "schema.compatibility",
        }
    ),
    "sql": frozenset(),
}
"""Properties of a sink that have no effect on Spark."""
_SHARED = frozenset({"config.action.reload", "tasks.max", "tasks.max.enforce"})
_OVERRIDES = ("consumer.override.", "producer.override.", "admin.override.")


def on_spark(config: Mapping[str, Any]) -> bool:
    """Whether a connector runs on Spark."""
    return str(config.get(RUNNER_SETTING, "")).strip() == "spark"


def refuse_offsets(config: Mapping[str, Any]) -> None:
    """Refuse to change the offsets of a connector that runs on Spark.

    Raises:
        ConnectError: It does.
    """
    if on_spark(config):
        raise ConnectError(
            f"The offsets of a connector with {RUNNER_SETTING}=spark are in its checkpoint, below {config.get(CHECKPOINT)}. To begin anew, "
            "delete the connector, its checkpoint and what it has written, then create it again"
        )


def without_effect(config: Iterable[str], kind: str) -> list[str]:
    """The given properties that have no effect on Spark, in order."""
    none = NO_EFFECT[kind] | _SHARED
    return sorted(name for name in config if name in none or name.startswith(_OVERRIDES))


def faults(config: Mapping[str, Any], kind: str) -> dict[str, str]:
    """What forbids to run a sink on Spark."""
    found: dict[str, str] = {}
    if not on_spark(config):
        return found
    place = config.get(CHECKPOINT)
    if not place:
        found[CHECKPOINT] = f"{RUNNER_SETTING}=spark needs {CHECKPOINT}: a directory or URL that all workers of the group reach"
    if limits.are_set():
        found[RUNNER_SETTING] = (
            f"Invalid value spark for configuration {RUNNER_SETTING}: this worker limits directories, hosts or commands, and properties of "
            "Spark can run any code. Use a worker without connector.directories.allowed and connector.hosts.allowed"
        )
    if kind == "objects":
        found |= _of_objects(config)
    return found


def shared_faults(config: Mapping[str, str], kind: str | None, name: str) -> dict[str, str]:
    """What forbids to run a connector on Spark, of properties that every connector has."""
    found: dict[str, str] = {}
    if not on_spark(config):
        return found
    if kind is None:
        found[RUNNER_SETTING] = f"Invalid value spark for configuration {RUNNER_SETTING}: {name} runs in the worker alone"
    if queue := config.get("errors.deadletterqueue.topic.name", "").strip():
        text = f"{RUNNER_SETTING}=spark writes no dead letters: leave {queue} out, and with it errors.tolerance=all skips bad records"
        found["errors.deadletterqueue.topic.name"] = text
    return found


def _of_objects(config: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    if config["format.class"].rpartition(".")[2] == "ByteArrayFormat":
        found["format.class"] = f"{RUNNER_SETTING}=spark writes JsonFormat, ParquetFormat and AvroFormat: Spark has no writer of raw bytes"
    try:
        base_of(config)
    except ConfigError as error:
        found[error.name] = str(error)
    return found


def base_of(config: Mapping[str, Any]) -> str:
    """The URL that Hadoop's file systems know the store by.

    Raises:
        ConfigError: They know none.
    """
    url = config["store.url"] or ""
    scheme, _, rest = url.partition("://")
    if not url or scheme in {"http", "https"}:
        return f"s3a://{config['s3.bucket.name']}"
    if scheme == "s3":
        return f"s3a://{rest}"
    if scheme in {"file", "gs", "hdfs", "webhdfs", "swebhdfs"}:
        return str(url).rstrip("/")
    raise ConfigError(
        "store.url", f"Invalid value {url} for configuration store.url: {RUNNER_SETTING}=spark writes to S3, file, gs, hdfs and webhdfs"
    )


def hadoop(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings of S3A for the properties of S3."""
    if not base_of(config).startswith("s3a:"):
        return {}
    conf = {
        "fs.s3a.path.style.access": str(config["s3.path.style.access.enabled"]).lower(),
        "fs.s3a.endpoint.region": config["s3.region"],
    }
    if config["store.url"] and config["store.url"].startswith("http"):
        conf["fs.s3a.endpoint"] = config["store.url"]
    if config["aws.access.key.id"]:
        secret = config["aws.secret.access.key"]
        conf |= {"fs.s3a.access.key": config["aws.access.key.id"], "fs.s3a.secret.key": getattr(secret, "value", secret)}
    return {f"spark.hadoop.{name}": value for name, value in conf.items()}


def checkpoint_of(name: str, config: Mapping[str, Any]) -> str:
    """Where the checkpoint of a connector is."""
    place = str(config[CHECKPOINT]).rstrip("/")
    safe = re.sub(r"[^\w.-]", lambda found: f"%{ord(found[0]):x}", name)
    return f"{place if '://' in place else os.path.abspath(place)}/{safe}"
