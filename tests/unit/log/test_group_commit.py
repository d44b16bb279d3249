import threading

import pytest

from logdb.log.group_commit import GroupCommit


def run_all(*works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_one_thread_works_each_time():
    calls = []
    group = GroupCommit(lambda: calls.append(1) or len(calls))
    for offset in range(1, 4):
        group.commit(offset)
    assert len(calls) == 3


def test_those_who_come_during_a_sync_share_the_next():
    first_runs, first_may_end = threading.Event(), threading.Event()
    calls, durable = [], [0]

    def work():
        calls.append(1)
        if len(calls) == 1:
            first_runs.set()
            assert first_may_end.wait(60)
            return 1
        return durable[0]

    group = GroupCommit(work)
    leader = threading.Thread(target=group.commit, args=(1,))
    leader.start()
    assert first_runs.wait(60)
    durable[0] = 9
    others = [threading.Thread(target=group.commit, args=(offset,)) for offset in range(2, 10)]
    for other in others:
        other.start()
    while True:
        with group._mutex:
            if len(group._waiting) == len(others):
                break
    first_may_end.set()
    for thread in (leader, *others):
        thread.join(60)
        assert not thread.is_alive()
    assert len(calls) == 2


def test_a_failure_is_told_each_caller():
    def work():
        raise OSError("broken")

    group, failures = GroupCommit(work), []

    def commit():
        with pytest.raises(OSError, match="broken"):
            group.commit(1)
        failures.append(1)

    run_all(*[commit] * 8)
    assert len(failures) == 8


def test_a_leader_that_is_cut_off_while_it_hands_on_leaves_no_thread_waiting():
    runs, may_end = threading.Event(), threading.Event()

    def work():
        runs.set()
        assert may_end.wait(60)
        return 9

    class CutOff(BaseException):
        pass

    class Interrupted(GroupCommit):
        def _hand_on(self, durable):
            if threading.current_thread() is leader:
                raise CutOff
            super()._hand_on(durable)

    def lead():
        with pytest.raises(CutOff):
            group.commit(1)

    group = Interrupted(work)
    leader = threading.Thread(target=lead)
    leader.start()
    assert runs.wait(60)
    others = [threading.Thread(target=group.commit, args=(offset,)) for offset in range(2, 10)]
    for other in others:
        other.start()
    may_end.set()
    for thread in (leader, *others):
        thread.join(60)
        assert not thread.is_alive()
