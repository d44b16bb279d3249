"""Sessions on a clock that the test moves."""

from logdb_replication.controller.sessions import Sessions


def test_a_broker_that_is_not_heard_for_a_session_has_lapsed():
    sessions = Sessions(1000, 50, 250)
    sessions.begin(0)
    for clock in range(50, 2000, 50):
        sessions.passed(clock, [1, 2])
        sessions.heard(1)
        assert sessions.is_alive(1)
        assert sessions.lapsed() == ([2] if clock >= 1050 else [])
    sessions.forget(2)
    assert sessions.lapsed() == []
    assert not sessions.is_alive(2)


def test_a_new_leadership_gives_each_a_whole_session():
    sessions = Sessions(1000, 50, 250)
    sessions.begin(0)
    sessions.passed(50, [1])
    for clock in range(100, 1050, 50):
        sessions.passed(clock, [1])
    sessions.begin(500_000)
    sessions.passed(500_050, [1])
    for clock in range(500_100, 501_050, 50):
        sessions.passed(clock, [1])
        assert sessions.lapsed() == []
    sessions.passed(501_050, [1])
    assert sessions.lapsed() == [1]


def test_a_controller_that_did_not_run_could_not_hear():
    sessions = Sessions(1000, 50, 250)
    sessions.begin(0)
    sessions.passed(50, [1])
    sessions.passed(3_600_000, [1])
    sessions.passed(10, [1])  # nor is it held against a broker that the clock goes back
    assert sessions.lapsed() == []


def test_a_fenced_broker_comes_back_when_it_knows_what_the_controller_did():
    sessions = Sessions(1000, 50, 250)
    assert sessions.caught_up(1, 7, 20, 20)
    assert not sessions.caught_up(1, 7, 10, 20)
    assert not sessions.caught_up(1, 7, 19, 90)
    assert sessions.caught_up(1, 7, 20, 200)
    sessions.unfenced(1)
    assert not sessions.caught_up(1, 7, 5, 6)
    assert sessions.caught_up(1, 8, 5, 5)  # another registration


def test_what_a_broker_has_to_know_does_not_grow_while_its_return_is_decided():
    """A controller that is starved may fail to decide it; a node with many partitions is always some states behind."""
    sessions = Sessions(1000, 50, 250)
    sessions.begin(0)
    for index in range(20, 90, 10):
        sessions.knows(1, index)
        assert sessions.caught_up(1, 7, index, index + 50) == (index >= 70)
        assert sessions.behind(1) == max(0, 70 - index)
    sessions.forget(1)
    assert not sessions.caught_up(1, 7, 80, 90), "it was fenced again"
    assert sessions.behind(1) == 10
    sessions.unfenced(1)
    assert sessions.behind(1) is None


def test_the_session_of_a_broker_that_is_heard_late_is_longer():
    sessions = Sessions(1000, 50, 250)
    sessions.begin(0)
    last = {1: 0, 2: 0}
    for clock in range(50, 10_000, 50):
        sessions.passed(clock, [1, 2])
        for node, every in ((1, 250), (2, 950)):
            if clock % every == 0:
                sessions.heard(node)
                last[node] = clock
    for clock in range(10_000, 13_000, 50):
        sessions.passed(clock, [1, 2])
        assert sessions.is_alive(1) == (clock - last[1] < 1000)
        assert sessions.is_alive(2) or clock - last[2] >= 2000
    assert not sessions.is_alive(2)
