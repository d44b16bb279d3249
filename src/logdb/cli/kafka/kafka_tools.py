"""The names of Kafka's tools and the modes of kcat; flags of the tools that the verbs do not take: each is renamed, or left out.

A tool's other flags are those of its verb (``KAFKA_TOOLS``), which have Kafka's names.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

# Called by the name of one of Kafka's tools (with or without .sh), or with it as the first argument,
# the command behaves as that tool does: the same flags, defaults and output.
KAFKA_TOOLS = {
    "kafka-topics": "topics",
    "kafka-console-producer": "produce",
    "kafka-console-consumer": "consume",
    "kafka-get-offsets": "offsets",
    "kafka-consumer-groups": "groups",
    "kafka-transactions": "kafka-transactions",
    "kafka-log-dirs": "log-dirs",
    "kafka-configs": "configs",
    "kafka-acls": "acls",
    "kafka-dump-log": "dump",
    "kafka-delete-records": "delete-records",
    "kafka-server-start": "serve",
    "connect-standalone": "connect-standalone",
    "connect-distributed": "connect-distributed",
    "kafka-storage": "kafka-storage",
    "zookeeper-server-start": "zookeeper-server-start",
}

# kcat's modes, which kcat's users expect as the first argument
MODES = {
    "-C": ["consume", "--follow"],
    "-G": ["consume", "--follow", "--group"],
    "-P": ["produce"],
    "-L": ["topics", "describe"],
    "-Q": ["offsets"],
}


class Flags(NamedTuple):
    """The flags of one tool that its verb does not take.

    ``renamed``: the flag of the verb; with the begin of its value, if that contains ``=``.
    ``needless``: without effect here, and without a value; ``needless_values``: with one; ``needless_options``: with or without.
    ``argument``: the flag of the verb for what the tool takes without a flag.
    """

    renamed: Mapping[str, str] = {}
    needless: AbstractSet[str] = frozenset()
    needless_values: AbstractSet[str] = frozenset()
    needless_options: AbstractSet[str] = frozenset()
    argument: str = ""


_TOOLS = {
    "kafka-topics": Flags(
        needless={"--force"},
        needless_values={"--partition-size-limit-per-response"},
    ),
    "kafka-console-producer": Flags(
        renamed={
            "--broker-list": "--bootstrap-server",
            "--producer.config": "--command-config",
            "--producer-property": "--command-property",
        },
        needless_options={"--compression-codec"},
        needless_values={
            "--batch-size",
            "--max-block-ms",
            "--max-memory-bytes",
            "--max-partition-memory-bytes",
            "--message-send-max-retries",
            "--metadata-expiry-ms",
            "--retry-backoff-ms",
            "--socket-buffer-size",
            "--timeout",
        },
    ),
    "kafka-console-consumer": Flags(
        renamed={
            "--consumer.config": "--command-config",
            "--consumer-property": "--command-property",
            "--key-deserializer": "--property=key.deserializer",
            "--value-deserializer": "--property=value.deserializer",
        },
        needless={"--enable-systest-events", "--skip-message-on-error"},
    ),
    "kafka-consumer-groups": Flags(needless_values={"--timeout"}),
    "kafka-configs": Flags(renamed={"--user": "--entity-user"}),  # of the verb it is who asks
    "kafka-dump-log": Flags(needless_values={"--max-message-size"}),
    "kafka-get-offsets": Flags(renamed={"--broker-list": "--bootstrap-server"}),
    "kafka-log-dirs": Flags(needless_values={"--broker-list"}),  # all are shown
    **dict.fromkeys(("connect-distributed", "connect-standalone"), Flags(renamed={"-daemon": "--daemon"})),
    "kafka-server-start": Flags(renamed={"-daemon": "--daemon"}, argument="--config"),
}


_KAFKAS_OWN = "use Kafka's own tool with --bootstrap-server HOST:PORT of 'logdb serve --kafka'"
NOT_HERE = {
    **dict.fromkeys(
        (
            "kafka-broker-api-versions",
            "kafka-cluster",
            "kafka-consumer-perf-test",
            "kafka-e2e-latency",
            "kafka-features",
            "kafka-groups",
            "kafka-leader-election",
            "kafka-producer-perf-test",
            "kafka-reassign-partitions",
            "kafka-verifiable-consumer",
            "kafka-verifiable-producer",
        ),
        _KAFKAS_OWN,
    ),
    "kafka-metadata-quorum": "'logdb quorum' shows the quorum of a cluster",
    "kafka-server-stop": "send SIGTERM to the server, which then answers the requests that run and stops: kill PID",
}
"""Kafka's tools that logdb has not, with what to do instead."""


def translated(tool: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of the verb for those of a tool."""
    flags, words = _TOOLS.get(tool, Flags()), list(arguments)
    if flags.argument:
        position = next((number for number, word in enumerate(words) if not word.startswith("-")), len(words))
        words[position : position + 1] = [f"{flags.argument}={word}" for word in words[position : position + 1]]
    found, rest = [], deque(words)
    while rest:
        found += _translated(flags, rest.popleft(), rest)
    return found


def _translated(flags: Flags, argument: str, rest: deque[str]) -> list[str]:
    """The words of the verb for one of a tool; a value that belongs to it is taken from ``rest``."""
    name, equals, value = argument.partition("=")
    flag = flags.renamed.get(name)
    if flag is None and argument in flags.needless:
        return []
    takes = name in flags.needless_values or (flag is not None and "=" in flag)
    if not equals and rest and (takes or (name in flags.needless_options and not rest[0].startswith("-"))):
        value = rest.popleft()
    if flag is not None:
        return [f"{flag}={value}" if "=" in flag or equals else flag]
    return [] if name in flags.needless_values | flags.needless_options else [argument]
