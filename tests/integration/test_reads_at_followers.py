"""Consumers in a rack read at a follower (KIP-392): by hand over Kafka's protocol, at three brokers in this process."""

import threading

import pytest

from logdb.requests.topics import DeleteRecords
from logdb_kafka_api.errors import Code
from logdb_replication.controller import commands
from logdb_replication.replica import fetcher
from support.batches import encode_batch
from support.kafka_wire import Wire, fetch
from support.produced import Sender
from support.replicas import Replicas, eventually

NO_NODE = -1


@pytest.fixture
def replicas(tmp_path, request):
    with Replicas(tmp_path, **getattr(request, "param", {})) as cluster:
        cluster.create_topic()
        yield cluster


def fetched(node, offset=0, *, rack="", version=12, **values):
    """The answer of a node for the one partition."""
    with Wire(node.kafka) as wire:
        return fetch(wire, offset, version=version, rack_id=rack, **values)


def outcome(found):
    """Its code, whom it names, and how many bytes of records it has."""
    return Code(found["error_code"]), found["preferred_read_replica"], len(found["records"] or b"")


def append(replicas, *values):
    """Append a batch, which all replicas have then, and know to be committed."""
    log = replicas.leader().log()
    log.append_batches(encode_batch(values), durability="os")
    known(replicas, log.end_offset)


def known(replicas, offset):
    eventually(lambda: all(node.log().high_watermark == offset for node in replicas.nodes.values()))


@pytest.mark.parametrize("version", [11, 12, 13])
def test_the_leader_names_a_follower_in_the_rack_and_sends_nothing(replicas, version):
    append(replicas, b"a", b"b")
    leader, (second, third) = replicas.leader(), replicas.followers()
    for follower in (second, third):
        found = fetched(leader, rack=f"rack-{follower.number}", version=version, max_wait_ms=30_000, min_bytes=1 << 20)
        assert outcome(found) == (Code.NONE, follower.number, 0)
        assert (found["high_watermark"], found["last_stable_offset"], found["log_start_offset"]) == (2, 2, 0)
        assert outcome(fetched(follower, rack=f"rack-{follower.number}", version=version))[2] > 0
    for rack in ("", f"rack-{leader.number}", "elsewhere"):
        code, named, size_bytes = outcome(fetched(leader, rack=rack, version=version))
        assert (code, named) == (Code.NONE, NO_NODE)
        assert size_bytes > 0


def test_a_follower_is_named_only_if_it_is_in_sync_and_has_the_offset(replicas):
    append(replicas, b"a")
    leader, follower = replicas.leader(), replicas.followers()[0]
    rack = f"rack-{follower.number}"
    assert outcome(fetched(leader, 1, rack=rack, max_wait_ms=0)) == (Code.NONE, follower.number, 0)
    assert outcome(fetched(leader, 2, rack=rack)) == (Code.OFFSET_OUT_OF_RANGE, NO_NODE, 0)
    follower.fence()
    replicas.settle()
    assert outcome(fetched(leader, rack=rack))[:2] == (Code.NONE, NO_NODE)
    follower.unfence()
    eventually(lambda: outcome(fetched(leader, rack=rack))[1] == follower.number)


def test_what_a_follower_refuses(replicas):
    append(replicas, b"a")
    replicas.leader().fence()
    replicas.settle()
    follower = next(node for node in replicas.followers() if node.number in replicas.controller.partition().in_sync)
    epoch = replicas.controller.partition().leader_epoch
    rack = f"rack-{follower.number}"
    elsewhere = (Code.NOT_LEADER_OR_FOLLOWER, NO_NODE, 0)
    assert epoch > 0
    eventually(lambda: outcome(fetched(follower, rack=rack, current_leader_epoch=epoch))[0] is Code.NONE)
    assert outcome(fetched(follower, rack=rack, current_leader_epoch=epoch - 1))[0] is Code.FENCED_LEADER_EPOCH
    assert outcome(fetched(follower, rack=rack, current_leader_epoch=epoch + 1))[0] is Code.UNKNOWN_LEADER_EPOCH
    assert outcome(fetched(follower)) == elsewhere, "a client without a rack has gone to the wrong node"
    assert outcome(fetched(follower, rack=rack, version=4)) == elsewhere, "the version has no rack"
    found = fetched(follower, 2, rack=rack)
    assert outcome(found) == elsewhere, "the client asks the leader, and keeps its position"
    assert (found["high_watermark"], found["log_start_offset"]) == (-1, -1), "librdkafka resets at an offset below the high watermark"


def test_a_follower_that_leaves_the_in_sync_set_sends_its_readers_to_the_leader(replicas):
    append(replicas, b"a")
    follower = replicas.followers()[0]
    rack = f"rack-{follower.number}"
    assert outcome(fetched(follower, rack=rack))[0] is Code.NONE
    follower.fence()
    replicas.settle()
    assert outcome(fetched(follower, rack=rack))[0] is Code.NOT_LEADER_OR_FOLLOWER
    follower.unfence()
    eventually(lambda: outcome(fetched(follower, rack=rack))[0] is Code.NONE)


@pytest.mark.parametrize("replicas", [{"lag_ms": 1_500}], indirect=True)
def test_a_follower_that_hears_nothing_from_its_leader_sends_its_readers_away(replicas):
    append(replicas, b"a")
    leader, follower = replicas.leader(), replicas.followers()[0]
    rack = f"rack-{follower.number}"
    assert outcome(fetched(follower, rack=rack))[0] is Code.NONE
    leader.stop()  # and the controller does not know
    eventually(lambda: outcome(fetched(follower, rack=rack))[0] is Code.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize("replicas", [{"lag_ms": 60_000}], indirect=True)
def test_a_follower_serves_nothing_past_its_high_watermark_and_wakes_who_waits_for_it(replicas):
    append(replicas, b"a")
    leader, (second, third) = replicas.leader(), replicas.followers()
    third.manager.close()  # it is in sync, and has no more
    leader.log().append_batches(encode_batch([b"b"]), durability="os")
    eventually(lambda: second.log().end_offset == 2)
    found, answered = {}, threading.Event()

    def wait():
        found.update(fetched(second, 1, rack=f"rack-{second.number}", max_wait_ms=60_000))
        answered.set()

    threading.Thread(target=wait, daemon=True).start()
    for offset in (1, 2):
        empty = fetched(second, offset, rack=f"rack-{second.number}", max_wait_ms=100)
        assert (outcome(empty), empty["high_watermark"]) == ((Code.NONE, NO_NODE, 0), 1)
    whole = fetched(second, rack=f"rack-{second.number}")
    assert outcome(whole) == outcome(fetched(leader)), "one batch, and no more"
    assert not answered.is_set()
    third.fence()
    assert answered.wait(30)
    assert outcome(found)[2] > 0
    assert found["high_watermark"] == 2


def test_transactions_at_a_follower(replicas):
    leader, follower = replicas.leader(), replicas.followers()[0]
    log, rack = leader.log(), f"rack-{follower.number}"
    aborted, committed, last = (Sender(log, number, transactional=True) for number in (7, 8, 9))
    aborted.send(b"0")
    committed.send(b"1")
    aborted.end(commit=False)
    committed.end(commit=True)
    last.send(b"4")
    known(replicas, 5)
    found = fetched(follower, rack=rack, isolation_level=1)
    assert (found["high_watermark"], found["last_stable_offset"]) == (5, 4)
    assert found["aborted_transactions"] == [{"producer_id": 7, "first_offset": 0}]
    assert found["records"] == fetched(leader, isolation_level=1)["records"]
    assert len(found["records"]) < len(fetched(follower, rack=rack)["records"])
    answered = []
    waiting = threading.Thread(target=lambda: answered.append(fetched(follower, 4, rack=rack, isolation_level=1, max_wait_ms=60_000)))
    waiting.start()
    last.end(commit=False)
    waiting.join(30)
    assert answered[0]["last_stable_offset"] > 4
    assert answered[0]["aborted_transactions"] == [{"producer_id": 9, "first_offset": 4}]


@pytest.mark.parametrize("replicas", [{"lag_ms": 60_000}], indirect=True)
def test_the_last_stable_offset_of_a_follower_is_not_past_its_high_watermark(replicas):
    leader, (second, third) = replicas.leader(), replicas.followers()
    sender = Sender(leader.log(), 7, transactional=True)
    sender.send(b"0")
    known(replicas, 1)
    third.manager.close()
    sender.end(commit=True)
    eventually(lambda: second.log().end_offset == 2)
    found = fetched(second, rack=f"rack-{second.number}", isolation_level=1)
    assert (found["high_watermark"], found["last_stable_offset"]) == (1, 1)


def test_a_wait_at_a_follower_goes_on_while_it_begins_to_lead(replicas):
    append(replicas, b"a")
    first, follower = replicas.leader(), replicas.followers()[0]
    answered = []
    waiting = threading.Thread(target=lambda: answered.append(fetched(follower, 1, rack=f"rack-{follower.number}", max_wait_ms=60_000)))
    waiting.start()
    eventually(lambda: follower.log()._watchers)
    replicas.controller.propose(commands.DrainBroker(first.number, draining=True))
    eventually(lambda: replicas.leader() is not first and replicas.leader().led)
    replicas.leader().log().append_batches(encode_batch([b"b"]), durability="os")
    waiting.join(30)
    assert outcome(answered[0])[2] > 0 or outcome(answered[0])[0] is Code.NOT_LEADER_OR_FOLLOWER
    if replicas.leader() is follower:
        assert outcome(answered[0])[0] is Code.NONE


def test_a_follower_whose_log_begins_behind_the_leaders_is_not_named_for_what_it_lacks(replicas):
    for number in range(3):
        append(replicas, b"%d" % number)
    leader, follower = replicas.leader(), replicas.followers()[0]
    rack = f"rack-{follower.number}"
    follower.store.submit(DeleteRecords("t", 0, 2))
    eventually(lambda: outcome(fetched(leader, 1, rack=rack))[1] == NO_NODE)
    assert outcome(fetched(leader, 1, rack=rack))[2] > 0
    assert outcome(fetched(leader, 2, rack=rack))[1] == follower.number
    assert outcome(fetched(follower, 1, rack=rack))[0] is Code.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("replicas", [{"lag_ms": 60_000}], indirect=True)
def test_a_follower_with_readers_hears_of_the_high_watermark_at_once(replicas, monkeypatch):
    """Its fetch, which waits for records, would tell it a minute later."""
    append(replicas, b"a")
    leader, (follower, _) = replicas.leader(), replicas.followers()
    monkeypatch.setattr(fetcher, "_WAIT_MS", 60_000)
    for number in range(1, 4):
        answered = []
        waiting = threading.Thread(
            target=lambda number=number, answered=answered: answered.append(
                fetched(follower, number, rack=f"rack-{follower.number}", max_wait_ms=30_000)
            )
        )
        waiting.start()
        # or the fetch that the append ends is followed by one of a node without readers
        eventually(lambda: any(one.read_ms is not None for one in follower.manager._fetchers.values()))
        leader.log().append_batches(encode_batch([b"%d" % number]), durability="os")
        waiting.join(40)
        assert outcome(answered[0])[2] > 0


def test_records_that_were_deleted_are_read_nowhere_also_without_new_ones(replicas):
    for number in range(3):
        append(replicas, b"%d" % number)
    leader, (follower, _) = replicas.leader(), replicas.followers()
    leader.store.submit(DeleteRecords("t", 0, 2))
    assert outcome(fetched(leader, 1, rack=f"rack-{follower.number}"))[0] is Code.OFFSET_OUT_OF_RANGE
    eventually(lambda: all(one.log().start_offset == 2 for one in replicas.followers()))
