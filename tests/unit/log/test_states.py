"""Every transition of the states of a log, on a log."""

import pytest

import logdb
from logdb.errors import Closed
from logdb.log.log import Log
from logdb.log.states import ALLOWS, TRANSITIONS, WriterEvent, WriterState

PATHS = {
    WriterState.WRITABLE: (),
    WriterState.READ_ONLY: (WriterEvent.RESTART_DAMAGED,),
    WriterState.REFUSING: (WriterEvent.REFUSE,),
    WriterState.FAILED: (WriterEvent.FAIL,),
    WriterState.INTERRUPTED: (WriterEvent.INTERRUPT,),
    WriterState.INTERRUPTED_REFUSING: (WriterEvent.INTERRUPT, WriterEvent.REFUSE),
    WriterState.INTERRUPTED_FAILED: (WriterEvent.FAIL, WriterEvent.INTERRUPT),
    WriterState.CLOSED: (WriterEvent.CLOSE,),
}


@pytest.fixture
def log(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        log = db.log("t")
        log.append(b"0")
        log.flush()
        yield log


def in_state(log: Log, state: WriterState) -> Log:
    for event in PATHS[state]:
        log._change(event)
    assert log.state is state
    return log


@pytest.mark.parametrize("state", WriterState)
@pytest.mark.parametrize("event", WriterEvent)
def test_a_transition(log, state, event):
    in_state(log, state)
    log._change(event)
    allows = ALLOWS[log.state]
    assert log.state is TRANSITIONS.get((state, event), state)
    assert (log.refuses_writes, log.interrupted, log.closed) == (not allows.writes, allows.is_interrupted, allows.is_closed)
    if allows.appends:
        assert log.append(b"x") == 1
        log.flush()
    else:
        for append in (lambda: log.append(b"x"), lambda: log.append_many([b"x"]), lambda: log.append_batches(b"x")):
            with pytest.raises(Closed):
                append()
        assert log.end_offset == 1
    if not allows.writes:
        with pytest.raises(Closed):
            log.sync()


def test_what_is_final_stays():
    assert set(ALLOWS) == set(WriterState) == set(PATHS)
    for state in WriterState:
        assert TRANSITIONS[state, WriterEvent.CLOSE] is WriterState.CLOSED
    for (state, event), after in TRANSITIONS.items():
        assert ALLOWS[after].is_closed or not ALLOWS[state].is_closed
        if event is not WriterEvent.CLOSE:
            assert "FAILED" in after.name or "FAILED" not in state.name, "a failed sync is final"
            assert not ALLOWS[after].appends or "REFUSING" not in state.name, "a log that ends takes no records again"
            assert ALLOWS[after].is_interrupted or "RESTART" in event.name or not ALLOWS[state].is_interrupted


def test_each_state_is_reached():
    reached = {WriterState.WRITABLE}
    while more := {after for (state, _), after in TRANSITIONS.items() if state in reached} - reached:
        reached |= more
    assert reached == set(WriterState)
