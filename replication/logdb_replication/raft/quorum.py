"""A voter that runs: its thread, and what the controller asks of it.

    quorum = Quorum(2, peers, directory, apply, snapshot, restore, secret=…)
    quorum.propose(command, timeout_s)      what ``apply`` returned, once a majority has the command on disk
    quorum.barrier(timeout_s)               an applied index that holds every command acknowledged before the call
    quorum.leader · describe() · add_voter(voter, timeout_s) · remove_voter(voter, timeout_s) · close()

``apply``, ``snapshot`` and ``restore`` are called in the thread of the quorum, one at a time.  ``apply`` may depend on nothing but the
state and its arguments; what it raises is the command's answer, and logged.

Threading: any thread, except that none of it is called from ``apply``, ``snapshot`` or ``restore``.
"""

import concurrent.futures
import contextlib
import logging
import random
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from logdb.errors import LogdbError
from logdb.io import IO
from logdb.threads import started
from logdb_replication.raft.asked import Asked, Pending, Reading, VotersChange
from logdb_replication.raft.core import QuorumOptions
from logdb_replication.raft.errors import BarrierTimeout, NotQuorumLeader, QuorumStopped, UnknownOutcome, WrongDirectory
from logdb_replication.raft.files import VoterFiles
from logdb_replication.raft.node import Node
from logdb_replication.raft.pysyncobj_adapter import now
from logdb_replication.raft.tcp import TcpTransport
from logdb_replication.raft.voters import Peer, Voter

logger = logging.getLogger(__name__)

_HANGS = 3  # election timeouts without a tick: a voter that runs well waits for two at most

A = TypeVar("A", bytes, int)


class _Machine:
    """Three functions as a state machine."""

    def __init__(self, apply: Callable[[int, bytes], bytes], snapshot: Callable[[], bytes], restore: Callable[[int, bytes], None]) -> None:
        self.apply, self.snapshot, self.restore = apply, snapshot, restore


class Quorum:
    """One voter of the quorum, in this process.

    Field             Changed by    Trusted
    ``_ticked``       its thread    of any thread: when its thread ended a tick last, on ``now``
    ``_closing``      ``close``     the thread ends with its next tick
    ``may_restart``   its thread    True: it has stopped, as the disk was full most often, and another process may find room
    """

    def __init__(
        self,
        number: int,
        address: tuple[str, int],
        directory: str,
        apply: Callable[[int, bytes], bytes],
        snapshot: Callable[[], bytes],
        restore: Callable[[int, bytes], None],
        *,
        secret: bytes,
        cluster: str | None = None,
        peers: Iterable[Voter] = (),
        bind: tuple[str, int] | None = None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        options: QuorumOptions = QuorumOptions(),  # noqa: B008 -- frozen
        io: IO | None = None,
    ) -> None:
        """Open the directory that ``files.create`` has made, restore the state, listen, and start.

        Args:
            number: Whose directory it is expected to be.
            address: Where other voters reach this one.
            secret: The cluster's; the same for each voter.
            cluster: Its id, as the directory should have it; None: any.
            peers: Voters to connect with beside those that the journal names: none is needed.
            bind: Where to listen; None: at ``address``; see ``tcp.bind_address``.

        Raises:
            WrongDirectory, VoterLost, VoterRolledBack, CorruptionError: see ``files`` and ``starts``.
            OSError: It cannot listen there.
        """
        with contextlib.ExitStack() as undone:
            files = VoterFiles(io or IO(), directory)
            undone.callback(files.close)
            if files.number != number:
                raise WrongDirectory(directory, f"it belongs to voter {files.number}: must belong to voter {number}")
            if cluster not in {None, files.cluster}:
                raise WrongDirectory(directory, f"it belongs to cluster {files.cluster}: must belong to cluster {cluster}")
            voter = Voter(number, files.incarnation, *address)
            self._transport = TcpTransport(files.cluster, secret, voter, bind or address, server_tls=server_tls, client_tls=client_tls)
            undone.callback(self._transport.destroy)
            self._node = Node(files, voter, self._transport, _Machine(apply, snapshot, restore), options, random.SystemRandom())
            self._transport.admit = self._reason_against
            for peer in peers:
                if peer.number != number:
                    self._transport.add(Peer(peer))
            self._closing = self.may_restart = False
            self._hangs_s, self._ticked = _HANGS * options.election_timeout_ms / 1000, now()
            self._thread = started("logdb-quorum", self._run)
            undone.pop_all()

    def _reason_against(self, voter: Voter) -> str:
        """Why a voter that has the secret is refused: another incarnation of it has the vote, as far as this voter knows."""
        own = self._node.core.peer.voter.number
        for known in self._node.core.voters:
            if known.number == voter.number and known.id != voter.id:
                return (
                    f"voter {own} knows another incarnation of voter {known.number}: remove that one, and add the new one. "
                    f"If that is done already, voter {own} was away: join its node again"
                )
        return ""

    def _run(self) -> None:
        try:
            while not self._closing:
                self._node.tick()
                self._ticked = now()
            self._node.close()
        except LogdbError as error:
            logger.critical("voter %d stops: %s", self._node.core.peer.voter.number, error)
            self.may_restart = error.retriable
            self._node.fail(error)
        except BaseException as error:
            logger.critical("voter %d stops", self._node.core.peer.voter.number, exc_info=True)
            self._node.fail(error)

    # ------------------------------------------------------------ what the controller asks

    @property
    def _hangs(self) -> bool:
        """Whether the thread waits for a disk: it hears nothing, and the others may have elected another leader."""
        return now() - self._ticked > self._hangs_s

    @property
    def leader(self) -> int | None:
        """The number of the voter that leads, as far as this one knows; None, too, while its thread hangs."""
        leader = None if self._hangs else self._node.core.leader
        return None if leader is None else leader.voter.number

    @property
    def is_leader(self) -> bool:
        """Whether this voter leads, or thinks so still: ``barrier`` makes sure.  False while its thread hangs."""
        return self._node.is_leader and not self._hangs

    @property
    def failure(self) -> QuorumStopped | None:
        """Why this voter has stopped; None: it runs."""
        return self._node.failure

    def propose(self, command: bytes, timeout_s: float) -> bytes:
        """Replicate a command; returns what ``apply`` returned for it.

        Raises:
            NotQuorumLeader: It was not applied and never will be.
            UnknownOutcome: It may have been applied, or may be.
            CommandFailed: ``apply`` raised.
            CommandTooLarge, TooManyCommands, QuorumStopped: It was not taken.
        """
        what = Pending(command)
        return self._answer(what, what.future, timeout_s)

    def barrier(self, timeout_s: float) -> int:
        """Make sure that this voter leads, and has applied all that was acknowledged before this call; returns the applied index.

        Raises:
            NotQuorumLeader, BarrierTimeout, QuorumStopped: What the state says may be old.
        """
        what = Reading()
        try:
            return self._answer(what, what.future, timeout_s)
        except UnknownOutcome:
            raise BarrierTimeout(round(timeout_s * 1000)) from None

    def add_voter(self, voter: Voter, timeout_s: float) -> None:
        """Add one; raises VotersRefused, and as ``propose``."""
        what = VotersChange(voter, add=True)
        self._answer(what, what.future, timeout_s)

    def remove_voter(self, voter: Voter, timeout_s: float) -> None:
        """Remove one; raises VotersRefused, and as ``propose``."""
        what = VotersChange(voter, add=False)
        self._answer(what, what.future, timeout_s)

    def _answer(self, what: Asked, future: "concurrent.futures.Future[A]", timeout_s: float) -> A:
        self._node.submit(what)
        self._transport.wake()
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            if future.cancel():
                raise NotQuorumLeader(None) from None  # it is in no journal
            if future.done():  # meanwhile
                return future.result()
            raise UnknownOutcome(f"no majority had it within {timeout_s * 1000:.0f} ms") from None

    def describe(self) -> dict[str, Any]:
        """State, term, leader and progress of each voter: what ``logdb quorum`` shows."""
        return self._node.describe()

    def close(self) -> None:
        """Stop; commands that wait have an unknown outcome."""
        self._closing = True
        self._transport.wake()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


__all__ = ["Quorum", "QuorumOptions", "QuorumStopped", "Voter"]
