"""What a worker does with requests: the operations of Kafka Connect's REST API, and the start and the end of connectors and tasks.

``Herder`` has what both kinds of workers share.  ``Standalone`` runs everything itself; ``runtime.distributed`` shares it with others.

Threading: any thread; ``lock`` makes one change at a time.
"""

import contextlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from logdb import TopicPartition
from logdb_connect.errors import ConfigError, Conflict, NotFound
from logdb_connect.plugins import version_of
from logdb_connect.runtime.states import Config, ConfigStore, MemoryConfigs, MemoryStatuses, Status, StatusStore
from logdb_connect.runtime.tasks import State, Target, TaskId
from logdb_connect.runtime.validation import BadRequest, check, validate
from logdb_connect.runtime.worker import Worker

logger = logging.getLogger(__name__)

_LOCK_S = 0.2
_INITIAL: dict[str, Target] = {"RUNNING": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}


class Herder:
    """The operations on connectors."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.lock = threading.RLock()
        self.configs: ConfigStore
        self.statuses: StatusStore
        worker.used_topic = self._used_topic  # type: ignore[method-assign]  # the hook for it

    # ------------------------------------------------------------ what differs

    def check_leads(self, *, waits: bool = True) -> None:
        """Refuse a change that another worker has to make.

        Args:
            waits: For the end of a rebalance.

        Raises:
            NotLeader: The error names that worker.
        """

    def owner(self, _of: "str | TaskId") -> str | None:
        """The URL of the worker that runs a connector or a task; None: this one."""
        return None

    @property
    def generation(self) -> int:
        return 0

    def health(self) -> tuple[str, str]:
        """Whether this worker works (KIP-1017): ``healthy``, ``starting`` or ``unhealthy``, and why."""
        return "healthy", "Worker has completed startup and is ready to handle requests."

    def rebalances(self) -> tuple[int, bool] | None:
        """How many there were, and whether one goes on; None: this worker is alone."""
        return None

    def close(self) -> None:
        with self.lock:
            self.worker.close()

    # ------------------------------------------------------------ what there is

    def connectors(self) -> list[str]:
        return sorted(self.configs.configs.connectors)

    def config(self, name: str) -> dict[str, str]:
        """The properties of a connector, as they were given: variables of config providers stay.

        Raises:
            NotFound: There is no such connector.
        """
        config = self.configs.configs.connectors.get(name)
        if config is None:
            raise NotFound(f"Connector {name} not found")
        return {"name": name, **config}

    def info(self, name: str) -> dict[str, Any]:
        config = self.config(name)
        tasks = [{"connector": one.connector, "task": one.task} for one in self.configs.configs.task_ids(name)]
        return {"name": name, "config": config, "tasks": tasks, "type": self.worker.kind(config)}

    def tasks(self, name: str) -> list[dict[str, Any]]:
        self.config(name)
        configs = self.configs.configs
        return [
            {"id": {"connector": name, "task": number}, "config": dict(task)} for number, task in enumerate(configs.tasks.get(name, ()))
        ]

    def status(self, name: str) -> dict[str, Any]:
        """States of a connector and its tasks; a connector that was created just now is UNASSIGNED.

        Raises:
            NotFound: There is no such connector.
        """
        config = self.config(name)
        found = self.statuses.get(name) or Status("UNASSIGNED", "")
        tasks = [(one, self.statuses.get(one)) for one in self.configs.configs.task_ids(name)]
        return {
            "name": name,
            "connector": self._shown(found, config),
            "tasks": [{"id": one.task, **self._shown(status, config)} for one, status in tasks if status is not None],
            "type": self.worker.kind(config),
        }

    def task_status(self, task_id: TaskId) -> dict[str, Any]:
        config = self.config(task_id.connector)
        found = self.statuses.get(task_id)
        if found is None or task_id not in self.configs.configs.task_ids(task_id.connector):
            raise NotFound(f"No status found for task {task_id}")
        return {"id": task_id.task, **self._shown(found, config)}

    def _shown(self, status: Status, config: Config) -> dict[str, Any]:
        """A status, with the version of the connector's class if it is found (KIP-891)."""
        shown = {"state": status.state, "worker_id": status.worker_id}
        with contextlib.suppress(ConfigError):
            shown["version"] = version_of(self.worker.connector_class(config))
        return shown if status.trace is None else {**shown, "trace": status.trace}

    def topics(self, name: str) -> list[str]:
        self.config(name)
        return self.statuses.topics(name)

    def reset_topics(self, name: str) -> None:
        self.config(name)
        self.statuses.reset_topics(name)

    # ------------------------------------------------------------ changes

    def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        return validate(self.worker, plugin, config)

    def create(self, name: str, config: Config, initial_state: str | None = None) -> dict[str, Any]:
        """Create a connector.

        Raises:
            BadRequest: A property is missing or wrong; the message has all errors.
            Conflict: There is one of this name.
        """
        target = _INITIAL.get((initial_state or "RUNNING").upper())
        if target is None:
            raise BadRequest(f"initial_state={initial_state}: must be one of RUNNING, PAUSED, STOPPED")
        config = {**config, "name": name}
        self.check_leads()
        check(self.worker, config)
        with self.lock:
            if name in self.configs.configs.connectors:
                raise Conflict(f"Connector {name} already exists")
            self.configs.put_connector(name, config, None if initial_state is None else target)
        return self.info(name)

    def put_config(self, name: str, config: Config) -> tuple[bool, dict[str, Any]]:
        """Create a connector, or change it; whether it was created."""
        config = {**config, "name": name}
        self.check_leads()
        check(self.worker, config)
        with self.lock:
            created = name not in self.configs.configs.connectors
            self.configs.put_connector(name, config, None)
        return created, self.info(name)

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> dict[str, Any]:
        """Change some properties; None removes one (KIP-477)."""
        self.check_leads()
        with self.lock:
            merged = {**self.config(name), **changes}
        return self.put_config(name, {key: value for key, value in merged.items() if value is not None})[1]

    def delete(self, name: str) -> None:
        self.check_leads()
        with self.lock:
            fenced = self._zombies(name, self.config(name))
            self.configs.remove_connector(name)
            self.worker.fence(fenced)

    def set_target(self, name: str, target: Target) -> None:
        """Pause, resume or stop."""
        self.check_leads()
        with self.lock:
            self.config(name)
            if target == "STOPPED":  # a stopped connector has no tasks (KIP-875)
                self.configs.put_target(name, target)
                self._end_tasks(name)
            else:
                self.configs.put_target(name, target)

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        """Restart a connector, its tasks too, or only what has FAILED (KIP-745)."""
        self.check_leads()
        with self.lock:
            self.config(name)
            self.configs.put_restart(name, include_tasks=include_tasks, only_failed=only_failed)
            return self.status(name)

    def restart_task(self, task_id: TaskId) -> None:
        """Restart a task that this worker runs."""
        with self.lock:
            self.config(task_id.connector)
            if task_id not in self.configs.configs.task_ids(task_id.connector):
                raise NotFound(f"Task {task_id} not found")
            self.worker.stop_tasks([task_id])
            self._start_task(task_id)

    def restart_connector(self, name: str) -> None:
        """Restart a connector that this worker runs, without its tasks."""
        with self.lock:
            self.config(name)
            self.worker.stop_connectors([name])
            self._start_connector(name)

    def put_tasks(self, name: str, tasks: Sequence[Config]) -> None:
        """Store new configs of a connector's tasks, unless it was deleted or stopped."""
        self.check_leads(waits=False)
        with self.lock:
            if name in self.configs.configs.connectors and self.configs.configs.target(name) != "STOPPED":
                if list(tasks) != self.configs.configs.tasks.get(name):
                    self._end_tasks(name)
                self.configs.put_tasks(name, tasks)

    def _end_tasks(self, name: str) -> None:
        """Before other tasks take over what these read, these can write no more (KIP-618); called with the lock."""
        fenced = self._zombies(name, self.config(name))
        if fenced or self.configs.configs.tasks.get(name) or self.configs.configs.target(name) == "STOPPED":
            self.configs.put_tasks(name, [])
        self.worker.fence(fenced)

    def _zombies(self, name: str, config: Config) -> list[TaskId]:
        """Tasks of a source that may still write, exactly once."""
        if self.worker.config["exactly.once.source.support"] != "enabled" or self.worker.kind(config) != "source":
            return []
        running = (one for one, status in self.statuses.tasks(name).items() if status.state != "UNASSIGNED")
        return sorted({*self.configs.configs.task_ids(name), *running})

    # ------------------------------------------------------------ offsets

    def offsets(self, name: str) -> dict[str, Any]:
        """The committed offsets of a connector (KIP-875)."""
        config = self.config(name)
        if self.worker.kind(config) == "sink":
            group = self.worker.sink_group(name, self.worker.resolve(config))
            found = sorted(self.worker.client.committed(group).items())
            return {
                "offsets": [
                    {"partition": {"kafka_topic": at.topic, "kafka_partition": at.partition}, "offset": {"kafka_offset": one.offset}}
                    for at, one in found
                    if one.offset >= 0
                ]
            }
        store = self.worker.offsets_of(self.worker.resolve(config))
        store.catch_up()
        return {"offsets": [{"partition": one.partition, "offset": one.offset} for one in store.of_connector(name)]}

    def alter_offsets(self, name: str, offsets: "list[dict[str, Any]] | None") -> str:
        """Set offsets of a stopped connector, or forget them all; what the answer says.

        Raises:
            BadRequest: The connector is not stopped, or an offset has another shape.
        """
        self.check_leads()
        with self.lock:
            config = self.config(name)
            status = self.statuses.get(name)
            if self.configs.configs.target(name) != "STOPPED" or status is None or status.state != "STOPPED" or self._any_task_runs(name):
                raise BadRequest(
                    "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified "
                    f"connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
                )
            resolved = self.worker.resolve(config)
            if self.worker.kind(config) == "sink":
                self._alter_sink(name, resolved, offsets)
            else:
                self._alter_source(name, resolved, offsets)
        return f"The offsets for this connector have been {'reset' if offsets is None else 'altered'} successfully"

    def _any_task_runs(self, name: str) -> bool:
        return any(runner.is_alive for one, runner in self.worker.tasks.items() if one.connector == name)

    def _alter_sink(self, name: str, config: Config, offsets: "list[dict[str, Any]] | None") -> None:
        group, client = self.worker.sink_group(name, config), self.worker.client
        connector = self.worker.connector_class(config)()
        if offsets is None:
            now: dict[TopicPartition, int | None] = dict.fromkeys(client.committed(group))
        else:
            now = dict(map(_sink_offset, offsets))
        connector.alter_offsets(config, now)  # type: ignore[attr-defined]  # of a sink
        client.alter_committed(group, now)

    def _alter_source(self, name: str, config: Config, offsets: "list[dict[str, Any]] | None") -> None:
        store = self.worker.offsets_of(config)
        store.catch_up()
        if offsets is None:
            now: list[tuple[dict[str, Any], dict[str, Any] | None]] = [(one.partition, None) for one in store.of_connector(name)]
        else:
            now = list(map(_source_offset, offsets))
        connector = self.worker.connector_class(config)()
        shown = {json.dumps(partition): offset for partition, offset in now}
        connector.alter_offsets(config, shown)  # type: ignore[attr-defined]  # of a source
        store.write(self.worker.client, name, now)

    # ------------------------------------------------------------ running

    def _start_connector(self, name: str) -> None:
        configs = self.configs.configs
        self.worker.start_connector(
            name, configs.connectors[name], configs.target(name), partial(self._report, name), partial(self._tasks_made, name)
        )

    def _start_task(self, task_id: TaskId) -> None:
        configs, name = self.configs.configs, task_id.connector
        task = configs.tasks[name][task_id.task]
        self.worker.start_task(task_id, configs.connectors[name], task, configs.target(name), partial(self._report, task_id))

    def _tasks_made(self, name: str, tasks: Any) -> None:
        """A connector has made the configs of its tasks."""
        config = self.configs.configs.connectors.get(name)
        if config is None:
            return
        given = self.worker.unresolved(config, tasks)
        if not self.lock.acquire(timeout=_LOCK_S):  # maybe its holder waits for this connector to stop
            raise Conflict("Cannot complete request: the worker is busy")
        try:
            if given == self.configs.configs.tasks.get(name) and not self._is_new(name):
                return
            self.put_tasks(name, given)
        finally:
            self.lock.release()

    def _is_new(self, _name: str) -> bool:
        """Whether the tasks of a connector have to be started again though their configs are the same: its own config has changed."""
        return False

    def _report(self, of: "str | TaskId", state: State, trace: str | None) -> None:
        if state == "UNASSIGNED" and (of if isinstance(of, str) else of.connector) not in self.configs.configs.connectors:
            return  # it was deleted
        shown = None if trace is None else self.worker.redact(trace)
        self.statuses.put(of, Status(state, self.worker.id, shown, self.generation))

    def _used_topic(self, connector: str, topic: str) -> None:
        if self.worker.config["topic.tracking.enable"]:
            self.statuses.add_topic(connector, topic)

    def _restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> None:
        """Restart what this worker runs of a connector."""
        runner = self.worker.connectors.get(name)
        if runner is not None and (not only_failed or runner.state == "FAILED"):
            self._report(name, "RESTARTING", None)
            self.worker.stop_connectors([name])
            self._start_connector(name)
        if include_tasks:
            ids = [one for one, task in self.worker.tasks.items() if one.connector == name and (not only_failed or task.state == "FAILED")]
            for one in ids:
                self._report(one, "RESTARTING", None)
            self.worker.stop_tasks(ids)
            for one in ids:
                self._start_task(one)


class Standalone(Herder):
    """A worker alone: configs and statuses are in its memory."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.configs, self.statuses = MemoryConfigs(self), MemoryStatuses()

    def connector_changed(self, name: str) -> None:
        self.worker.stop_connectors([name])
        self.configs.configs.tasks.pop(name, None)
        self.worker.stop_tasks(self._running(name))
        self._start_connector(name)

    def connector_removed(self, name: str) -> None:
        self.worker.stop_connectors([name])
        self.worker.stop_tasks(self._running(name))
        self.statuses.remove(name)

    def tasks_changed(self, name: str) -> None:
        self.worker.stop_tasks(self._running(name))
        for one in self.configs.configs.task_ids(name):
            self._start_task(one)

    def target_changed(self, name: str) -> None:
        target = self.configs.configs.target(name)
        self.worker.connectors[name].transition(target)
        for one in self._running(name):
            self.worker.tasks[one].transition(target)

    def restart_asked(self, name: str, *, include_tasks: bool, only_failed: bool) -> None:
        self._restart(name, include_tasks=include_tasks, only_failed=only_failed)

    def _running(self, name: str) -> list[TaskId]:
        return [one for one in self.worker.tasks if one.connector == name]


def _sink_offset(given: Mapping[str, Any]) -> tuple[TopicPartition, int | None]:
    try:
        at = TopicPartition(str(given["partition"]["kafka_topic"]), int(given["partition"]["kafka_partition"]))
        return at, None if given.get("offset") is None else int(given["offset"]["kafka_offset"])
    except (KeyError, TypeError, ValueError):
        raise BadRequest(
            "The partition for a sink connector offset must be a map with kafka_topic and kafka_partition, its offset one with kafka_offset"
        ) from None


def _source_offset(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    partition, offset = given.get("partition"), given.get("offset")
    if not isinstance(partition, dict) or not (offset is None or isinstance(offset, dict)):
        raise BadRequest("Each offset must be a map with a partition and an offset; both are maps, and the offset may be null")
    return partition, offset
