"""How long an election of many preferred leaders waits; the elections themselves: ``test_machine``."""

from logdb_replication.controller.elections import HAND_OVER_S, HAND_OVERS_S, HandOverWait


def test_leaders_that_get_on_are_waited_for():
    wait = HandOverWait(3, 100.0)
    assert wait.left_s(3, 100.0 + HAND_OVER_S - 1) == 1
    assert wait.left_s(2, 100.0 + HAND_OVER_S - 1) == HAND_OVER_S
    assert wait.left_s(2, 100.0 + 2 * HAND_OVER_S - 1) == 0
    assert HandOverWait(3, 100.0).left_s(0, 100.0) == 0


def test_a_slow_leader_of_many_partitions_is_waited_for_once():
    wait, now_s, count = HandOverWait(1_000, 100.0), 100.0, 1_000
    while wait.left_s(count, now_s):
        now_s, count = now_s + 1, count - 1
    assert now_s == 100.0 + HAND_OVERS_S


def test_a_clients_time_is_kept():
    assert HandOverWait(3, 100.0, 102.0).left_s(3, 101.0) == 1
