"""What the leader keeps of a follower's session, beside a log whose ends the test sets."""

from logdb.model import TopicPartition
from logdb_kafka_api.replica_session import NOT_KNOWN, Named, ReplicaSession

WHERE = TopicPartition("t", 0)


class Log:
    closed = follows = False
    start_offset, end_offset, high_watermark = 0, 10, 5

    def watch(self, woken):
        self.woken = woken

    def unwatch(self, woken):
        assert woken is self.woken


class Leads:
    """One leadership of one partition."""

    is_over = False

    def __init__(self):
        self.log = Log()

    def left_session(self, node_id, last_fetch):
        pass

    def now_ms(self):
        return 0

    def reported(self, topic, partition, report):
        return self


class Bell:
    def __init__(self):
        self.count = 0

    def set(self):
        self.count += 1


def named(fetch_offset=0, high_watermark=NOT_KNOWN):
    return Named(WHERE, "id", 1, fetch_offset, 1 << 20, 0, high_watermark, 1, 0)


def test_a_follower_that_names_a_partition_again_and_again_takes_no_more_memory():
    session = ReplicaSession(2, 1, Leads())
    for offset in range(100):
        assert session.take_request([named(offset)], []) == {}
        session.take()
        assert [one.named.where for one in session.take_moved()] == [WHERE]
    assert (len(session._moved), len(session._due)) == (1, 0)


def test_a_high_watermark_rings_for_a_follower_with_readers_alone():
    leads, bell = Leads(), Bell()
    session = ReplicaSession(2, 1, leads)
    for has_readers in (False, True):
        session.take_request([named(10, high_watermark=5)], [], has_readers=has_readers)
        session.take()
        session.watch(bell)
        before = bell.count
        leads.log.high_watermark = 6
        leads.log.woken.set()
        assert (bell.count > before, session.has_moved()) == (has_readers, has_readers)
        session.unwatch(bell)
        leads.log.high_watermark = 5


def test_a_log_start_that_moves_on_an_idle_partition_is_told_once():
    leads = Leads()
    session = ReplicaSession(2, 1, leads)
    session.take_request([named(10, high_watermark=5)], [])
    session.take()
    assert session.take_moved() == []
    leads.log.start_offset = 3
    leads.log.woken.set()
    assert [one.named.where for one in session.take_moved()] == [WHERE]
    session.was_told(WHERE, 5, 3)
    leads.log.woken.set()
    assert session.take_moved() == []
