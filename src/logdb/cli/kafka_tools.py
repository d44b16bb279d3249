"""Flags of Kafka's tools that the verbs do not take: each is renamed, or left out.

A tool's other flags are those of its verb (``cli.KAFKA_TOOLS``), which have Kafka's names.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Flags(NamedTuple):
    """The flags of one tool that its verb does not take.

    ``renamed``: the flag of the verb.  ``needless``: without effect here, and without a value; ``needless_values``: with one.
    ``argument``: the flag of the verb for what the tool takes without a flag.
    """

    renamed: Mapping[str, str] = {}
    needless: frozenset[str] = frozenset()
    needless_values: frozenset[str] = frozenset()
    argument: str = ""


_TOOLS = {
    "kafka-console-producer": Flags(
        renamed={
            "--broker-list": "--bootstrap-server",
            "--producer.config": "--command-config",
            "--producer-property": "--command-property",
        },
        needless_values=frozenset(
            (
                "--batch-size",
                "--max-block-ms",
                "--max-memory-bytes",
                "--max-partition-memory-bytes",
                "--message-send-max-retries",
                "--metadata-expiry-ms",
                "--retry-backoff-ms",
                "--socket-buffer-size",
                "--timeout",
            )
        ),
    ),
    "kafka-console-consumer": Flags(
        renamed={"--consumer.config": "--command-config", "--consumer-property": "--command-property"},
        needless=frozenset(("--enable-systest-events", "--skip-message-on-error")),
    ),
    "kafka-consumer-groups": Flags(needless_values=frozenset(("--timeout",))),
    "kafka-get-offsets": Flags(renamed={"--broker-list": "--bootstrap-server"}),
    "kafka-log-dirs": Flags(needless_values=frozenset(("--broker-list",))),  # numbers of brokers, of which there is one
    "kafka-server-start": Flags(renamed={"-daemon": "--daemon"}, argument="--config"),
}


def translated(tool: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of the verb for those of a tool."""
    flags, words = _TOOLS.get(tool, Flags()), list(arguments)
    if flags.argument:
        position = next((number for number, word in enumerate(words) if not word.startswith("-")), len(words))
        words[position : position + 1] = [f"{flags.argument}={word}" for word in words[position : position + 1]]
    rest = iter(words)
    return [word for argument in rest for word in _translated(flags, argument, rest)]


def _translated(flags: Flags, argument: str, rest: Iterator[str]) -> list[str]:
    name, equals, value = argument.partition("=")
    if name in flags.renamed:
        return [flags.renamed[name] + equals + value]
    if name in flags.needless_values:
        if not equals:
            next(rest, None)
        return []
    return [] if argument in flags.needless else [argument]
