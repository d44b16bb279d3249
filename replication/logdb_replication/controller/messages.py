"""What brokers ask a controller, and what they are answered."""

from typing import Annotated, Any, TypeAlias

import msgspec

from logdb import errors
from logdb.errors import InvalidMessage, LogdbError
from logdb_replication.controller.commands import Count
from logdb_replication.controller.errors import ClocksApart, DuplicateBroker, UnknownBroker, UnknownCommand
from logdb_replication.controller.refusals import Refusals
from logdb_replication.controller.state import NodeId, Port
from logdb_replication.raft import errors as raft
from logdb_replication.raft.voters import HOST_SIZE_BYTES_MAX

Wait = Annotated[int, msgspec.Meta(ge=0, le=60_000)]


class _Message(msgspec.Struct, frozen=True, tag=True):
    """A request or a reply; the tag is the name of its class."""


# ---------------------------------------------------------------- requests


class Propose(_Message, frozen=True):
    """Replicate a command: answered by ``Proposed``, of the leader alone."""

    command: bytes
    timeout_ms: Wait


class Watch(_Message, frozen=True):
    """What was applied after an index; waits for it so long.  Answered by ``Watched``, of any controller.

    Attributes:
        latest: All that was committed before this question is in the answer, which comes of the leader alone.
    """

    since: Count
    wait_ms: Wait
    latest: bool = False


class Heartbeat(_Message, frozen=True):
    """The broker that asks lives, and its copy of the state is at ``index``: answered by ``Heard``, of the leader alone.

    Attributes:
        clock_ms: Its wall clock, milliseconds since 1970.
    """

    broker_epoch: Count
    index: Count
    clock_ms: Count


class Suspect(_Message, frozen=True):
    """Another broker may be dead: answered by ``Suspected``, of the leader alone, which has tried to connect with it."""

    broker_epoch: Count
    suspect: NodeId


class Describe(_Message, frozen=True):
    """Answered by ``Described``, of any controller."""


class ChangeVoters(_Message, frozen=True):
    """A voter is added to the quorum, or removed from it: answered by ``Changed``, of the leader alone."""

    add: bool
    number: NodeId
    incarnation: Count
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=HOST_SIZE_BYTES_MAX, pattern=r"\A[!-~]*\Z")]
    port: Port
    timeout_ms: Wait


Request: TypeAlias = Propose | Watch | Heartbeat | Suspect | Describe | ChangeVoters


# ---------------------------------------------------------------- replies


class Proposed(_Message, frozen=True):
    """The answer of a command, as ``commands.decode_answer`` takes it."""

    answer: bytes


class Watched(_Message, frozen=True):
    """What comes after the index that was asked: commands with their indexes, or a state that takes the place of all before.

    Attributes:
        index: The last of it; the one that was asked where there is nothing new.
    """

    index: int
    snapshot: bytes | None = None
    commands: list[tuple[int, bytes]] = []


class Heard(_Message, frozen=True):
    """How the broker is registered now."""

    fenced: bool
    draining: bool


class Suspected(_Message, frozen=True):
    """Whether the suspect is fenced now."""

    fenced: bool


class Changed(_Message, frozen=True):
    """It is so."""


class Described(_Message, frozen=True):
    """The voter, and the brokers as it knows them; of the leader: also when it heard each of them."""

    quorum: dict[str, Any]
    brokers: list[dict[str, Any]]


class Failed(_Message, frozen=True):
    """An error, as ``FAILURES`` writes it."""

    error: str
    values: list[Any]


Reply: TypeAlias = Proposed | Watched | Heard | Suspected | Described | Changed | Failed

FAILURES = Refusals(
    raft.NotQuorumLeader, raft.UnknownOutcome, raft.CommandTooLarge, raft.TooManyCommands, raft.CommandFailed, raft.QuorumStopped,
    raft.VotersRefused,
    UnknownCommand, UnknownBroker, DuplicateBroker, ClocksApart, errors.StaleBrokerEpoch,
)  # fmt: skip
"""What a request may be refused for."""

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(Request)
_replies = msgspec.msgpack.Decoder(Reply)


def encode(message: "Request | Reply") -> bytes:
    return _encoder.encode(message)


def failed(error: LogdbError) -> Failed:
    """``error`` is one of ``FAILURES``."""
    return Failed(*FAILURES.written(error))


def decode_request(data: bytes) -> Request:
    """Raises InvalidMessage."""
    try:
        request: Request = _requests.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(0, str(error)) from None
    return request


def decode_reply(data: bytes) -> "Reply":
    """A reply that is no failure.

    Raises:
        LogdbError: The request has failed.
        InvalidMessage: The bytes are no reply.
    """
    try:
        reply: Reply = _replies.decode(data)
        error = FAILURES.error(reply.error, reply.values) if isinstance(reply, Failed) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as invalid:
        raise InvalidMessage(0, str(invalid)) from None
    if error is not None:
        raise error
    return reply
