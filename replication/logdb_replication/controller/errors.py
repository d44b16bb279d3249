"""What can go wrong between a broker and the controllers; the root is ``logdb.errors.LogdbError``."""

from logdb.errors import LogdbError
from logdb.requests.nodes import PartitionState
from logdb_replication.raft.errors import CannotApply


class UnknownCommand(CannotApply):
    """Bytes that are no command: damaged, or of a newer logdb."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a command of this version of logdb: {reason}")
        self.reason = reason


class UnknownBroker(LogdbError):
    """No broker has registered with that number."""

    def __init__(self, node: int) -> None:
        super().__init__(f"node {node} has never registered")
        self.node = node


class StateChanged(LogdbError):
    """A compare-and-set failed: what it was decided upon has changed since."""

    retriable = True

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} has changed meanwhile: read it again")
        self.what = what


class ClusterNotEmpty(LogdbError):
    """A directory is not promoted: only a cluster that has nothing takes what it has."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the cluster has {found} already, so a directory cannot be promoted to it. The directory is unchanged: "
            "logdb cluster leave DATA --yes makes it a database of its own again"
        )
        self.found = found


class PartitionChanged(LogdbError):
    """A compare-and-set of a partition failed; ``state`` is the partition as it is now."""

    retriable = True

    def __init__(self, topic: str, partition: int, state: PartitionState) -> None:
        super().__init__(f"{topic}-{partition} is at partition epoch {state.partition_epoch} now: {state}")
        self.topic, self.partition, self.state = topic, partition, state


class IneligibleReplica(LogdbError):
    """A node cannot be in an in-sync set: it is fenced, or no replica of the partition."""

    def __init__(self, topic: str, partition: int, node: int, reason: str) -> None:
        super().__init__(f"node {node} cannot be in sync with {topic}-{partition}: it is {reason}")
        self.topic, self.partition, self.node, self.reason = topic, partition, node, reason


class DuplicateBroker(LogdbError):
    """Another process is registered as the node, and is alive; one that is dead is found out within the session's time."""

    retriable = True

    def __init__(self, node: int) -> None:
        super().__init__(f"another process is registered as node {node}, and is alive: each node runs once")
        self.node = node


class ClocksApart(LogdbError):
    """A fenced broker is not let in: its wall clock is far from that of the controller that leads; ``apart_ms`` > 0: it is ahead."""

    retriable = True

    def __init__(self, node: int, apart_ms: int, apart_ms_max: int) -> None:
        way = "ahead of" if apart_ms > 0 else "behind"
        super().__init__(
            f"the clock of node {node} is {abs(apart_ms) / 1000:.0f} s {way} that of the controller; "
            f"{apart_ms_max / 1000:.0f} s is the most allowed: set the clocks of both machines"
        )
        self.node, self.apart_ms, self.apart_ms_max = node, apart_ms, apart_ms_max


class ControllerFailed(LogdbError):
    """The controller's process has refused to start, or ended; ``reason``: what it said."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the controller does not run: {reason}")
        self.reason = reason
