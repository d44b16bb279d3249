"""Configs and statuses in compacted topics, for workers that share them: records as Kafka Connect writes them.

Config topic (``KafkaConfigBackingStore``), one partition: ``connector-NAME``, ``task-NAME-N``, ``commit-NAME``, ``target-state-NAME``,
``restart-connector-NAME``, ``session-key``.  Only the leader writes, in transactions of the id ``connect-cluster-GROUP``: a former
leader is fenced.  Task configs count from the ``commit`` on that follows them.

Status topic (``KafkaStatusBackingStore``): ``status-connector-NAME``, ``status-task-NAME-N``, ``status-topic-TOPIC:connector-NAME``.
"""

import base64
import logging
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logdb import AnyRecord, LogdbError
from logdb.errors import ProducerFenced
from logdb_connect.client import Client, Producer, TransactionalProducer, now_ms
from logdb_connect.errors import Conflict, ConnectError
from logdb_connect.runtime.compacted import CompactedTopic, decoded, encoded
from logdb_connect.runtime.states import Config, Configs, OnChange, Status
from logdb_connect.runtime.tasks import Target, TaskId

logger = logging.getLogger(__name__)

_TASK = re.compile(r"task-(.*)-(\d+)", re.DOTALL)
_STATUS_TASK = re.compile(r"status-task-(.*)-(\d+)", re.DOTALL)
_STATUS_TOPIC = re.compile(r"status-topic-([^:]*):connector-(.*)", re.DOTALL)
_TARGETS: tuple[Target, ...] = ("STARTED", "PAUSED", "STOPPED")
STALE = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"


class TopicConfigs:
    """All configs; ``catch_up`` reads them, and tells ``OnChange`` what has changed.

    Threading: the herder's lock.
    """

    def __init__(self, client: Client, topic: str, *, group_id: str, on_change: OnChange, replication: int) -> None:
        self._client, self._on_change = client, on_change
        self._transactional_id = f"connect-cluster-{group_id}"
        self.configs = Configs()
        self.session_key: bytes | None = None
        self._deferred: dict[str, dict[int, Config]] = {}
        self._acted = 0
        self._began = False  # restarts and changes of before are not acted on
        self._changes: list[Callable[[], None]] = []
        self._producer: TransactionalProducer | None = None
        self.fenced = False  # another worker leads now
        self.topic = CompactedTopic(client, topic, self._apply, partitions=1, replication=replication)

    @property
    def position(self) -> int:
        """Up to where the topic was read."""
        return self.topic.position

    def catch_up(self, *, waits: bool = False) -> None:
        """Read what is new, then act on it.

        Args:
            waits: For a transaction that is open: only of the leader, for its own.  One that a leader left open when it died is
                ended by the next one, which must come so far.
        """
        self.topic.catch_up(waits=waits)
        changes, self._changes = self._changes, []
        if self._began:
            for change in changes:
                try:
                    change()
                except Exception:  # the other changes count all the same
                    logger.exception("config topic %s: a change was not acted on", self.topic.name)
        self._began = True
        self._acted = self.position

    def is_current(self) -> bool:
        """Whether everything that is written now was acted on.  Threading: any thread."""
        (part,) = self._client.topic_state(self.topic.name).partitions
        return part.end_offset <= self._acted

    # ------------------------------------------------------------ the leader writes

    def lead(self) -> None:
        """Fence the former leader."""
        self.fenced = False
        if self._producer is None:
            self._producer = self._client.transactional_producer({}, self._transactional_id)
            self._producer.init_transactions()
            self.catch_up(waits=True)
        if self.session_key is None:
            key = base64.b64encode(secrets.token_bytes(32)).decode()
            self._write({"session-key": {"key": key, "algorithm": "HmacSHA256", "creation-timestamp": now_ms()}})

    def resign(self) -> None:
        """Write no more."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(0)
            except LogdbError as error:
                logger.info("config topic: %s", error)

    def put_connector(self, name: str, config: Config, target: Target | None) -> None:
        records: dict[str, Any] = {} if target is None else {f"target-state-{name}": _target_document(target)}
        self._write({**records, f"connector-{name}": {"properties": dict(config)}})

    def remove_connector(self, name: str) -> None:
        self._write({f"connector-{name}": None, f"target-state-{name}": None})

    def put_tasks(self, name: str, tasks: Sequence[Config]) -> None:
        records: dict[str, Any] = {f"task-{name}-{number}": {"properties": dict(task)} for number, task in enumerate(tasks)}
        self._write({**records, f"commit-{name}": {"tasks": len(tasks)}})

    def put_target(self, name: str, target: Target) -> None:
        self._write({f"target-state-{name}": _target_document(target)})

    def put_restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> None:
        self._write({f"restart-connector-{name}": {"include-tasks": include_tasks, "only-failed": only_failed}})

    def _write(self, records: Mapping[str, Any]) -> None:
        if self._producer is None:
            raise Conflict(STALE)
        written = [(key.encode(), None if value is None else encoded(value)) for key, value in records.items()]
        try:
            self._producer.begin_transaction()
            for name, text in written:
                self._producer.send(self.topic.name, text, name, partition=0)
            self._producer.commit_transaction()
        except ProducerFenced as error:
            self.resign()
            self.fenced = True
            raise Conflict(STALE) from error
        except LogdbError as error:
            self.resign()  # the next leader, maybe this worker, ends the transaction
            raise ConnectError(f"the config topic {self.topic.name} was not written: {error}") from error
        self.catch_up(waits=True)

    # ------------------------------------------------------------ what records say

    def _apply(self, record: AnyRecord) -> None:
        key, value = (record.key or b"").decode(errors="replace"), decoded(record.value)
        value = value if isinstance(value, dict) else None
        kind, _, name = key.partition("-")
        if found := _TASK.fullmatch(key):
            self._deferred.setdefault(found[1], {})[int(found[2])] = _properties(value) or {}
        elif kind == "connector":
            self._apply_connector(name, _properties(value))
        elif kind == "commit" and value is not None:
            self._apply_commit(name, int(value.get("tasks", 0)))
        elif key.startswith("target-state-"):
            self._apply_target(key.removeprefix("target-state-"), value)
        elif key.startswith("restart-connector-") and value is not None:
            name = key.removeprefix("restart-connector-")
            tasks, failed = bool(value.get("include-tasks")), bool(value.get("only-failed"))
            self._changes.append(lambda: self._on_change.restart_asked(name, include_tasks=tasks, only_failed=failed))
        elif key == "session-key" and value is not None and isinstance(value.get("key"), str):
            self.session_key = base64.b64decode(value["key"])

    def _apply_connector(self, name: str, properties: Config | None) -> None:
        if properties is None:
            self._deferred.pop(name, None)
            self.configs.tasks.pop(name, None)
            if self.configs.connectors.pop(name, None) is not None:
                self._changes.append(lambda: self._on_change.connector_removed(name))
        else:
            self.configs.connectors[name] = properties
            self._changes.append(lambda: self._on_change.connector_changed(name))

    def _apply_commit(self, name: str, count: int) -> None:
        new = self._deferred.pop(name, {})
        former = self.configs.tasks.get(name, [])
        merged = {**dict(enumerate(former)), **new}
        if any(number not in merged for number in range(count)):
            logger.warning("connector %s: configs of some tasks are missing in topic %s; it makes them again", name, self.topic.name)
            self.configs.tasks.pop(name, None)
        else:
            self.configs.tasks[name] = [merged[number] for number in range(count)]
        self._changes.append(lambda: self._on_change.tasks_changed(name))

    def _apply_target(self, name: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self.configs.targets.pop(name, None)
            return
        target = value.get("state.v2", value.get("state"))
        self.configs.targets[name] = target if target in _TARGETS else "STARTED"
        self._changes.append(lambda: self._on_change.target_changed(name))


def _properties(value: Mapping[str, Any] | None) -> Config | None:
    found = None if value is None else value.get("properties")
    return {str(name): str(text) for name, text in found.items() if text is not None} if isinstance(found, dict) else None


def _target_document(target: Target) -> dict[str, str]:
    return {"state": "PAUSED" if target == "STOPPED" else target, "state.v2": target}


class TopicStatuses:
    """The statuses of all workers.  Threading: any thread."""

    def __init__(self, client: Client, topic: str, *, partitions: int, replication: int) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._statuses: dict[str | TaskId, Status] = {}
        self._topics: dict[str, set[str]] = {}
        self.topic = CompactedTopic(client, topic, self._apply, partitions=partitions, replication=replication)
        self._producer: Producer = client.producer({})

    def catch_up(self) -> None:
        self.topic.catch_up()

    def close(self) -> None:
        try:
            self._producer.close(5_000)
        except LogdbError as error:
            logger.warning("status topic %s: %s", self.topic.name, error)

    def put(self, of: "str | TaskId", status: Status) -> None:
        with self._lock:
            now = self._statuses.get(of)
            if status.state == "UNASSIGNED" and now is not None and (now.worker_id, now.generation) > (status.worker_id, status.generation):
                return  # another worker runs it already
            if status.state == "UNASSIGNED" and now is not None and now.worker_id != status.worker_id and now.state != "UNASSIGNED":
                return
            self._statuses[of] = status
        document = {"state": status.state, "trace": status.trace, "worker_id": status.worker_id, "generation": status.generation}
        self._send(_status_key(of), document)

    def get(self, of: "str | TaskId") -> Status | None:
        with self._lock:
            return self._statuses.get(of)

    def tasks(self, connector: str) -> dict[TaskId, Status]:
        """All tasks of a connector that have a status, also those that it has no more."""
        with self._lock:
            return {of: status for of, status in self._statuses.items() if isinstance(of, TaskId) and of.connector == connector}

    def remove(self, connector: str) -> None:
        with self._lock:
            gone = [of for of in self._statuses if of == connector or (isinstance(of, TaskId) and of.connector == connector)]
            for of in gone:
                del self._statuses[of]
            topics = self._topics.pop(connector, set())
        for of in gone:
            self._send(_status_key(of), None)
        for topic in topics:
            self._send(f"status-topic-{topic}:connector-{connector}", None)

    def add_topic(self, connector: str, topic: str) -> None:
        with self._lock:
            if topic in self._topics.get(connector, ()):
                return
            self._topics.setdefault(connector, set()).add(topic)
        document = {"topic": {"name": topic, "connector": connector, "task": 0, "discoverTimestamp": now_ms()}}
        self._send(f"status-topic-{topic}:connector-{connector}", document)

    def topics(self, connector: str) -> list[str]:
        with self._lock:
            return sorted(self._topics.get(connector, ()))

    def reset_topics(self, connector: str) -> None:
        with self._lock:
            topics = self._topics.pop(connector, set())
        for topic in topics:
            self._send(f"status-topic-{topic}:connector-{connector}", None)

    def _send(self, key: str, document: Any) -> None:
        try:
            self._producer.send(self.topic.name, None if document is None else encoded(document), key.encode())
        except LogdbError as error:
            logger.warning("status topic %s: %s", self.topic.name, error)

    def _apply(self, record: AnyRecord) -> None:
        key, value = (record.key or b"").decode(errors="replace"), decoded(record.value)
        if found := _STATUS_TOPIC.fullmatch(key):
            with self._lock:
                if value is None:
                    self._topics.get(found[2], set()).discard(found[1])
                else:
                    self._topics.setdefault(found[2], set()).add(found[1])
            return
        of: str | TaskId
        if found := _STATUS_TASK.fullmatch(key):
            of = TaskId(found[1], int(found[2]))
        elif key.startswith("status-connector-"):
            of = key.removeprefix("status-connector-")
        else:
            return
        with self._lock:
            if isinstance(value, dict):
                self._statuses[of] = Status(
                    value.get("state", "UNASSIGNED"), str(value.get("worker_id", "")), value.get("trace"), int(value.get("generation") or 0)
                )
            else:
                self._statuses.pop(of, None)


def _status_key(of: "str | TaskId") -> str:
    return f"status-connector-{of}" if isinstance(of, str) else f"status-task-{of.connector}-{of.task}"
