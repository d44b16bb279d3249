"""What a controller does for brokers: requests answered, sessions kept while it leads, brokers fenced that are dead.

    not leading ──is_leader──► barrier ──► leading: sessions begin, dead brokers are looked for ──not is_leader──► not leading

A broker is fenced when its session lapses; or at once, when it is suspected and its machine refuses a connection to it.  It is suspected by
a broker that has lost it, by this controller when its heartbeats' connection ends, and of all when this controller begins to lead.

Threading: ``answer``, ``gone``: any thread.  The sessions have a thread of their own.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from logdb.errors import LogdbError, StaleBrokerEpoch
from logdb.io import IO
from logdb.threads import renewed, started
from logdb_replication.config import Times
from logdb_replication.controller import commands
from logdb_replication.controller.commands import (
    AddPartitions,
    AlterTopic,
    ChangeSecurity,
    CreateTopic,
    DeleteTopic,
    FenceBroker,
    PreferLeaders,
    RegisterBroker,
    UnfenceBroker,
)
from logdb_replication.controller.elections import preferred
from logdb_replication.controller.errors import ClocksApart, DuplicateBroker, UnknownBroker
from logdb_replication.controller.feed import Feed
from logdb_replication.controller.messages import (
    Changed,
    ChangeVoters,
    Describe,
    Described,
    Heard,
    Heartbeat,
    Propose,
    Proposed,
    Reply,
    Request,
    Suspect,
    Suspected,
    Watch,
    Watched,
)
from logdb_replication.controller.placement import with_places
from logdb_replication.controller.sessions import Sessions
from logdb_replication.controller.state import BrokerState
from logdb_replication.raft.errors import BarrierTimeout, NotQuorumLeader
from logdb_replication.raft.journal import COMMAND_SIZE_BYTES_MAX
from logdb_replication.raft.quorum import Quorum, Voter

logger = logging.getLogger(__name__)

INTERVAL_MS = 50
SPREAD_INTERVAL_MS = 15_000
CONNECT_TIMEOUT_S = 0.5
CLOCKS_APART_MS_MAX = 60_000  # of a broker that comes back, and the controller that leads
_HEARD_BY_ALL = (AddPartitions, AlterTopic, ChangeSecurity, CreateTopic, DeleteTopic)  # so that a client finds them at any node
PROPOSE_TIMEOUT_S = 1.0


class Service:
    """One controller's answers.

    Field            Changed by             Under      Trusted
    ``_leading``     the sessions' thread   ``_lock``  the barrier of this leadership has passed: the state has all that was committed
    ``_sessions``    heartbeats, its thread ``_lock``  while ``_leading``
    ``_heard``                              ``_lock``  notified when a broker is heard, or fenced
    ``_uneven``      its thread                        at the last look a partition was not led by its first replica, and could be
    ``_spread_ms``   its thread                        when it looks again
    """

    def __init__(self, quorum: Quorum, feed: Feed, times: Times, io: IO) -> None:
        self._quorum, self._feed, self._io = quorum, feed, io
        self._sessions = Sessions(times.session_ms, INTERVAL_MS, times.heartbeat_ms)
        self._lock, self._fencing = renewed(threading.Lock()), renewed(threading.Lock())
        self._heard = renewed(threading.Condition(self._lock))
        self._placing = renewed(threading.Lock())
        self._leading = False
        self._uneven, self._spread_ms = False, 0
        self._stopped = renewed(threading.Event())
        self._thread = started("logdb-controller-sessions", self._run)

    def answer(self, node: int, request: Request) -> Reply:
        """The reply to a node's request; raises one of ``messages.FAILURES``."""
        return _ANSWERS[type(request)](self, node, request)

    def close(self) -> None:
        self._stopped.set()
        self._feed.wake()
        self._thread.join()

    # ------------------------------------------------------------ requests

    def _propose(self, _node: int, request: Propose) -> Proposed:
        command = commands.decode(request.command)  # what is none never comes into a journal
        if isinstance(command, RegisterBroker):
            self._refuse_duplicate(command)
        if isinstance(command, CreateTopic | AddPartitions) and not command.assignments:
            answer = self._propose_places(command, request)
        else:
            answer = self._quorum.propose(request.command, request.timeout_ms / 1000)
        if isinstance(command, _HEARD_BY_ALL):
            self._wait_for_brokers(self._feed.state.index, request.timeout_ms / 2000)
        return Proposed(answer)

    def _propose_places(self, command: CreateTopic | AddPartitions, request: Propose) -> bytes:
        """Propose a command with the nodes of its partitions: one after the other, so that each knows where those before it lie."""
        until = time.monotonic() + request.timeout_ms / 1000
        is_alone = self._placing.acquire(timeout=request.timeout_ms / 2000)
        try:
            encoded = request.command
            if self._leading:  # otherwise the state may be old
                encoded = commands.encode(with_places(self._feed.state, command))
            if len(encoded) >= COMMAND_SIZE_BYTES_MAX:
                encoded = request.command
            return self._quorum.propose(encoded, max(until - time.monotonic(), 0.0))
        finally:
            if is_alone:
                self._placing.release()

    def _wait_for_brokers(self, index: int, timeout_s: float) -> None:
        """Until each broker that is not fenced knows a state.  One that is silent is waited for as long as the proposer has time."""
        with self._heard:
            self._heard.wait_for(lambda: not self._leading or self._sessions.all_know(index, self._unfenced()), timeout_s)

    def _unfenced(self) -> list[int]:
        return [broker.node_id for broker in self._feed.state.brokers.values() if not broker.fenced]

    def _refuse_duplicate(self, command: RegisterBroker) -> None:
        known = self._feed.state.brokers.get(command.node_id)
        with self._lock:
            alive = self._leading and self._sessions.is_alive(command.node_id)
        if alive and known is not None and known.incarnation != command.incarnation and not known.fenced:
            raise DuplicateBroker(command.node_id)

    def _watch(self, _node: int, request: Watch) -> Watched:
        if request.latest:
            self._barrier()
        found = self._feed.after(request.since, request.wait_ms / 1000 if self._quorum.leader is not None else 0.0)
        if found.index == request.since:
            if (failure := self._quorum.failure) is not None:
                raise failure
            if self._quorum.leader is None:
                raise NotQuorumLeader(None)  # another controller may know more
        return found

    def _heartbeat(self, node: int, request: Heartbeat) -> Heard:
        broker = self._registered(node, request.broker_epoch)
        with self._lock:
            self._sessions.heard(node)
            self._sessions.knows(node, request.index)
            self._heard.notify_all()
            comes_back = broker.fenced and self._sessions.caught_up(node, broker.epoch, request.index, self._feed.state.index)
        if comes_back:
            self._check_clock(node, request.clock_ms)
            self._decide(UnfenceBroker(node, broker.epoch))
            with self._lock:
                self._sessions.unfenced(node)
            broker = self._registered(node, request.broker_epoch)
        return Heard(broker.fenced, broker.draining)

    def _check_clock(self, node: int, clock_ms: int) -> None:
        """A board whose clock was not set yet would give records timestamps at which retention deletes them."""
        apart_ms = clock_ms - self._io.clock_ms()
        if abs(apart_ms) > CLOCKS_APART_MS_MAX:
            raise ClocksApart(node, apart_ms, CLOCKS_APART_MS_MAX)

    def _suspect(self, node: int, request: Suspect) -> Suspected:
        self._registered(node, request.broker_epoch)
        return Suspected(self._fence_if_refused(request.suspect))

    def _change_voters(self, _node: int, request: ChangeVoters) -> Changed:
        voter = Voter(request.number, request.incarnation, request.host, request.port)
        (self._quorum.add_voter if request.add else self._quorum.remove_voter)(voter, request.timeout_ms / 1000)
        return Changed()

    def _describe(self, _node: int, _request: Describe) -> Described:
        with self._lock:
            leads = self._leading
            heard = self._sessions.ages_ms() if leads else {}
            behind = {node: self._sessions.behind(node) for node, one in self._feed.state.brokers.items() if leads and one.fenced}
        brokers = [
            {
                "node": broker.node_id,
                "incarnation": broker.incarnation,
                "epoch": broker.epoch,
                "addresses": {name: f"{host}:{port}" for name, (host, port) in broker.addresses.items()},
                "rack": broker.rack,
                "fenced": broker.fenced,
                "draining": broker.draining,
                "heard_ms_ago": heard.get(broker.node_id),
                "behind": behind.get(broker.node_id),
            }
            for broker in self._feed.state.brokers.values()
        ]
        return Described(self._quorum.describe(), brokers)

    def _registered(self, node: int, epoch: int) -> BrokerState:
        """The broker of that epoch.  One that this controller does not know yet may have registered with a newer leader."""
        with self._lock:
            self._check_leading()
        broker = self._feed.state.brokers.get(node)
        if broker is None or epoch > broker.epoch:
            self._barrier()
            broker = self._feed.state.brokers.get(node)
        if broker is None:
            raise UnknownBroker(node)
        if broker.epoch != epoch:
            raise StaleBrokerEpoch(node, epoch, broker.epoch)
        return broker

    def _check_leading(self) -> None:
        if not (self._leading and self._quorum.is_leader):
            leader = self._quorum.leader
            raise NotQuorumLeader(None if self._quorum.is_leader else leader)

    # ------------------------------------------------------------ sessions

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_MS / 1000):
            try:
                self._look()
            except LogdbError as error:
                logger.info("%s", error)
            except Exception:
                logger.exception("sessions are checked again in %d ms", INTERVAL_MS)

    def _look(self) -> None:
        """Begin or end to lead; fence whose session has lapsed."""
        if not self._quorum.is_leader:
            with self._lock:
                self._leading = False
            return
        if not self._leading:
            self._begin()
        with self._lock:
            self._sessions.passed(self._io.monotonic_ms(), self._unfenced())
            lapsed = self._sessions.lapsed()
        for node in lapsed:
            self._fence(node, "its session has lapsed")
        self._spread()

    def _spread(self) -> None:
        """Have first replicas lead again that could at two looks: a broker that has just come back may go again."""
        if self._io.monotonic_ms() < self._spread_ms:
            return
        self._spread_ms = self._io.monotonic_ms() + SPREAD_INTERVAL_MS
        state, before = self._feed.state, self._uneven
        partitions = (partition for topic in state.topics.values() for partition in topic.partitions)
        self._uneven = any(preferred(partition, state.brokers) is not partition for partition in partitions)
        if self._uneven and before:
            self._decide(PreferLeaders())

    def _barrier(self) -> None:
        """The state has all that was committed before this call.  Raises NotQuorumLeader."""
        try:
            self._quorum.barrier(PROPOSE_TIMEOUT_S)
        except BarrierTimeout:
            raise NotQuorumLeader(None) from None

    def _begin(self) -> None:
        self._quorum.barrier(PROPOSE_TIMEOUT_S)
        with self._lock:
            self._sessions.begin(self._io.monotonic_ms())
            self._leading = True
        self._uneven, self._spread_ms = False, self._io.monotonic_ms() + SPREAD_INTERVAL_MS
        for node in self._feed.state.brokers:
            self.gone(node)

    def gone(self, node: int) -> None:
        """A broker's connection has ended, or this controller has not heard it yet: look whether it is dead, in a thread."""

        def look() -> None:
            with contextlib.suppress(LogdbError):
                self._fence_if_refused(node)

        if self._quorum.is_leader and not self._stopped.is_set():
            started("logdb-controller-suspicion", look)

    def _fence_if_refused(self, node: int) -> bool:
        """Fence a broker whose machine refuses connections to it; whether it is fenced now."""
        broker = self._feed.state.brokers.get(node)
        if broker is None:
            raise UnknownBroker(node)
        if not broker.fenced and _refuses(broker.addresses):
            self._fence(node, "its machine refuses connections to it")
        return self._feed.state.brokers[node].fenced

    def _fence(self, node: int, reason: str) -> None:
        with self._fencing:  # several may suspect it at once
            broker = self._feed.state.brokers.get(node)
            if broker is not None and not broker.fenced:
                logger.warning("broker %d, epoch %d, is fenced: %s", node, broker.epoch, reason)
                self._decide(FenceBroker(node, broker.epoch))
        with self._lock:
            self._sessions.forget(node)
            self._heard.notify_all()

    def _decide(self, command: FenceBroker | PreferLeaders | UnfenceBroker) -> None:
        commands.decode_answer(self._quorum.propose(commands.encode(command), PROPOSE_TIMEOUT_S))


def _refuses(addresses: dict[str, tuple[str, int]]) -> bool:
    """Whether the machine of a broker says that no process listens; one that says nothing may be slow, or far."""
    address = addresses.get("http") or next(iter(addresses.values()), None)
    if address is None:
        return False
    try:
        socket.create_connection(address, CONNECT_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


_ANSWERS: dict[type[Any], Callable[[Service, int, Any], Reply]] = {
    Propose: Service._propose,
    Watch: Service._watch,
    Heartbeat: Service._heartbeat,
    Suspect: Service._suspect,
    Describe: Service._describe,
    ChangeVoters: Service._change_voters,
}
