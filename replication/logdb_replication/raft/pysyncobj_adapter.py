"""pysyncobj's tick over the fields of a core: it elects, commits, and steps down without a majority; all else is the core's.

The only module that knows pysyncobj.  The private names that it uses are those that ``Adapter`` defines; a test looks for each in the
installed version.  docs/inside/decisions/0007-raft-by-pysyncobj.md says why.

Threading: one thread.
"""

from collections.abc import Callable
from typing import Any

from pysyncobj import syncobj
from pysyncobj.config import SyncObjConf
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from logdb_replication.raft.core import Core, QuorumOptions
from logdb_replication.raft.errors import UnsupportedRaft
from logdb_replication.raft.messages import Entry
from logdb_replication.raft.voters import Peer

PYSYNCOBJ = "0.3.17"
if VERSION != PYSYNCOBJ:
    raise UnsupportedRaft(VERSION, PYSYNCOBJ)

_NEVER = 1 << 60  # entries, seconds: the core takes snapshots


def now() -> float:
    """pysyncobj's clock, by the name under which it reads it itself."""
    return float(syncobj.monotonicTime())


class _Log:
    """A core's entries and vote, as pysyncobj wants a journal."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __len__(self) -> int:
        return len(self._core.log)

    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        return self._core.log[place]

    def getCurrentTerm(self) -> int:
        return self._core.term

    def getVotedForNodeId(self) -> tuple[int, int] | None:
        return self._core.voted_for

    def setCurrentTerm(self, term: int, voted_for: tuple[int, int] | None) -> None:
        self._core.set_term(term, voted_for)

    def getRaftCommitIndex(self) -> int:
        return self._core.commit

    def setRaftCommitIndex(self, index: int) -> None:
        """It has set the field."""

    def onOneSecondTimer(self) -> None:
        """An idle journal writes nothing."""


class _Requests(Transport):  # type: ignore[misc]  # pysyncobj ships no types
    """What pysyncobj sends: requests for votes."""

    def __init__(self, core: Core) -> None:
        super().__init__(None, None, ())
        self._core = core

    def send(self, peer: Peer, message: dict[str, Any]) -> bool:
        assert message["type"] == "request_vote", message
        self._core.ask_for_vote(peer)
        return True


def _ignored(_self: object, _value: object) -> None:
    """The core has its own."""


def _shared(field: str, take: Callable[[Core, Any], None] = _ignored) -> Any:
    """A field of the core in place of one of SyncObj; ``take``: what setting it does."""
    return property(lambda self: getattr(self.core, field), lambda self, value: take(self.core, value))


def _commit(core: Core, index: int) -> None:
    core.commit = index


class Adapter(syncobj.SyncObj):  # type: ignore[misc]  # pysyncobj ships no types
    """pysyncobj's SyncObj with the state of a core."""

    _SyncObj__raftState = _shared("state", Core.become)
    _SyncObj__raftElectionDeadline = _shared("election_deadline")  # a tick reads the clock again
    _SyncObj__raftCurrentTerm = _shared("term")  # set through the journal
    _SyncObj__raftCommitIndex = _shared("commit", _commit)
    _SyncObj__raftMatchIndex = _shared("match")
    _SyncObj__lastResponseTime = _shared("answered")
    _SyncObj__otherNodes = _shared("others")
    _SyncObj__connectedNodes = _shared("connected_with")
    _SyncObj__raftLog = property(lambda self: self.journal, _ignored)

    def __init__(self, core: Core, options: QuorumOptions) -> None:
        self.core, self.journal = core, _Log(core)
        timeout_s = options.election_timeout_ms / 1000
        config = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=options.heartbeat_ms / 1000,
            raftMinTimeout=timeout_s,
            raftMaxTimeout=2 * timeout_s,
            leaderFallbackTimeout=timeout_s,
            connectionTimeout=2 * timeout_s,
            logCompactionMinEntries=_NEVER,
            logCompactionMinTime=_NEVER,
        )
        super().__init__(core.peer, (), config, nodeClass=lambda peer: peer, transport=_Requests(core))

    def tick(self) -> None:
        """Elect, where the deadline of the core is over; commit what a majority has; step down where none has answered for long."""
        self.conf.leaderFallbackTimeout = self.core.patience_s
        self.doTick(0.0)

    def _SyncObj__onBecomeLeader(self) -> None:
        """It is alone."""
        self.core.lead()

    def _SyncObj__applyLogEntries(self) -> bool:
        """The core does, after the tick."""
        return False

    def _SyncObj__sendAppendEntries(self) -> None:
        """The core does."""
