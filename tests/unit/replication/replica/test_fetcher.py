"""What a follower says of a partition, beside a log whose state the test sets."""

from types import SimpleNamespace

from logdb.model import TopicPartition
from logdb.store.protocols import DAMAGED_OFFSET
from logdb_replication.replica.fetcher import FollowedPartition


def followed(**changes):
    log = SimpleNamespace(**{"start_offset": 0, "end_offset": 13, "flushed_offset": 13, "high_watermark": 10, "damage": None, **changes})
    log.read_only_reason = None
    one = FollowedPartition(TopicPartition("t", 0), "id", 5, log)
    one.follower.is_checked = True
    return one


def test_of_a_partition_that_is_over_nothing_is_flushed():
    """Its log may have records of the next leader epoch by now, which the former leader would take for its own."""
    one = followed()
    assert one.asked()["flushed_offset"] == 13
    one.end()
    assert one.asked()["flushed_offset"] == -1


def test_damage_of_the_next_epoch_is_not_told_to_the_former_leader():
    one = followed(damage="bytes")
    assert one.asked()["flushed_offset"] == DAMAGED_OFFSET
    one.end()
    assert one.asked()["flushed_offset"] == -1
