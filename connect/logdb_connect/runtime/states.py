"""Configs and statuses as a herder keeps them; here in memory, for a standalone worker.

``runtime.topics`` has both in compacted topics, for workers that share them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from logdb_connect.runtime.tasks import State, Target, TaskId

Config = Mapping[str, str]


class Status(NamedTuple):
    """The state of a connector or a task, and the worker that has it."""

    state: State
    worker_id: str
    trace: str | None = None
    generation: int = 0


class OnChange(Protocol):
    """What a herder does when configs have changed."""

    def connector_changed(self, name: str) -> None: ...

    def connector_removed(self, name: str) -> None: ...

    def tasks_changed(self, name: str) -> None: ...

    def target_changed(self, name: str) -> None: ...

    def restart_asked(self, name: str, *, include_tasks: bool, only_failed: bool) -> None: ...


@dataclass
class Configs:
    """All configs, as of now."""

    connectors: dict[str, Config] = field(default_factory=dict)
    tasks: dict[str, list[Config]] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)

    def target(self, name: str) -> Target:
        return self.targets.get(name, "STARTED")

    def task_ids(self, name: str) -> list[TaskId]:
        return [TaskId(name, number) for number in range(len(self.tasks.get(name, ())))]


class ConfigStore(Protocol):
    """Where configs are kept.  Each change reaches ``OnChange`` of every worker that shares them."""

    configs: Configs

    def put_connector(self, name: str, config: Config, target: Target | None) -> None: ...

    def remove_connector(self, name: str) -> None: ...

    def put_tasks(self, name: str, tasks: Sequence[Config]) -> None: ...

    def put_target(self, name: str, target: Target) -> None: ...

    def put_restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> None: ...


class MemoryConfigs:
    """Configs of a standalone worker."""

    def __init__(self, on_change: OnChange) -> None:
        self.configs, self._on_change = Configs(), on_change

    def put_connector(self, name: str, config: Config, target: Target | None) -> None:
        if target is not None:
            self.configs.targets[name] = target
        self.configs.connectors[name] = dict(config)
        self._on_change.connector_changed(name)

    def remove_connector(self, name: str) -> None:
        self._on_change.connector_removed(name)
        for part in (self.configs.connectors, self.configs.tasks, self.configs.targets):
            part.pop(name, None)

    def put_tasks(self, name: str, tasks: Sequence[Config]) -> None:
        self.configs.tasks[name] = [dict(one) for one in tasks]
        self._on_change.tasks_changed(name)

    def put_target(self, name: str, target: Target) -> None:
        self.configs.targets[name] = target
        self._on_change.target_changed(name)

    def put_restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> None:
        self._on_change.restart_asked(name, include_tasks=include_tasks, only_failed=only_failed)


class StatusStore(Protocol):
    """Where statuses are kept."""

    def put(self, of: "str | TaskId", status: Status) -> None: ...

    def get(self, of: "str | TaskId") -> Status | None: ...

    def tasks(self, connector: str) -> dict[TaskId, Status]: ...

    def remove(self, connector: str) -> None: ...

    def add_topic(self, connector: str, topic: str) -> None: ...

    def topics(self, connector: str) -> list[str]: ...

    def reset_topics(self, connector: str) -> None: ...


class MemoryStatuses:
    """Statuses of a standalone worker."""

    def __init__(self) -> None:
        self._statuses: dict[str | TaskId, Status] = {}
        self._topics: dict[str, set[str]] = {}

    def put(self, of: "str | TaskId", status: Status) -> None:
        self._statuses[of] = status

    def get(self, of: "str | TaskId") -> Status | None:
        return self._statuses.get(of)

    def tasks(self, connector: str) -> dict[TaskId, Status]:
        return {of: status for of, status in list(self._statuses.items()) if isinstance(of, TaskId) and of.connector == connector}

    def remove(self, connector: str) -> None:
        for of in [of for of in self._statuses if of == connector or (isinstance(of, TaskId) and of.connector == connector)]:
            self._statuses.pop(of, None)
        self._topics.pop(connector, None)

    def add_topic(self, connector: str, topic: str) -> None:
        self._topics.setdefault(connector, set()).add(topic)

    def topics(self, connector: str) -> list[str]:
        return sorted(self._topics.get(connector, ()))

    def reset_topics(self, connector: str) -> None:
        self._topics.pop(connector, None)
