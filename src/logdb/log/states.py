"""The states of a log that is written to: what it takes in each, and how it passes from one to the next.

                 REFUSE               FAIL
    WRITABLE ─────────────► REFUSING ───────► FAILED              FAIL also leads from WRITABLE to FAILED,
        │ ▲                   │ ▲               │ ▲               and from INTERRUPTED to INTERRUPTED_FAILED
        │ │                   │ │               │ │
        │ │                   │ │               │ │               down: INTERRUPT
        ▼ │      REFUSE       ▼ │     FAIL      ▼ │               up: RESTART
    INTERRUPTED ────► INTERRUPTED_REFUSING ─► INTERRUPTED_FAILED

    READ_ONLY: RESTART_DAMAGED leads to it from WRITABLE and INTERRUPTED, and a log may begin so; RESTART leads to WRITABLE,
    the other events lead on as from WRITABLE.  Elsewhere RESTART_DAMAGED is as RESTART.
    CLOSED: CLOSE leads to it from each state, and none leads on.

    state                    appends   writes and syncs   why
    WRITABLE                 yes       yes
    READ_ONLY                no        yes                records are damaged: ``read_only_reason``
    REFUSING                 no        yes                the log ends: its database is closed, or its topic deleted
    FAILED                   no        no                 a sync has failed
    INTERRUPTED…             no        no                 a truncation was committed, and its files are not in place
    CLOSED                   no        no                 its files are released

Whether a log leads or follows is independent of this: ``Log.follows``.  It decides whose records an append may bring.
"""

from enum import Enum, auto
from typing import NamedTuple


class WriterEvent(Enum):
    """What changes the state of a log."""

    __hash__ = object.__hash__  # Enum's is a function of Python: a signal handler could run in it, under the log's lock
    REFUSE = auto()  # no new records from now on; accepted ones are written
    FAIL = auto()  # nothing is written from now on
    INTERRUPT = auto()  # a committed truncation has met an error
    RESTART = auto()  # a truncation is finished
    RESTART_DAMAGED = auto()  # it is, and what it left is damaged
    CLOSE = auto()


class WriterState(Enum):
    """See the table above."""

    __hash__ = object.__hash__  # the same
    WRITABLE = auto()
    READ_ONLY = auto()
    REFUSING = auto()
    FAILED = auto()
    INTERRUPTED = auto()
    INTERRUPTED_REFUSING = auto()
    INTERRUPTED_FAILED = auto()
    CLOSED = auto()


class Allows(NamedTuple):
    """What a log does in a state."""

    appends: bool
    writes: bool
    is_interrupted: bool = False
    is_closed: bool = False


ALLOWS = {
    WriterState.WRITABLE: Allows(appends=True, writes=True),
    WriterState.READ_ONLY: Allows(appends=False, writes=True),
    WriterState.REFUSING: Allows(appends=False, writes=True),
    WriterState.FAILED: Allows(appends=False, writes=False),
    WriterState.INTERRUPTED: Allows(appends=False, writes=False, is_interrupted=True),
    WriterState.INTERRUPTED_REFUSING: Allows(appends=False, writes=False, is_interrupted=True),
    WriterState.INTERRUPTED_FAILED: Allows(appends=False, writes=False, is_interrupted=True),
    WriterState.CLOSED: Allows(appends=False, writes=False, is_closed=True),
}

_S, _E = WriterState, WriterEvent
TRANSITIONS = {
    (_S.WRITABLE, _E.REFUSE): _S.REFUSING,
    (_S.WRITABLE, _E.FAIL): _S.FAILED,
    (_S.WRITABLE, _E.INTERRUPT): _S.INTERRUPTED,
    (_S.WRITABLE, _E.RESTART_DAMAGED): _S.READ_ONLY,
    (_S.READ_ONLY, _E.REFUSE): _S.REFUSING,
    (_S.READ_ONLY, _E.FAIL): _S.FAILED,
    (_S.READ_ONLY, _E.INTERRUPT): _S.INTERRUPTED,
    (_S.READ_ONLY, _E.RESTART): _S.WRITABLE,
    (_S.REFUSING, _E.FAIL): _S.FAILED,
    (_S.REFUSING, _E.INTERRUPT): _S.INTERRUPTED_REFUSING,
    (_S.FAILED, _E.INTERRUPT): _S.INTERRUPTED_FAILED,
    (_S.INTERRUPTED, _E.REFUSE): _S.INTERRUPTED_REFUSING,
    (_S.INTERRUPTED, _E.FAIL): _S.INTERRUPTED_FAILED,
    (_S.INTERRUPTED, _E.RESTART): _S.WRITABLE,
    (_S.INTERRUPTED, _E.RESTART_DAMAGED): _S.READ_ONLY,
    (_S.INTERRUPTED_REFUSING, _E.FAIL): _S.INTERRUPTED_FAILED,
    (_S.INTERRUPTED_REFUSING, _E.RESTART): _S.REFUSING,
    (_S.INTERRUPTED_REFUSING, _E.RESTART_DAMAGED): _S.REFUSING,
    (_S.INTERRUPTED_FAILED, _E.RESTART): _S.FAILED,
    (_S.INTERRUPTED_FAILED, _E.RESTART_DAMAGED): _S.FAILED,
} | {(state, _E.CLOSE): _S.CLOSED for state in _S}
"""The state after an event; an event that is not here leaves the state as it is."""
