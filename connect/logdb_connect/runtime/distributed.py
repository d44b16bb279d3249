"""A worker that shares connectors and tasks with others of its ``group.id``.

One thread does the group's work: it joins, starts and stops what it is assigned, and obeys changes of the config topic.  A second one
waits for records in the config topic and the status topic.  The leader alone changes configs; others send requests on to it.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from logdb import LogdbError
from logdb_connect.client import Client, now_ms
from logdb_connect.errors import Conflict, ConnectError
from logdb_connect.logdb_client import LogdbClient
from logdb_connect.runtime.assignment import Leader, Work
from logdb_connect.runtime.herder import Herder
from logdb_connect.runtime.membership import Assignment, Lost, Member, Membership
from logdb_connect.runtime.states import Config
from logdb_connect.runtime.tasks import TaskId
from logdb_connect.runtime.topics import STALE, TopicConfigs, TopicStatuses
from logdb_connect.runtime.worker import Worker

if TYPE_CHECKING:
    from logdb_connect.runtime.kafka_membership import KafkaMembership

logger = logging.getLogger(__name__)

_TICK_S = 0.5
_RETRY_S = 0.2
_UNDECIDED_S = 0.05  # between two looks at a transaction that is still open
_REBALANCE_WAIT_S = 10.0


class NotLeader(Conflict):
    """Another worker has to do this.

    Attributes:
        url: Its address.
    """

    def __init__(self, url: str) -> None:
        super().__init__(f"Cannot complete request: another worker has to answer it, {url}")
        self.url = url


SendTasks = Callable[[str, str, Sequence[Config], bytes], None]


class Distributed(Herder):
    """The operations of one worker of several."""

    def __init__(self, worker: Worker, config: Mapping[str, Any], *, send_tasks: SendTasks) -> None:
        """Nothing is joined yet.

        Args:
            send_tasks: Sends task configs to the leader: its URL, the connector, the configs, the session key.
        """
        super().__init__(worker)
        self._config, self._send_tasks = config, send_tasks
        self.topic_configs = TopicConfigs(
            worker.client,
            config["config.storage.topic"],
            group_id=config["group.id"],
            on_change=self,
            replication=config["config.storage.replication.factor"],
        )
        self.topic_statuses = TopicStatuses(
            worker.client,
            config["status.storage.topic"],
            partitions=config["status.storage.partitions"],
            replication=config["status.storage.replication.factor"],
        )
        self.configs, self.statuses = self.topic_configs, self.topic_statuses
        self.url = ""
        self.leader_url: str | None = None  # None: a rebalance goes on
        self._leads = False
        self._leader = Leader()
        self._generation = self._rebalances = 0
        self._everyone: Mapping[str, Work] = {}
        self._rejoin = True
        self._rejoin_at: float | None = None
        self._fresh: set[str] = set()  # connectors whose tasks are to be started again with the next configs
        self._stopping = False
        self._woken = threading.Event()  # something is to be looked at
        self._began = threading.Event()  # no rebalance goes on
        self._membership = _membership(worker.client, config, self._wake)
        worker.member_since = self._owned_since  # type: ignore[method-assign]  # the hook for it
        self._threads = [
            threading.Thread(target=self._main, name="connect-herder", daemon=True),
            threading.Thread(target=self._tail, name="connect-tail", daemon=True),
        ]

    def start(self, url: str) -> None:
        """Read the topics, and join the group in the background."""
        self.url = url
        with self.lock:
            self.topic_statuses.catch_up()
            self.topic_configs.catch_up()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop all work, then leave the group."""
        self._stopping = True
        self._wake()
        if self._threads[0].ident is not None:  # it never began where the REST API could not listen
            self._threads[0].join(2)
        super().close()
        self._membership.leave()
        self.topic_configs.resign()
        self.topic_statuses.close()

    # ------------------------------------------------------------ for requests

    def check_leads(self, *, waits: bool = True) -> None:
        if waits:
            self._await_rebalanced()
        if self.leader_url is None:
            raise Conflict(STALE)
        if not self._leads:
            raise NotLeader(self.leader_url)
        with self.lock:
            if self.topic_configs.fenced:
                self._rejoin = True
                self._wake()
                raise Conflict(STALE)
            self.topic_configs.lead()

    def _await_rebalanced(self) -> None:
        end = time.monotonic() + _REBALANCE_WAIT_S
        while self.leader_url is None and time.monotonic() < end:
            self._began.wait(0.1)

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def session_key(self) -> bytes | None:
        return self.topic_configs.session_key

    def health(self) -> tuple[str, str]:
        if self._generation == 0:
            return "starting", "Worker is still starting up."
        return super().health()

    def rebalances(self) -> tuple[int, bool] | None:
        return self._rebalances, self.leader_url is None

    def restart_task(self, task_id: TaskId) -> None:
        if task_id not in self.worker.tasks and task_id in self.configs.configs.task_ids(task_id.connector):
            self._send_to_owner(task_id)
        super().restart_task(task_id)

    def restart_connector(self, name: str) -> None:
        if name not in self.worker.connectors and name in self.configs.configs.connectors:
            self._send_to_owner(name)
        super().restart_connector(name)

    def _send_to_owner(self, of: "str | TaskId") -> None:
        self._await_rebalanced()
        for url, work in self._everyone.items():
            if url != self.url and of in (work.connectors if isinstance(of, str) else work.tasks):
                raise NotLeader(url)
        raise Conflict(STALE)

    def put_tasks(self, name: str, tasks: Sequence[Config]) -> None:
        if self.leader_url is not None and not self._leads:
            if self.session_key is None:
                raise Conflict(STALE)
            self._send_tasks(self.leader_url, name, tasks, self.session_key)
            return
        super().put_tasks(name, list(tasks))

    def _owned_since(self, since: float) -> bool:
        """Whether the group gave this worker its tasks, then or later, and it has obeyed all configs of now."""
        try:
            return self._membership.was_member(since) and self.topic_configs.is_current()
        except LogdbError:
            return False

    def _is_new(self, _name: str) -> bool:
        with self.lock:
            is_new = _name in self._fresh
            self._fresh.discard(_name)
            return is_new

    def _any_task_runs(self, name: str) -> bool:
        if super()._any_task_runs(name):
            return True
        known = self.topic_statuses
        known.catch_up()
        members = {self.worker.id, *(urlsplit(url).netloc for url in self._everyone)}  # another one can no longer say that it has ended
        return any(one.state in ("RUNNING", "PAUSED") and one.worker_id in members for one in known.tasks(name).values())

    # ------------------------------------------------------------ the thread of the group

    def _wake(self) -> None:
        self._woken.set()

    def _main(self) -> None:
        while not self._stopping:
            try:
                self._tick()
            except Lost:
                self._lose()
            except (LogdbError, ConnectError) as error:
                logger.warning("group %s: a retry follows: %s", self._config["group.id"], error)
                time.sleep(_RETRY_S)
            except Exception:
                logger.exception("group %s: a retry follows", self._config["group.id"])
                time.sleep(_RETRY_S)

    def _tick(self) -> None:
        self._woken.clear()
        due = self._rejoin_at is not None and time.monotonic() >= self._rejoin_at
        if self._membership.check() or self._rejoin or due:
            self._join()
            return
        self._woken.wait(_TICK_S)

    def _join(self) -> None:
        self._began.clear()
        self.leader_url, self._rejoin_at = None, None
        try:
            with self.lock:
                self.topic_configs.catch_up()
                self._rejoin = False  # this rebalance has all changes up to here
                me = Member(self.url, self.topic_configs.position, self._owned())
            joined = self._membership.join(me, self._assign)
            if joined is None:
                self._rejoin = True
                return
            with self.lock:
                self._begin(joined.generation, joined.leads, joined.assignment)
        except BaseException:
            self._rejoin = True
            raise

    def _owned(self) -> Work:
        return Work(frozenset(self.worker.connectors), frozenset(self.worker.tasks))

    def _assign(self, members: Mapping[str, Member]) -> dict[str, Assignment]:
        """This worker leads: everyone's work."""
        with self.lock:
            self.topic_configs.catch_up()
            self._rejoin = False  # the plan has these changes, too
            if not self._leads:
                self._leader = Leader()
            plan = self._leader.plan(
                {member_id: one.work for member_id, one in members.items()},
                self._configured(),
                now_ms=now_ms(),
                delay_ms=self._config["scheduled.rebalance.max.delay.ms"],
            )
            position = self.topic_configs.position
        everyone = {members[member_id].url: work for member_id, work in plan.work.items()}
        return {member_id: Assignment(self.url, position, work, plan.delay_ms, everyone) for member_id, work in plan.work.items()}

    def _configured(self) -> Work:
        configs = self.configs.configs
        return Work(frozenset(configs.connectors), frozenset(one for name in configs.connectors for one in configs.task_ids(name)))

    def _begin(self, generation: int, leads: bool, assignment: Assignment) -> None:
        """A generation begins: give up what moves, then start what is new."""
        self._generation, self._everyone = generation, assignment.everyone
        self._rebalances += 1
        if leads:
            self.topic_configs.lead()
        else:
            self.topic_configs.resign()
        self._leads = leads
        if assignment.offset > self.topic_configs.position:
            self.topic_configs.catch_up()
        work = assignment.work.within(self._configured())
        revoked = self._owned().without(work)
        self._stop_work(revoked)
        new = work.without(self._owned())
        for name in sorted(new.connectors):
            self._start_connector(name)
        for one in sorted(new.tasks):
            self._start_task(one)
        if revoked.within(self._configured()).any():
            self._rejoin = True
        if leads and assignment.delay_ms:
            self._rejoin_at = time.monotonic() + assignment.delay_ms / 1000
        self.leader_url = assignment.leader_url
        self._began.set()

    def _stop_work(self, work: Work) -> None:
        self.worker.stop_connectors(work.connectors)
        self.worker.stop_tasks(work.tasks)

    def _lose(self) -> None:
        """The group has removed this worker: others may run its work already."""
        with self.lock:
            self._began.clear()
            self.leader_url, self._leads, self._rejoin = None, False, True
            self.topic_configs.resign()
            self._stop_work(self._owned())

    # ------------------------------------------------------------ the thread that waits for records

    def _tail(self) -> None:
        topics = (self.topic_configs.topic, self.topic_statuses.topic)
        while not self._stopping:
            try:
                positions = {**topics[0].positions(), **topics[1].positions()}
                if not self.worker.client.wait(positions, 1_000):
                    continue
                self.topic_statuses.catch_up()
                with self.lock:
                    if not self._stopping:
                        self.topic_configs.catch_up()
                if self.topic_configs.topic.positions().items() <= positions.items():
                    time.sleep(_UNDECIDED_S)
            except (LogdbError, ConnectError) as error:
                if not self._stopping:
                    logger.warning("group %s: a retry follows: %s", self._config["group.id"], error)
                    time.sleep(_RETRY_S)
            except Exception:
                logger.exception("group %s: a retry follows", self._config["group.id"])
                time.sleep(_RETRY_S)

    # ------------------------------------------------------------ changes of configs; called with the lock

    def connector_changed(self, name: str) -> None:
        if name in self.worker.connectors:
            self._fresh.add(name)
            self.worker.stop_connectors([name])
            self._start_connector(name)
        else:
            self._ask_rejoin()

    def connector_removed(self, name: str) -> None:
        self._stop_work(Work(frozenset({name}) & self._owned().connectors, self._of(name)))
        if self._leads:
            self.statuses.remove(name)
        self._ask_rejoin()

    def tasks_changed(self, name: str) -> None:
        mine, wanted = self._of(name), frozenset(self.configs.configs.task_ids(name))
        self.worker.stop_tasks(mine)
        for one in sorted(mine & wanted):
            self._start_task(one)
        self._ask_rejoin()

    def target_changed(self, name: str) -> None:
        target = self.configs.configs.target(name)
        if name in self.worker.connectors:
            self.worker.connectors[name].transition(target)
        for one in self._of(name):
            self.worker.tasks[one].transition(target)

    def restart_asked(self, name: str, *, include_tasks: bool, only_failed: bool) -> None:
        self._restart(name, include_tasks=include_tasks, only_failed=only_failed)

    def _of(self, name: str) -> frozenset[TaskId]:
        return frozenset(one for one in self.worker.tasks if one.connector == name)

    def _ask_rejoin(self) -> None:
        """Something is configured that is not assigned, or the other way round: the leader has to assign anew.

        Each worker joins when it reads the change: a rebalance waits for all of them, and a heartbeat would tell them later.
        """
        assigned = self._leader.assigned if self._leads else Work.union(self._everyone.values())
        if assigned is not None and self._configured() != assigned:
            self._rejoin = True
            self._wake()


def _membership(client: Client, config: Mapping[str, Any], wake: Callable[[], None]) -> "Membership | KafkaMembership":
    times = {
        "session_ms": config["session.timeout.ms"],
        "heartbeat_ms": config["heartbeat.interval.ms"],
        "rebalance_ms": config["rebalance.timeout.ms"],
    }
    if isinstance(client, LogdbClient):
        return Membership(client, config["group.id"], config["client.id"] or "connect", wake=wake, **times)
    from logdb_connect.kafka_client import KafkaClient
    from logdb_connect.runtime.kafka_membership import KafkaMembership

    assert isinstance(client, KafkaClient)
    return KafkaMembership(client, config["group.id"], f"{config['config.storage.topic']}-members", wake=wake, **times)
