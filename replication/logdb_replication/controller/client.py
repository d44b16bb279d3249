"""What a broker asks of the controllers of its cluster: the one that leads is found, and asked again until it answers.

    propose · heartbeat · suspect · change_voters    of the leader: a controller that does not lead names the one that does
    watch · describe                                 of any: the node's own first
    read                                             of each in turn, until the leader answers

Threading: any thread; each question has a connection of its own, kept for the next one.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from logdb.errors import Closed, ControllerUnavailable, InvalidMessage, LogdbError
from logdb.threads import renewed
from logdb_replication.config import ClusterConfig
from logdb_replication.controller import commands
from logdb_replication.controller.commands import Answer, Command
from logdb_replication.controller.connections import ControllerConnection
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
from logdb_replication.controller.tls import node_tls
from logdb_replication.raft.errors import CommandTooLarge, NotQuorumLeader, QuorumStopped, TooManyCommands, UnknownOutcome
from logdb_replication.raft.journal import COMMAND_SIZE_BYTES_MAX
from logdb_replication.raft.voters import Voter
from logdb_replication.transport.errors import PeerRefused

PAUSE_S = 0.03
AVOIDED_S = 5.0
IDLE_MAX = 4
_FAILED = (OSError, PeerRefused, InvalidMessage)
_NOT_APPLIED = (NotQuorumLeader, TooManyCommands, QuorumStopped)
R = TypeVar("R", bound=Reply)


class ControllerClient:
    """The controllers, as one node asks them.

    Field           Changed by       Under      Trusted
    ``_idle``       each question    ``_lock``  connections by node that no question uses
    ``_open``       each question    ``_lock``  all connections
    ``_avoided``    each question    ``_lock``  until when a node that did not answer is asked last; a hint
    ``leader``      each question               the node whose controller has led last; None: unknown; a hint
    """

    def __init__(self, config: ClusterConfig, node_id: int) -> None:
        """Connections are made when they are needed; raises InvalidCertificate."""
        self._config, self._node_id, self._tls = config, node_id, node_tls(config).client
        self.cluster = config.cluster
        self._call_timeout_s = 3 * config.times.election_timeout_ms / 1000
        self._lock = renewed(threading.Lock())
        self._idle: dict[int, list[ControllerConnection]] = {node.number: [] for node in config.nodes}
        self._open: set[ControllerConnection] = set()
        self._avoided: dict[int, float] = {}
        self._closed = renewed(threading.Event())
        self.leader: int | None = None

    def propose(self, command: Command, timeout_s: float = 10.0) -> Answer:
        """Have a command applied; returns its answer.  Where the outcome of a try is unknown, it is proposed again.

        Raises:
            LogdbError: It was refused, as the command's class says.
            UnknownOutcome: It may have been applied, or may be later.
            ControllerUnavailable: It was not applied, and never will be.
            DuplicateBroker: Another process is registered as the node; if it is dead, that is found out within the session's time.
            CommandTooLarge, UnknownCommand: It is no command that a controller takes.
            Closed: This client was closed.
        """
        data = commands.encode(command)
        if len(data) >= COMMAND_SIZE_BYTES_MAX:
            raise CommandTooLarge(len(data), COMMAND_SIZE_BYTES_MAX - 1)
        reply = self._ask_leader(lambda left_s: Propose(data, round(left_s * 1000)), Proposed, timeout_s)
        return commands.decode_answer(reply.answer)

    def heartbeat(self, broker_epoch: int, index: int, clock_ms: int, timeout_s: float = 1.0) -> Heard:
        """This broker lives, and its copy of the state is at ``index``; a fenced broker comes back by it.

        Args:
            clock_ms: Its wall clock, milliseconds since 1970.

        Raises:
            ClocksApart: It was heard, and stays fenced until its clock is set.
            StaleBrokerEpoch, UnknownBroker: It is to register again.
            ControllerUnavailable, Closed: as ``propose``.
        """
        return self._ask_leader(lambda _: Heartbeat(broker_epoch, index, clock_ms), Heard, timeout_s)

    def suspect(self, broker_epoch: int, node: int, timeout_s: float = 1.0) -> bool:
        """Another broker may be dead; whether it is fenced now.  Raises as ``heartbeat``."""
        return self._ask_leader(lambda _: Suspect(broker_epoch, node), Suspected, timeout_s).fenced

    def watch(self, since: int, wait_ms: int) -> Watched:
        """What was applied after an index; where there is nothing new within the time, an empty answer.

        Raises:
            ControllerUnavailable, Closed: as ``propose``.
        """
        return self._ask_any(Watch(since, wait_ms), Watched, wait_ms / 1000)

    def read(self, since: int, election_s: float) -> Watched:
        """What comes after an index, of all that was committed before this call.

        Args:
            election_s: How long all are asked again while one of them answers that it does not lead.

        Raises:
            ControllerUnavailable, Closed: as ``propose``.
        """
        return self._ask_any(Watch(since, 0, latest=True), Watched, 0.0, election_s=election_s)

    def change_voters(self, voter: Voter, *, add: bool, timeout_s: float = 10.0) -> None:
        """Add a voter to the quorum, or remove it.

        Raises:
            VotersRefused: The quorum stays as it is; or the change was made by a try whose outcome was unknown: ``describe`` tells.
            UnknownOutcome, ControllerUnavailable, Closed: as ``propose``.
        """
        self._ask_leader(lambda left_s: ChangeVoters(add, *voter, round(left_s * 1000)), Changed, timeout_s)

    def describe(self, node: int | None = None) -> Described:
        """A voter and the brokers that it knows; ``node`` None: of any.  Raises ControllerUnavailable, Closed."""
        return self._ask_any(Describe(), Described, 0.0, node)

    def close(self) -> None:
        """End all questions; a second call does nothing."""
        self._closed.set()
        with self._lock:
            open_ = list(self._open)
        for connection in open_:
            connection.close()

    # ------------------------------------------------------------ whom to ask

    def _ask_leader(self, request: Callable[[float], Request], kind: type[R], timeout_s: float) -> R:
        """Ask the controllers in turn, the one that is said to lead first, until one does."""
        end, tried, reasons, unknown = time.monotonic() + timeout_s, set[int](), dict[int, str](), ""
        while (left_s := end - time.monotonic()) > 0:
            node = self.leader if self.leader is not None and self.leader not in tried else self._next(tried)
            if node is None:
                tried.clear()
                self._pause(min(PAUSE_S, left_s))
                continue
            tried.add(node)
            left_s = min(left_s, self._call_timeout_s)
            try:
                reply = self._ask(node, request(left_s), kind, left_s + PAUSE_S)
            except _NOT_APPLIED as error:
                reasons[node] = f"node {node}: {error}"
                if isinstance(error, NotQuorumLeader):
                    self.leader = error.leader if error.leader in self._idle else None  # a voter may be newer than our configuration
                continue
            except (UnknownOutcome, *_FAILED) as error:
                reasons[node] = f"node {node}: {error}"
                unknown = reasons[node] if not isinstance(error, _Unreachable) else unknown
                self.leader = None if self.leader == node else self.leader
                continue
            self.leader = node
            return reply
        if unknown and issubclass(kind, Proposed | Changed):
            raise UnknownOutcome(unknown)
        raise ControllerUnavailable(round(timeout_s * 1000), "; ".join(reasons.values()))

    def _ask_any(self, request: Request, kind: type[R], wait_s: float, node: int | None = None, election_s: float = 0.0) -> R:
        began, others = time.monotonic(), set() if node is None else {known.number for known in self._config.nodes} - {node}
        while True:
            reasons, tried, is_election = [], set(others), False
            while (asked := self._next(tried)) is not None:
                tried.add(asked)
                try:
                    return self._ask(asked, request, kind, wait_s + self._call_timeout_s)
                except (*_NOT_APPLIED, *_FAILED) as error:
                    reasons.append(f"node {asked}: {error}")
                    is_election |= isinstance(error, NotQuorumLeader)
            took_s = time.monotonic() - began
            if not is_election or took_s >= election_s:
                raise ControllerUnavailable(round(took_s * 1000), "; ".join(reasons))
            self._pause(PAUSE_S)

    def _next(self, tried: set[int]) -> int | None:
        """A node that was not tried: this one first, those that could not be reached last."""
        now = time.monotonic()
        with self._lock:
            left = [node.number for node in self._config.nodes if node.number not in tried]
            return min(left, key=lambda node: (self._avoided.get(node, 0.0) > now, node != self._node_id, node), default=None)

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise Closed("the client of the controllers was closed")

    # ------------------------------------------------------------ one question

    def _ask(self, node: int, request: Request, kind: type[R], timeout_s: float) -> R:
        end = time.monotonic() + timeout_s
        self._pause(0.0)
        with self._lock:
            kept = self._idle[node].pop() if self._idle[node] else None
        closed: PeerRefused | ConnectionError | None = None
        if kept is not None:
            try:
                return self._ask_over(kept, node, request, kind, end)
            except (PeerRefused, ConnectionError) as error:  # the controller may have closed it long ago
                closed = error
        try:
            connection = self._connect(node, min(max(end - time.monotonic(), 0.001), self._call_timeout_s))
        except _Unreachable:
            if closed is not None:
                raise closed from None  # it was asked
            raise
        return self._ask_over(connection, node, request, kind, end)

    def _ask_over(self, connection: ControllerConnection, node: int, request: Request, kind: type[R], end: float) -> R:
        try:
            reply = connection.ask(request, max(end - time.monotonic(), 0.001))
            if not isinstance(reply, kind):
                raise InvalidMessage(0, f"{type(reply).__name__} as the reply to {type(request).__name__}")
        except _FAILED as error:
            if isinstance(error, TimeoutError):
                self._avoid(node)
            self._drop(connection)
            self._pause(0.0)
            raise
        except LogdbError:
            self._keep(node, connection)
            raise
        self._keep(node, connection)
        return reply

    def _connect(self, node: int, timeout_s: float) -> ControllerConnection:
        address = self._config.of(node).controller
        try:
            connection = ControllerConnection(address, self._config.cluster, self._config.secret, self._node_id, node, timeout_s, self._tls)
        except (OSError, PeerRefused) as error:
            self._avoid(node)
            raise _Unreachable(str(error)) from error
        with self._lock:
            self._avoided.pop(node, None)
            self._open.add(connection)
        if self._closed.is_set():
            connection.close()
        return connection

    def _avoid(self, node: int) -> None:
        with self._lock:
            self._avoided[node] = time.monotonic() + AVOIDED_S

    def _keep(self, node: int, connection: ControllerConnection) -> None:
        with self._lock:
            if len(self._idle[node]) < IDLE_MAX and not self._closed.is_set():
                self._idle[node].append(connection)
                return
        self._drop(connection)

    def _drop(self, connection: ControllerConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.close()


class _Unreachable(OSError):
    """No connection: the question was not asked."""
