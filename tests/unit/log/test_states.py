"""Every transition of the states of a log, on a log."""

import itertools

import pytest

import logdb
from logdb.errors import Closed
from logdb.log.log import Log
from logdb.log.states import ALLOWS, TRANSITIONS, WriterEvent, WriterState
from support.interrupts import Interrupted

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


@pytest.mark.parametrize("event", [WriterEvent.REFUSE, WriterEvent.FAIL, WriterEvent.CLOSE])
def test_an_event_that_comes_again_after_an_interrupt_is_whole(log, event):
    log._change(WriterEvent.RESTART)
    for number in itertools.count(1):
        log._enter(WriterState.WRITABLE)
        log.tell_builder()
        interrupted = Interrupted(number, lambda: log._change(event))
        log._change(event)
        with pytest.raises(Closed):
            log.append(b"x")
        assert log.refuses_writes == (event is not WriterEvent.REFUSE), interrupted.place
        if interrupted.place is None:
            break
    assert number > 3


def test_a_refusal_while_other_configs_are_told_holds(log, monkeypatch):
    tell = log._configure

    def late(**what):
        monkeypatch.setattr(log, "_configure", tell)
        log._change(WriterEvent.FAIL)
        tell(**what)

    monkeypatch.setattr(log, "_configure", late)
    log.alter(log.config)
    with pytest.raises(Closed):
        log.append(b"x")


def test_an_end_of_fsync_only_while_other_configs_are_told_holds(log, monkeypatch):
    log.fsync_only = True
    tell = log._configure

    def late(**what):
        monkeypatch.setattr(log, "_configure", tell)
        log._end_fsync_only()
        tell(**what)

    monkeypatch.setattr(log, "_configure", late)
    log.alter(log.config)
    assert log.append(b"x") == 1
    assert not log.fsync_only


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
