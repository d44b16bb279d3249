import pytest

from logdb.client.consumer.subscription import CheckInterval, Subscription
from logdb.errors import UnknownTopic


def checks(interval, *seen):
    found = []
    for one in seen:
        interval.checked(one)
        found.append(interval.interval_ms)
    return found


def test_while_nothing_changes_looks_come_to_be_far_apart():
    assert checks(CheckInterval(None, 3_000), *[1] * 8) == [100, 200, 400, 800, 1_600, 3_000, 3_000, 3_000]


def test_after_a_change_they_are_near_again():
    assert checks(CheckInterval(None, 3_000), 1, 1, 1, 2, 2) == [100, 200, 400, 100, 200]


def test_where_a_look_costs_nothing_they_stay_so():
    assert checks(CheckInterval(None, 100), 1, 1, 1) == [100, 100, 100]


def test_who_says_how_far_is_taken_at_their_word():
    assert checks(CheckInterval(7, 3_000), 1, 1, 2) == [7, 7, 7]


class Topics:
    """The topics of a session; ``topic_change_count`` None: it does not count their changes."""

    def __init__(self, **counts):
        self.counts, self.looks, self.topic_change_count = counts, 0, 7

    def partition_count(self, topic):
        self.looks += 1
        if topic not in self.counts:
            raise UnknownTopic(topic)
        return self.counts[topic]


def test_topics_are_looked_up_again_only_after_a_change():
    session = Topics(t=1, u=2)
    subscription = Subscription(session, ("t", "u"))
    assert (session.looks, subscription.refresh(), session.looks) == (2, False, 2)
    session.counts["t"], session.topic_change_count = 3, 8
    assert (subscription.refresh(), dict(subscription.counts), session.looks) == (True, {"t": 3, "u": 2}, 4)
    session.topic_change_count = 9  # of another topic
    assert (subscription.refresh(), session.looks) == (False, 6)


def test_a_topic_that_is_gone_is_missed_at_every_look():
    session = Topics(t=1)
    subscription = Subscription(session, ("t",))
    del session.counts["t"]
    session.topic_change_count += 1
    for _ in range(2):
        with pytest.raises(UnknownTopic):
            subscription.refresh()


def test_a_session_that_counts_no_changes_is_asked_each_time():
    session = Topics(t=1)
    session.topic_change_count = None
    subscription = Subscription(session, ("t",))
    session.counts["t"] = 2
    assert subscription.refresh()
    assert session.looks == 2
