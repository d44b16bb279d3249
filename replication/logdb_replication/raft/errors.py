"""What can go wrong with a quorum; the root is ``logdb.errors.LogdbError``."""

from logdb.errors import LogdbError


class UnsupportedRaft(LogdbError):
    """Another version of pysyncobj than the one whose private parts are overridden."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"pysyncobj {found} is installed; the quorum overrides private parts of {wanted}: pip install pysyncobj=={wanted}")
        self.found, self.wanted = found, wanted


class NotQuorumLeader(LogdbError):
    """Another voter leads, or none; the command was not applied and never will be.  ``leader``: its number, None where unknown."""

    retriable = True

    def __init__(self, leader: int | None) -> None:
        super().__init__("this voter does not lead the quorum: " + ("no leader is known" if leader is None else f"voter {leader} does"))
        self.leader = leader


class UnknownOutcome(LogdbError):
    """The command may have been applied, or may be later: propose it again only as a compare-and-set."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the outcome of the command is unknown: {reason}")
        self.reason = reason


class CommandTooLarge(LogdbError):
    """A command is larger than an entry may be."""

    def __init__(self, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(f"a command of {size_bytes} bytes: must be at most {size_bytes_max}")
        self.size_bytes, self.size_bytes_max = size_bytes, size_bytes_max


class TooManyCommands(LogdbError):
    """As many commands wait for the quorum as may; this one was not taken."""

    retriable = True

    def __init__(self, count: int, size_bytes: int) -> None:
        super().__init__(f"{count} commands of {size_bytes} bytes wait for the quorum: none is taken until some are done")
        self.count, self.size_bytes = count, size_bytes


class CommandFailed(LogdbError):
    """The state machine raised while it applied the command; it is not applied again."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"applying the command at index {index} failed: {reason}")
        self.index, self.reason = index, reason


class CannotApply(LogdbError):
    """The state machine raises this for an entry that others may have applied: the voter stops, so that it does not part from them."""


class BarrierTimeout(LogdbError):
    """No majority confirmed in time that this voter still leads."""

    retriable = True

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(f"no majority of the voters confirmed the leader within {timeout_ms} ms")
        self.timeout_ms = timeout_ms


class VotersRefused(LogdbError):
    """A change of the voters that could leave the quorum without a majority, or that comes before the last one is over."""

    retriable = True

    def __init__(self, reason: str) -> None:
        super().__init__(f"the voters stay as they are: {reason}")
        self.reason = reason


class VoterLost(LogdbError):
    """A file that a voter must not lose is missing: it could vote twice in a term, so it does not start."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is missing, and this directory had it: the voter may have forgotten a vote. "
            "Remove it from the quorum, empty the directory, and add it again as a new voter"
        )
        self.path = path


class VoterRolledBack(LogdbError):
    """Another voter remembers what this directory does not: it is an older copy, so the voter does not take part."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path}: the directory is an older copy of the voter's: {reason}. It may have forgotten votes and entries. "
            "Stop the node, move its data directory away, and add it again: logdb cluster join"
        )
        self.path, self.reason = path, reason


class WrongDirectory(LogdbError):
    """The directory is no voter's, another voter's, or that of one that runs."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class QuorumStopped(LogdbError):
    """The voter stopped, because of a disk most often; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this voter has stopped: {reason}")
        self.reason = reason
