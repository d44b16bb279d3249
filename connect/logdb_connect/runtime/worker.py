"""What runs in one process: connectors and tasks, from their configs.

Threading: any thread, one call at a time (the herder's lock).
"""

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from logdb_connect.client import Client, Consumer, any_of, below, is_directory, unknown_overrides
from logdb_connect.config import ConfigDef
from logdb_connect.errors import ConfigError
from logdb_connect.logdb_client import LogdbClient
from logdb_connect.plugin import Connector, Properties
from logdb_connect.plugins import Plugins, kind_of
from logdb_connect.providers import Providers
from logdb_connect.runtime import settings
from logdb_connect.runtime.chain import Chains
from logdb_connect.runtime.connectors import ConnectorRunner, OnTasks
from logdb_connect.runtime.isolation import NEEDS_A_SERVER, IsolatedRunner, IsolationSettings
from logdb_connect.runtime.offsets import OffsetStore
from logdb_connect.runtime.sink import SinkRunner, SinkSettings, instance_id
from logdb_connect.runtime.source import Boundary, SourceRunner, SourceSettings
from logdb_connect.runtime.spark import SparkRunner, SparkSettings
from logdb_connect.runtime.tasks import Report, Target, TaskId, TaskRunner
from logdb_connect.runtime.validation import unknown_properties
from logdb_connect.spark.settings import on_spark, without_effect

logger = logging.getLogger(__name__)


class Worker:
    """Connectors and tasks of this process.

    Attributes:
        id: ``host:port`` of its REST API.
        client: Its database.
        config: Its settings, parsed.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        config: Mapping[str, Any],
        *,
        client: Client,
        plugins: Plugins,
        providers: Providers,
        offsets: Callable[[str | None], OffsetStore],
        group_id: str,
        identity: str | None,
    ) -> None:
        """Nothing runs yet.

        Args:
            providers: Put values in place of variables.
            offsets: The store of a topic; None: the worker's.
            identity: Of a standalone worker; None: this is a distributed one.
        """
        self.id = ""
        self.client, self.plugins, self.config = client, plugins, config
        self._providers = providers
        self.properties, self._make_offsets, self._group_id, self._identity = properties, offsets, group_id, identity
        self.connectors: dict[str, ConnectorRunner] = {}
        self.tasks: dict[TaskId, TaskRunner] = {}

    # ------------------------------------------------------------ what configs mean

    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """Properties with values in place of variables.

        Raises:
            ConfigError: A variable has no value.
        """
        return self._providers.resolve(config)

    def redact(self, text: str) -> str:
        """A text without the values of variables."""
        return self._providers.redact(text)

    def unresolved(self, config: Mapping[str, str], tasks: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
        """Configs of tasks with variables again, in place of the values that the connector has handed on."""
        resolved = self.resolve(config)
        hidden = {name: text for name, text in config.items() if resolved.get(name) != text}
        return [
            {name: hidden[name] if name in hidden and text == resolved[name] else str(text) for name, text in task.items()}
            for task in tasks
        ]

    def connector_class(self, config: Mapping[str, str]) -> type[Connector]:
        """The class of a connector.

        Raises:
            ConfigError: No such class.
        """
        name = config.get("connector.class", "")
        if not name:
            raise ConfigError("connector.class", 'Missing required configuration "connector.class" which has no default value.')
        return self.plugins.connector(name)

    def kind(self, config: Mapping[str, str]) -> str:
        """``source``, ``sink``, or ``unknown`` where the class cannot be found."""
        try:
            return str(kind_of(self.connector_class(config)))
        except ConfigError:
            return "unknown"

    def overrides(self, config: Mapping[str, str], what: str) -> dict[str, str]:
        """Properties of a producer or consumer: the worker's, then the connector's."""
        found = {**below(f"{what}.", self.properties), **below(f"{what}.override.", config)}
        return {key: value for key, value in found.items() if not key.startswith("override.")}

    def sink_group(self, name: str, config: Mapping[str, str]) -> str:
        """The group that a sink's tasks read as."""
        return self.overrides(config, "consumer").get("group.id") or f"connect-{name}"

    def offsets_of(self, config: Mapping[str, str]) -> OffsetStore:
        """Where a source's offsets are."""
        return self._make_offsets(config.get("offsets.storage.topic") or None)

    # ------------------------------------------------------------ connectors

    def start_connector(self, name: str, config: Mapping[str, str], target: Target, report: Report, on_tasks: OnTasks) -> None:
        """Start a connector that does not run."""
        assert name not in self.connectors

        def make() -> Connector:
            return self.connector_class(config)()

        try:
            properties = self.resolve(config)
            max_tasks = settings.CONNECTOR["tasks.max"].parse(properties.get("tasks.max", "1"))
            for unknown in unknown_properties(self, config):
                logger.warning("connector %s: %s is unknown and has no effect", name, unknown)
            for useless in self._useless(config):
                logger.warning("connector %s: %s has no effect with logdb.runner=spark", name, useless)
        except Exception as error:  # noqa: BLE001 -- a provider of someone else; it is raised again in the connector's thread
            make, properties, max_tasks = partial(_raise, error), dict(config), 1
        self.connectors[name] = runner = ConnectorRunner(
            name, make=make, properties=properties, max_tasks=max_tasks, target=target, report=report, on_tasks=on_tasks
        )
        runner.start()

    def _useless(self, config: Mapping[str, str]) -> list[str]:
        """Properties that have no effect since the connector runs on Spark."""
        kind = getattr(self.connector_class(config), "spark", None)
        return without_effect(config, kind) if kind is not None and on_spark(config) else []

    def stop_connectors(self, names: Iterable[str]) -> None:
        """Stop connectors, and wait for them."""
        found = [(name, runner) for name in list(names) if (runner := self.connectors.pop(name, None)) is not None]
        for _, runner in found:
            runner.request_stop()
        self._join([runner for _, runner in found])

    # ------------------------------------------------------------ tasks

    def start_task(self, task_id: TaskId, config: Mapping[str, str], properties: Properties, target: Target, report: Report) -> None:
        """Start a task that does not run."""
        assert task_id not in self.tasks
        try:
            runner = self._make_task(task_id, self.resolve(config), self.resolve(properties), target, report)
        except Exception as error:  # noqa: BLE001 -- a wrong property, a plugin that is away: this task is FAILED, the others run
            runner = FailedRunner(task_id, target, report, error)
        self.tasks[task_id] = runner
        runner.start()

    def stop_tasks(self, ids: Iterable[TaskId]) -> None:
        """Stop tasks, and wait for them; those that do not end in time are abandoned."""
        found = [runner for one in list(ids) if (runner := self.tasks.pop(one, None)) is not None]
        for runner in found:
            runner.request_stop()
        self._join(found)

    def _join(self, runners: "list[ConnectorRunner] | list[TaskRunner]") -> None:
        end = time.monotonic() + self.config["task.shutdown.graceful.timeout.ms"] / 1000
        for runner in runners:
            if not runner.join(max(0.0, end - time.monotonic())):
                runner.abandon()

    def close(self) -> None:
        """Stop everything."""
        self.stop_connectors(self.connectors)
        self.stop_tasks(self.tasks)

    def _make_task(self, task_id: TaskId, config: Mapping[str, str], properties: Properties, target: Target, report: Report) -> TaskRunner:
        made = self.connector_class(config)
        config = {**getattr(made, "defaults", {}), **config}
        properties = {"task.class": f"{made.task_class.__module__}:{made.task_class.__qualname__}", **properties}
        if kind_of(made) == "sink" and on_spark(config):
            return self._make_spark(task_id, config, properties, target, report, made)
        if self.isolation(config) == "process":
            return self._make_isolated(task_id, config, properties, target, report, made)
        chains = Chains(self, task_id, config)
        if kind_of(made) == "source":
            return self._make_source(task_id, config, properties, target, report, made, chains)
        overrides = self.overrides(config, "consumer")
        _warn(task_id, "consumer.override.", unknown_overrides(self.client.consumer_properties, overrides))
        return SinkRunner(
            task_id,
            target,
            report,
            make=made.task_class,
            properties=properties,
            chain=chains.sink,
            client=self.client,
            settings=SinkSettings(
                group_id=self.sink_group(task_id.connector, config),
                subscribe=subscription(config),
                consumer=overrides,
                flush_interval_ms=self.config["offset.flush.interval.ms"],
                used_topic=partial(self.used_topic, task_id.connector),
            ),
        )

    def isolation(self, config: Mapping[str, str]) -> str:
        """Where the tasks of a connector run: ``thread`` or ``process``."""
        return str(settings.CONNECTOR["task.isolation"].parse(config.get("task.isolation")) or self.config["task.isolation"])

    def _make_isolated(
        self, task_id: TaskId, config: Mapping[str, str], properties: Properties, target: Target, report: Report, made: Any
    ) -> TaskRunner:
        if is_directory(self.properties):
            raise ConfigError("task.isolation", NEEDS_A_SERVER)
        is_source = kind_of(made) == "source"
        return IsolatedRunner(
            task_id,
            target,
            report,
            properties=properties,
            settings=IsolationSettings(
                worker=self.properties,
                group_id=self._group_id,
                identity=self._identity,
                config=config,
                used_topic=partial(self.used_topic, task_id.connector),
                owned_since=self.member_since,
                runs=partial(self.offsets_of, config)
                if is_source and self._identity is not None
                else lambda: None,  # for the copy in its file
                free=partial(self._free, task_id, config, is_source),
            ),
        )

    def _free(self, task_id: TaskId, config: Mapping[str, str], is_source: bool, is_stopping: bool) -> None:
        """Free what a task in a process held when the process was killed.

        A task that was to stop may have a successor by now.  A successor that loses its transaction or its place in a group of logdb
        begins another one; one that loses its place in a group of Kafka would be fenced, so there the place stays until its session ends.
        """
        if is_source:
            self.fence([task_id] if self._exactly_once else [])
        elif not is_stopping or isinstance(self.client, LogdbClient):
            group_id = self.sink_group(task_id.connector, config)
            self.client.remove_member(group_id, instance_id(group_id, task_id))

    @property
    def _exactly_once(self) -> bool:
        return bool(self.config["exactly.once.source.support"] == "enabled")

    def _make_spark(
        self, task_id: TaskId, config: Mapping[str, str], properties: Properties, target: Target, report: Report, made: Any
    ) -> TaskRunner:
        if not isinstance(self.client, LogdbClient):
            raise ConfigError(
                "logdb.runner",
                "logdb.runner=spark: Spark reads logdb, and this worker's servers speak Kafka's protocol; set logdb.runner=worker",
            )
        topics = settings.SINK["topics"].parse(config.get("topics", ""))
        pattern = any_of(topics).pattern if topics else config.get("topics.regex", "")
        return SparkRunner(
            task_id,
            target,
            report,
            properties=properties,
            client=self.client,
            settings=SparkSettings(
                kind=made.spark,
                pattern=f"^(?:{pattern})$",
                group_id=self.sink_group(task_id.connector, config),
                worker=self.properties,
                config=made.config_def.parse(config),
                used_topic=partial(self.used_topic, task_id.connector),
            ),
        )

    def _make_source(
        self, task_id: TaskId, config: Mapping[str, str], properties: Properties, target: Target, report: Report, made: Any, chains: Chains
    ) -> TaskRunner:
        overrides = self.overrides(config, "producer")
        _warn(task_id, "producer.override.", unknown_overrides(self.client.producer_properties, overrides))
        return SourceRunner(
            task_id,
            target,
            report,
            make=made.task_class,
            properties=properties,
            chain=chains.source,
            client=self.client,
            offsets=lambda: self.offsets_of(config),
            settings=SourceSettings(
                exactly_once=self._exactly_once,
                transactional_id=self._transactional_id(task_id),
                producer=overrides,
                create_topic=partial(self.create_topic, config),
                used_topic=partial(self.used_topic, task_id.connector),
                owned_since=self.member_since,
                boundary=self._boundary(config),
            ),
        )

    def _boundary(self, config: Mapping[str, str]) -> Boundary:
        names = ("transaction.boundary", "transaction.boundary.interval.ms")
        given = ConfigDef(*(settings.SOURCE[name] for name in names)).parse(config)
        if given[names[0]] == "connector" and self._exactly_once:
            return Boundary(by_connector=True)
        if given[names[0]] == "interval":
            return Boundary((given[names[1]] or self.config["offset.flush.interval.ms"]) / 1000, small=True)
        return Boundary(0.0) if names[0] in config else Boundary()

    def _transactional_id(self, task_id: TaskId) -> str:
        return f"connect-cluster-{self._group_id}-{task_id.connector}-{task_id.task}"

    def fence(self, ids: Iterable[TaskId]) -> None:
        """End the transactions of source tasks, wherever they run; a task that is still wanted begins another one."""
        for one in ids:
            with contextlib.closing(self.client.transactional_producer({}, self._transactional_id(one))) as producer:
                producer.init_transactions()

    def member_since(self, since: float) -> bool:  # noqa: ARG002 -- the hook of a distributed worker
        """Whether this worker was a member of its group then, or later; a standalone worker always is."""
        return True

    def used_topic(self, connector: str, topic: str) -> None:
        """A task reads or writes a topic; the herder puts a function of its own here."""

    def create_topic(self, config: Mapping[str, str], topic: str) -> None:
        """Create the topic of a source if it is missing, with ``topic.creation.*`` (KIP-158)."""
        if not self.config["topic.creation.enable"] or self.client.has_topic(topic):
            return
        rules = topic_rules(config, topic)
        partitions, wanted = int(rules.pop("partitions", "-1")), int(rules.pop("replication.factor", "-1"))
        replication = self.client.possible_replication(wanted)
        self.client.create_topic(topic, partitions=partitions, replication=replication, **rules)


class FailedRunner(TaskRunner):
    """A task that could not be made."""

    def __init__(self, task_id: TaskId, target: Target, report: Report, error: Exception) -> None:
        super().__init__(task_id, target, report)
        self._error = error

    def _run(self) -> None:
        raise self._error

    def _close(self) -> None:
        """Nothing is open."""

    def _cut_off(self) -> None:
        """Nothing is open."""


def subscription(config: Mapping[str, str]) -> Callable[..., None]:
    """Subscribes a consumer to the topics of a sink, also to those that do not exist yet."""
    topics = settings.SINK["topics"].parse(config.get("topics", ""))
    pattern = any_of(topics) if topics else re.compile(config.get("topics.regex", ""))

    def subscribe(consumer: Consumer, assigned: Any, revoked: Any, lost: Any) -> None:
        consumer.subscribe(pattern=pattern, on_assigned=assigned, on_revoked=revoked, on_lost=lost)

    return subscribe


def topic_rules(config: Mapping[str, str], topic: str) -> dict[str, str]:
    """Partitions, replicas and configs of a topic that a source creates: of the first group that includes it, else the default's."""
    groups = ConfigDef(settings.SOURCE["topic.creation.groups"]).parse(config)["topic.creation.groups"]
    default = below("topic.creation.default.", config)
    for group in groups:
        rules = below(f"topic.creation.{group}.", config)
        if _any_match(rules.pop("include", ""), topic) and not _any_match(rules.pop("exclude", ""), topic):
            return {**{key: default[key] for key in ("partitions", "replication.factor") if key in default}, **rules}
    return {key: value for key, value in default.items() if key not in ("include", "exclude")}


def _any_match(patterns: str, topic: str) -> bool:
    return any(re.fullmatch(each.strip(), topic) for each in patterns.split(",") if each.strip())


def _warn(task_id: TaskId, prefix: str, names: list[str]) -> None:
    for name in names:
        logger.warning("task %s: %s%s has no effect here", task_id, prefix, name)


def _raise(error: Exception) -> Any:
    raise error
