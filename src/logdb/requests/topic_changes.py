"""Requests that create, alter and delete topics, and that check whether they may; ``Session`` says what each does."""

from collections.abc import Mapping
from typing import TypeAlias

from logdb.model import BY_DEFAULT, ConfigValue, ListChange, TopicInfo
from logdb.requests.request import Need, Request, cluster, named, value

Config: TypeAlias = Mapping[str, ConfigValue | None]
Assignments: TypeAlias = tuple[tuple[int, ...], ...]
"""The nodes of each new partition, the preferred leader first."""


@value
class CreateTopic(Request[TopicInfo]):
    needs = (named("Create", "Topic", "name"),)
    name: str
    partitions: int = BY_DEFAULT
    config: Config | None = None
    if_not_exists: bool = False
    replication_factor: int | None = None
    assignments: Assignments | None = None

    @property
    def is_repeatable(self) -> bool:
        return self.if_not_exists


@value
class CheckNewTopic(Request[TopicInfo]):
    """What ``CreateTopic`` would make, or raise, without doing it."""

    local = True
    needs = CreateTopic.needs
    name: str
    partitions: int = BY_DEFAULT
    config: Config | None = None
    replication_factor: int | None = None
    assignments: Assignments | None = None


@value
class AlterTopic(Request[TopicInfo]):
    needs = (
        Need("Alter", "Topic", lambda request: () if request.partitions is None else (request.name,)),
        Need("AlterConfigs", "Topic", lambda request: (request.name,) if request.config or request.partitions is None else ()),
    )
    name: str
    config: Config | None = None
    partitions: int | None = None
    assignments: Assignments | None = None

    @property
    def is_repeatable(self) -> bool:
        return self.assignments is None


@value
class CheckPartitions(Request[None]):
    """Raise what ``AlterTopic`` would for these partitions, without adding them."""

    local = True
    needs = (named("Alter", "Topic", "name"),)
    name: str
    partitions: int
    assignments: Assignments | None = None


@value
class CheckTopicConfigs(Request[None]):
    """Raise what ``AlterTopic`` would, without doing it."""

    local = True
    needs = (named("AlterConfigs", "Topic", "name"),)
    name: str
    config: Config


@value
class AlterConfigs(Request[None]):
    """Change configs by what they are at that moment: lists by ``ListChange``, or all at once; ``name`` None: those of the node."""

    local = True
    needs = (named("AlterConfigs", "Topic", "name"), cluster("AlterConfigs", unless="name"))
    name: str | None
    config: Mapping[str, ConfigValue | ListChange | None]
    replace: bool = False
    validate_only: bool = False


@value
class DeleteTopic(Request[None]):
    needs = (named("Delete", "Topic", "name"),)
    name: str
