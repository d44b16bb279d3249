import errno
import sys
import threading
from concurrent.futures import Future

import pytest

import logdb
from logdb import errors
from logdb.broker import runner
from logdb.broker.runner import Shard, tickets
from logdb.broker.timers import Timers
from logdb.coordinator.effects import Effects
from logdb.model import TopicPartition
from support.coordinators import CountDown, Do, KeyValues, Later, Note, Put, Release
from support.faulty_io import FaultyIO


class Bench:
    """A shard on a log, with a disk that can fail, and actions that are noted."""

    def __init__(self, path, durability="interval"):
        self.io = FaultyIO()
        self.path, self.durability = path, durability
        self.acted, self.act_fails, self.interrupt_at = [], None, None
        self.timers = Timers(self.io, lambda key: key[0].fire(key[1]))
        self.open()

    def open(self):
        self.db = logdb.open(self.path, io=self.io, durability=self.durability)
        self.db.create_topic("t", if_not_exists=True)
        self.keeper = KeyValues()
        self.shard = Shard(self.db.log("t"), self.keeper, epoch=0, clock=lambda: 7, timers=self.timers, execute=self.act)

    def act(self, action):
        self.acted.append(action)
        if action == self.interrupt_at:
            self.interrupt_at = None
            raise KeyboardInterrupt
        if self.act_fails is not None:
            raise self.act_fails

    def reopen(self):
        self.db.close()
        self.open()

    def put(self, key, value, **options):
        return self.shard.call(Put(ticket=next(tickets), key=key, value=value, **options))


@pytest.fixture(params=["os", "interval", "fsync"])
def level(request):
    return request.param


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path / "db")
    yield bench
    bench.io.heal()
    bench.timers.stop()
    bench.db.close()


def test_what_was_answered_is_there_after_a_restart(tmp_path, level):
    bench = Bench(tmp_path / "db", level)
    assert bench.put(b"a", b"1") is None
    assert bench.put(b"a", b"2") == b"1"
    assert bench.put(b"b", b"3") is None
    bench.put(b"b", None)
    assert bench.keeper.offsets == [0, 1, 2, 3]
    bench.reopen()
    assert bench.shard.query(lambda keeper: keeper.state) == {b"a": b"2"}
    assert [offset for offset, *_ in bench.keeper.replayed] == [1, 3], "the last of each key is enough"
    bench.db.close()
    bench.timers.stop()


def test_an_answer_waits_for_a_sync_where_that_is_wanted(tmp_path, level):
    bench = Bench(tmp_path / "db", level)
    bench.put(b"a", b"1", sync=True)  # the first sync is of other files too
    before = bench.io.count("fdatasync", "t-0")
    bench.put(b"a", b"2", sync=True)
    synced = bench.io.count("fdatasync", "t-0") - before
    assert synced == (0 if level == "os" else 1)
    log = bench.db.log("t")
    assert (log.view.flushed.offset == log.end_offset) == (level != "os")
    bench.timers.stop()
    bench.db.close()


def test_an_answer_may_come_with_a_later_event(bench):
    futures = [bench.shard.submit(Later(ticket=next(tickets))) for _ in range(3)]
    assert not any(future.done() for future in futures)
    assert bench.shard.call(Release(ticket=next(tickets), result="now")) == 3
    assert [future.result() for future in futures] == ["now"] * 3


def test_an_error_as_an_answer_is_raised(bench):
    future = bench.shard.submit(Later(ticket=next(tickets)))
    bench.shard.call(Release(ticket=next(tickets), result=errors.UnknownGroup("g")))
    with pytest.raises(errors.UnknownGroup):
        future.result()


def test_a_timer_answers(bench):
    assert bench.shard.call(Later(ticket=next(tickets), delay_ms=1)) == "late"


def test_a_timer_that_was_cancelled_does_not(bench):
    future = bench.shard.submit(Later(ticket=next(tickets), delay_ms=60_000))
    bench.shard.call(Release(ticket=next(tickets), result="released"))
    assert future.result() == "released"
    bench.shard.fire("later")  # as if the thread had been about to


def test_an_action_ends_in_an_event(bench):
    assert bench.shard.call(Do(ticket=next(tickets), action=Note("it"), sync=True)) == "it"
    assert bench.acted == [Note("it")]
    assert bench.keeper.state == {}


def test_an_action_that_fails_ends_in_an_event_too(bench):
    bench.act_fails = errors.DiskFull("f", 1, "no room")
    with pytest.raises(errors.DiskFull):
        bench.shard.call(Do(ticket=next(tickets), action=Note("it")))
    assert bench.keeper.failures == [bench.act_fails]


def test_the_error_of_an_action_keeps_no_files_open(bench):
    """Its frames have the log, whose segments may be deleted before the garbage collector frees them."""
    bench.act_fails = errors.DiskFull("f", 1, "no room")
    future = bench.shard.submit(Do(ticket=next(tickets), action=Note("it")))
    assert future.exception() is bench.act_fails
    assert bench.act_fails.__traceback__ is None


def test_actions_that_lead_to_actions_are_a_loop(bench):
    deep = 2 * sys.getrecursionlimit()
    assert bench.shard.call(Do(ticket=next(tickets), action=CountDown(deep))) == "zero"
    assert bench.acted == [CountDown(left) for left in range(deep, -1, -1)]


def test_actions_that_ctrl_c_interrupts_go_on_where_they_were(bench):
    bench.keeper.recovery = Effects(actions=(Note("first"), CountDown(2), Note("last")))
    bench.keeper.acting = 0
    bench.interrupt_at = CountDown(1)
    with pytest.raises(KeyboardInterrupt):
        bench.put(b"a", b"1")
    assert bench.acted == [Note("first"), CountDown(2), CountDown(1)]
    bench.put(b"a", b"2")
    assert bench.acted == [Note("first"), CountDown(2), CountDown(1), CountDown(1), CountDown(0), Note("last")]


def test_recovery_is_carried_out_once(bench):
    bench.keeper.recovery = Effects(actions=(Note("recovered"),))
    bench.put(b"a", b"1")
    bench.put(b"a", b"2")
    assert bench.acted == [Note("recovered")]


def test_a_full_disk_leaves_the_state_as_it_was_until_the_log_has_room(bench):
    bench.put(b"a", b"1")
    bench.io.fail("pwrite", errno.ENOSPC, "t-0")
    with pytest.raises(errors.DiskFull):
        bench.put(b"a", b"2")
    assert bench.keeper.state == {b"a": b"1"}
    with pytest.raises(errors.DiskFull):
        bench.put(b"b", b"3")
    bench.io.heal()
    assert bench.put(b"c", b"4") is None
    state = dict(bench.keeper.state)
    assert state == {b"a": b"1", b"c": b"4"}
    bench.reopen()
    assert bench.shard.query(lambda keeper: keeper.state) == state


def test_an_action_whose_record_found_no_room_is_carried_out_once_when_it_is_asked_for_again(bench):
    bench.put(b"a", b"1")
    bench.io.fail("pwrite", errno.ENOSPC, "t-0")
    with pytest.raises(errors.DiskFull):
        bench.shard.call(Do(ticket=next(tickets), action=Note("it"), sync=True))
    assert bench.acted == []
    bench.io.heal()
    bench.put(b"b", b"2")
    assert bench.acted == []
    bench.shard.call(Do(ticket=next(tickets), action=Note("it"), sync=True))
    assert bench.acted == [Note("it")]


def test_a_failed_sync_makes_the_shard_refuse(bench):
    bench.put(b"a", b"1")
    future = bench.shard.submit(Later(ticket=next(tickets)))
    bench.io.fail("fdatasync", errno.EIO, "t-0")
    with pytest.raises(errors.SyncFailed):
        bench.put(b"a", b"2", sync=True)
    bench.io.heal()
    with pytest.raises(errors.SyncFailed):
        bench.shard.call(Release(ticket=next(tickets)))
    with pytest.raises(errors.SyncFailed):
        future.result()


def test_records_that_can_wait_are_written_before_the_next_ones(bench):
    bench.put(b"a", b"1", deferred=True)
    log = bench.db.log("t")
    assert (bench.keeper.state, log.end_offset) == ({b"a": b"1"}, 0)
    bench.put(b"b", b"2")
    assert bench.keeper.offsets[-1] == 1
    assert [record.key for record in log.read(0)] == [b"a", b"b"]


@pytest.mark.parametrize("how", ["in a while", "at the end"])
def test_records_that_can_wait_are_written_without_others_too(bench, how):
    bench.put(b"a", b"1", deferred=True)
    if how == "at the end":
        bench.shard.finish()
    log = bench.db.log("t")
    assert bench.db.session.wait({TopicPartition("t", 0): 0}, 10_000)
    assert [record.key for record in log.read(0)] == [b"a"]
    bench.shard.finish()
    assert log.end_offset == 1, "once"


def test_records_that_can_wait_go_on_doing_so_on_a_full_disk(bench):
    bench.put(b"a", b"1")
    bench.put(b"b", b"2", deferred=True)
    bench.io.fail("pwrite", errno.ENOSPC, "t-0")
    with pytest.raises(errors.DiskFull):
        bench.put(b"c", b"3")
    bench.shard.finish()  # which cannot
    bench.io.heal()
    bench.put(b"d", b"4")
    keys = [record.key for record in bench.db.log("t").read(0)]
    assert keys == [b"a", b"b", b"d"], "what was refused is not there"
    assert bench.keeper.offsets == [0, 0, 2]


def test_a_write_of_which_a_part_is_in_the_log_is_finished_first(bench):
    for key in (b"a", b"b", b"c", b"d", b"e"):
        bench.put(key, bytes(60_000), deferred=True)
    bench.io.room = 130_000
    bench.io.free_bytes = lambda path: 1 << 40
    with pytest.raises(errors.DiskFull) as caught:
        bench.put(b"f", bytes(60_000))
    assert 0 < len(caught.value.offsets) < 6
    bench.io.heal()
    bench.put(b"g", b"1")
    keys = [record.key for record in bench.db.log("t").read(0)]
    assert keys == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert bench.keeper.offsets[-2:] == [5, 6]


def test_records_that_can_wait_are_there_once_where_ctrl_c_comes_behind_their_append(bench):
    class Interrupting(list):
        def clear(self):
            bench.shard._deferred = list(self)
            raise KeyboardInterrupt

    bench.put(b"a", b"1", deferred=True)
    bench.shard._deferred = Interrupting(bench.shard._deferred)
    with pytest.raises(KeyboardInterrupt):
        bench.put(b"a", b"2")
    bench.put(b"b", b"3")
    assert bench.keeper.state == {b"a": b"2", b"b": b"3"}
    assert [record.value for record in bench.db.log("t").read(0)] == [b"1", b"2", b"3"]


def test_many_threads_are_one_after_the_other(bench):
    def work(name):
        for number in range(50):
            bench.put(name, b"%d" % number)

    threads = [threading.Thread(target=work, args=(b"%d" % number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.keeper.offsets == list(range(200))
    assert bench.keeper.state == {b"%d" % number: b"49" for number in range(4)}


def test_cancel_answers_waiting_requests(bench):
    future = bench.shard.submit(Later(ticket=next(tickets)))
    assert isinstance(future, Future)
    bench.shard.cancel(errors.Closed("closed"))
    with pytest.raises(errors.Closed):
        future.result()


def test_the_next_thread_does_what_ctrl_c_has_interrupted(bench):
    bench.act_fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.shard.call(Do(ticket=next(tickets), action=Note("it")))
    bench.act_fails = None
    bench.put(b"a", b"1")
    assert bench.acted == [Note("it")] * 2, "twice does no harm, never does"
    assert b"doing" not in bench.keeper.state


def test_an_append_that_ctrl_c_interrupts_is_accepted_if_it_came_to_be(bench, monkeypatch):
    bench.put(b"a", b"1")
    append = bench.shard._append

    def interrupted(after):
        def run(effects):
            if after:
                append(effects)
            raise KeyboardInterrupt

        return run

    for after in (False, True):
        monkeypatch.setattr(bench.shard, "_append", interrupted(after))
        with pytest.raises(KeyboardInterrupt):
            bench.put(b"a", b"2")
        monkeypatch.setattr(bench.shard, "_append", append)
        assert bench.put(b"b", b"") in (None, b"")
        assert bench.keeper.state[b"a"] == (b"2" if after else b"1")
    state = dict(bench.keeper.state)
    bench.reopen()
    assert bench.shard.query(lambda keeper: keeper.state) == state


def test_a_shard_knows_what_lies_above_the_high_watermark(bench):
    bench.put(b"a", b"1")
    bench.db.log("t").move_high_watermark(1, leader_epoch=0)
    bench.put(b"a", b"2")
    following = Shard(bench.db.log("t"), KeyValues(), epoch=1, clock=lambda: 7, timers=bench.timers, execute=bench.act)
    assert following.call(Put(ticket=next(tickets), key=b"a", value=b"3")) == b"2"


def test_a_shard_is_not_loaded_before_its_replay_has_come_to_the_log_end(bench, monkeypatch):
    bench.put(b"a", b"1")
    log, read_batches = bench.db.log("t"), bench.db.log("t").read_batches
    following = Shard(log, KeyValues(), epoch=1, clock=lambda: 7, timers=bench.timers, execute=bench.act)
    monkeypatch.setattr(log, "read_batches", lambda offset, **_: (memoryview(b""), offset))
    with pytest.raises(errors.CoordinatorLoading):
        following.call(Put(ticket=next(tickets), key=b"a", value=b"2"))
    monkeypatch.setattr(log, "read_batches", read_batches)
    assert following.call(Put(ticket=next(tickets), key=b"a", value=b"2")) == b"1"


def test_a_commit_that_fails_while_the_shard_resigns_leaves_no_timer(bench, monkeypatch):
    bench.put(b"a", b"1")

    def fail(*_, **__):
        bench.shard.end(errors.NotCoordinator("t", 0, 1))
        raise errors.DiskFull("f", 1, "no room")

    monkeypatch.setattr(bench.db.log("t"), "commit_to", fail)
    with pytest.raises(errors.DiskFull):
        bench.put(b"a", b"2")
    assert not bench.timers._due_ms


@pytest.mark.parametrize("key", [runner._RETRY, runner._DEFERRED])
def test_a_timer_that_is_due_while_the_shard_resigns_is_not_set_again(bench, monkeypatch, caplog, key):
    bench.put(b"a", b"1")
    bench.timers.stop()
    timers = bench.shard._timers = Timers(bench.io, print)
    settle = bench.shard._finish_failed_write

    def resigned():
        bench.shard.end(errors.NotCoordinator("t", 0, 1))
        settle()

    monkeypatch.setattr(bench.shard, "_finish_failed_write", resigned)
    for _ in "set before the end", "set after it":
        timers.set((bench.shard, key), 0)
        bench.shard.fire(key)
        assert not timers._due_ms
    assert not caplog.records


def test_what_a_timer_began_and_another_leader_commits_is_tried_again_without_a_traceback(bench, monkeypatch, caplog):
    bench.put(b"a", b"1")
    bench.timers.stop()
    timers = bench.shard._timers = Timers(bench.io, print)
    error = errors.NotLeaderOrFollower("t", 0, 1, 2)

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(bench.db.log("t"), "commit_to", fail)
    timers.set((bench.shard, runner._RETRY), 0)
    bench.shard.fire(runner._RETRY)
    assert [one.getMessage() for one in caplog.records] == [f"t-0: a timer: {error}"]
    assert timers._due_ms
