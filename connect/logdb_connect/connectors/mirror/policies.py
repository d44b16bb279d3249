"""What topics of a mirror are called (``ReplicationPolicy``), and which are mirrored."""

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from logdb_connect.errors import ConfigError

HEARTBEATS = "heartbeats"


class Policy(Protocol):
    """Names of topics at the target."""

    def format_remote_topic(self, alias: str, topic: str) -> str:
        """The name that a topic of the cluster ``alias`` has at the target."""

    def topic_sources(self, topic: str) -> Sequence[str]:
        """The clusters that a topic has come through, as its name tells."""


class DefaultPolicy:
    """``orders`` of the cluster ``a`` is ``a.orders``."""

    def __init__(self, separator: str) -> None:
        self._separator = separator

    def format_remote_topic(self, alias: str, topic: str) -> str:
        return f"{alias}{self._separator}{topic}"

    def topic_sources(self, topic: str) -> Sequence[str]:
        return topic.split(self._separator)[:-1]


class IdentityPolicy(DefaultPolicy):
    """Topics keep their names, except heartbeats."""

    def format_remote_topic(self, alias: str, topic: str) -> str:
        return super().format_remote_topic(alias, topic) if topic == HEARTBEATS else topic

    def topic_sources(self, topic: str) -> Sequence[str]:
        return super().topic_sources(topic) if topic.endswith(f"{self._separator}{HEARTBEATS}") else ()


_OWN: dict[str, Callable[[str], Policy]] = {"DefaultReplicationPolicy": DefaultPolicy, "IdentityReplicationPolicy": IdentityPolicy}
SETTING = "replication.policy.class"


def policy_of(name: str, separator: str) -> Policy:
    """The policy of a class name: Kafka's two, or ``module:Class``, which is called with the separator.

    Raises:
        ConfigError: There is no such class.
    """
    module, colon, attribute = name.partition(":")
    if made := _OWN.get(name.rpartition(".")[2]):
        return made(separator)
    if not colon:
        raise ConfigError(SETTING, f"Invalid value {name} for configuration {SETTING}: must be one of {', '.join(_OWN)}, or module:Class")
    try:
        other: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(SETTING, f"Invalid value {name} for configuration {SETTING}: {error}") from error
    policy: Policy = other(separator)
    return policy


def offset_syncs_topic(alias: str, separator: str) -> str:
    """Where the pairs of offsets of a mirror are."""
    return f"mm2-offset-syncs{separator}{alias}{separator}internal"


def checkpoints_topic(alias: str, separator: str) -> str:
    """Where translated offsets of groups are."""
    return f"{alias}{separator}checkpoints{separator}internal"


def any_pattern(patterns: Sequence[str], setting: str) -> "re.Pattern[str]":
    """A pattern that matches what one of ``patterns`` does; none: nothing.

    Raises:
        ConfigError: One is no regular expression.
    """
    for each in patterns:
        try:
            re.compile(each)
        except re.error as error:
            raise ConfigError(setting, f"Invalid value {each} for configuration {setting}: {error}") from None
    return re.compile("|".join(f"(?:{each})" for each in patterns if each) or r"(?!)")
