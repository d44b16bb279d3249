"""The APIs of groups in each of their versions, request by request."""

import pytest

from logdb.model import OffsetAndMetadata, TopicPartition
from logdb_kafka_api.apis import APIS
from support.cluster_wire import wire_to
from support.kafka_door import kafka_door
from support.kafka_wire import KEYS
from support.waiting import until


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with kafka_door(tmp_path_factory.mktemp("kafka") / "db") as served:
        served.db.create_topic("t", partitions=2)
        yield served


@pytest.fixture
def wire(served):
    with wire_to(served.address) as wire:
        yield wire


@pytest.fixture
def group(served, request):
    """A group of the test's own."""
    return request.node.name


BY_ID = 10  # the first version of OffsetCommit and of OffsetFetch that names topics by their ids


def versions(name):
    return APIS[KEYS[name]].request.versions


def join(wire, group, version=9, **values):
    protocols = [{"name": "range", "metadata": b"mine"}]
    defaults = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer", "protocols": protocols}
    return wire.ask("JoinGroup", version, group_id=group, **defaults | values)


PROTOCOL = {"protocol_type": "consumer", "protocol_name": "range"}  # that a member syncs with, from version 5 on


def member_of(wire, group, version=9):
    """Join as the only member, and sync."""
    member_id = join(wire, group, version).get("member_id")
    joined = join(wire, group, version, member_id=member_id)
    assert joined["error_code"] == 0
    member = {"group_id": group, "generation_id": joined["generation_id"], "member_id": member_id}
    synced = wire.ask("SyncGroup", 5, **member, **PROTOCOL, assignments=[{"member_id": member_id, "assignment": b"all"}])
    assert (synced["error_code"], synced["assignment"], synced["protocol_name"]) == (0, b"all", "range")
    return member


# ---------------------------------------------------------------- members


@pytest.mark.parametrize("version", versions("JoinGroup"))
def test_a_member_joins(wire, group, version):
    first = join(wire, group, version)
    if version >= 4:
        assert first["error_code"] == 79  # join again with the id
        first = join(wire, group, version, member_id=first["member_id"])
    assert (first["error_code"], first["generation_id"], first["protocol_name"]) == (0, 1, "range")
    assert first["leader"] == first["member_id"] == first["members"][0]["member_id"]
    assert first["members"][0]["metadata"] == b"mine"
    assert first["protocol_type"] == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", [0, 6, 7, 9])
def test_a_join_that_is_refused(wire, group, version):
    for timeout_ms in (0, 5_999, 1_800_001, 2**31 - 1):
        assert join(wire, group, version, session_timeout_ms=timeout_ms)["error_code"] == 26
    assert join(wire, "", version)["error_code"] == 24
    unknown = join(wire, group, version, member_id="nobody")
    assert (unknown["error_code"], unknown["member_id"], unknown["protocol_name"]) == (25, "nobody", None if version >= 7 else "")


@pytest.mark.parametrize("version", versions("JoinGroup"))
def test_members_have_only_so_much_memory(served, wire, group, version, monkeypatch):
    monkeypatch.setattr(served.db._session._member_memory, "bytes_max", 20_000)
    large = [{"name": "range", "metadata": bytes(15_000)}]
    first = join(wire, group, version, protocols=large)
    assert (first["error_code"], join(wire, group, version)["error_code"]) == (81, 79 if version >= 4 else 0)


def vanish(served, group, version, session_timeout_ms=2_000):
    """Be one more member, and be gone without having read an answer."""

    def member_count():
        there = any(one.group_id == group for one in served.db._session.groups())
        return len(served.db._session.describe_group(group).members) if there else 0

    with wire_to(served.address) as gone:
        before_count = member_count()
        values = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"gone"}]}
        gone.send("JoinGroup", version, group_id=group, session_timeout_ms=session_timeout_ms, rebalance_timeout_ms=60_000, **values)
        until(lambda: member_count() > before_count)


@pytest.mark.parametrize("version", [0, 3])
def test_a_member_that_vanished_before_its_first_answer_is_gone_with_its_session(tmp_path, version):
    """From version 4 on it would have been given its id first (KIP-394)."""
    with kafka_door(tmp_path / "db", session_timeout_ms_min=1) as served, wire_to(served.address) as wire:
        vanish(served, "g", version, session_timeout_ms=200)
        joined = join(wire, "g", version)  # waits for the one that is gone, until its session ends
        assert [one["member_id"] for one in joined["members"]] == [joined["member_id"]] == [joined["leader"]]
        me = {"group_id": "g", "member_id": joined["member_id"]}
        wire.ask("SyncGroup", 0, **me, generation_id=joined["generation_id"])
        vanish(served, "g", version)  # while the other one has not joined again yet
        again = join(wire, "g", version, member_id=me["member_id"])
        assert len(again["members"]) == 2
        wire.ask("SyncGroup", 0, **me, generation_id=again["generation_id"])
        until(lambda: wire.ask("Heartbeat", 0, **me, generation_id=again["generation_id"])["error_code"] == 27)
        assert len(join(wire, "g", version, member_id=me["member_id"])["members"]) == 1


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_leader_that_comes_back_assigns_nothing(wire, group, version):
    member_id = join(wire, group, version, group_instance_id="one")["member_id"]
    assignments = [{"member_id": member_id, "assignment": b"all"}]
    wire.ask("SyncGroup", 3, group_id=group, generation_id=1, member_id=member_id, group_instance_id="one", assignments=assignments)
    back = join(wire, group, version, group_instance_id="one")
    assert (back["error_code"], back["generation_id"]) == (0, 1)
    assert back["skip_assignment"] == (version >= 9)
    assert back["member_id"] != member_id
    assert back["leader"] == (back["member_id"] if version >= 9 else member_id)  # as Kafka: the id that the leader had before
    assert [one["group_instance_id"] for one in back["members"]] == (["one"] if version >= 9 else [])
    synced = wire.ask("SyncGroup", 3, group_id=group, generation_id=1, member_id=back["member_id"], group_instance_id="one")
    assert synced["assignment"] == b"all"


@pytest.mark.parametrize("version", versions("SyncGroup"))
def test_syncs_and_heartbeats(wire, group, version):
    member = member_of(wire, group)
    again = wire.ask("SyncGroup", version, **member, **PROTOCOL)
    assert (again["error_code"], again["assignment"]) == (0, b"all")
    beat = min(version, 4)
    assert wire.ask("Heartbeat", beat, **member)["error_code"] == 0
    assert wire.ask("Heartbeat", beat, **member | {"generation_id": 9})["error_code"] == 22
    assert wire.ask("Heartbeat", beat, **member | {"member_id": "nobody"})["error_code"] == 25
    if version >= 5:
        for other in ({"protocol_type": "connect"}, {"protocol_type": None}, {"protocol_name": None}):
            assert wire.ask("SyncGroup", version, **member, **PROTOCOL | other)["error_code"] == 23


@pytest.mark.parametrize("version", versions("LeaveGroup"))
def test_members_leave(wire, group, version):
    member_id = member_of(wire, group)["member_id"]
    if version < 3:
        assert wire.ask("LeaveGroup", version, group_id=group, member_id=member_id)["error_code"] == 0
        assert wire.ask("LeaveGroup", version, group_id=group, member_id=member_id)["error_code"] == 25
        return
    members = [
        {"member_id": member_id, "group_instance_id": "of another"},
        {"member_id": member_id},
        {"member_id": "", "group_instance_id": "none"},
        {"member_id": "nobody"},
    ]
    answer = wire.ask("LeaveGroup", version, group_id=group, members=members)
    assert answer["error_code"] == 0
    assert [(one["member_id"], one["group_instance_id"], one["error_code"]) for one in answer["members"]] == [
        (member_id, "of another", 25),
        (member_id, None, 0),
        ("", "none", 25),
        ("nobody", None, 25),
    ]


# ---------------------------------------------------------------- offsets


@pytest.mark.parametrize("version", [one for one in versions("OffsetCommit") if one < BY_ID])
def test_offsets_are_committed(wire, served, group, version):
    partitions = [{"partition_index": at, "committed_offset": 5, "committed_metadata": None if at else "note"} for at in (0, 1, 7)]
    topics = [{"name": "t", "partitions": partitions}, {"name": "none", "partitions": partitions[:1]}]
    answer = wire.ask("OffsetCommit", version, group_id=group, topics=topics)
    codes = {(topic["name"], one["partition_index"]): one["error_code"] for topic in answer["topics"] for one in topic["partitions"]}
    assert codes == {("t", 0): 0, ("t", 1): 0, ("t", 7): 3, ("none", 0): 3}
    assert served.db._session.fetch_offsets(group) == {("t", 0): (5, -1, "note"), ("t", 1): (5, -1, "")}
    partitions[0]["committed_metadata"] = "x" * 5000
    answer = wire.ask("OffsetCommit", version, group_id=group, topics=[{"name": "t", "partitions": partitions[:1]}])
    assert answer["topics"][0]["partitions"][0]["error_code"] == 12
    partitions[1]["committed_offset"] = 6  # what is too large refuses its partition alone
    answer = wire.ask("OffsetCommit", version, group_id=group, topics=[{"name": "t", "partitions": partitions}])
    assert [one["error_code"] for one in answer["topics"][0]["partitions"]] == [12, 0, 3]
    assert served.db._session.fetch_offsets(group) == {("t", 0): (5, -1, "note"), ("t", 1): (6, -1, "")}
    if version >= 1:
        stranger = {"member_id": "nobody", "generation_id_or_member_epoch": 1}
        answer = wire.ask("OffsetCommit", version, group_id=group, topics=[{"name": "t", "partitions": partitions[1:2]}], **stranger)
        assert answer["topics"][0]["partitions"][0]["error_code"] == 25


def test_a_negative_offset_resets_a_group(wire, served, group):
    """kafkajs commits -1 or -2 to begin anew; Kafka stores any number, and its clients take a negative one for none."""
    served.db.log("t").append_many([b"a", b"b"])
    for offset in (2, -2):
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        answer = wire.ask("OffsetCommit", 8, group_id=group, topics=[{"name": "t", "partitions": partitions}])
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    (asked,) = wire.ask("OffsetFetch", 7, group_id=group, topics=[{"name": "t", "partition_indexes": [0]}])["topics"]
    assert [one["committed_offset"] for one in asked["partitions"]] == [-2]
    assert served.db.group_offsets(group) == []
    with served.db.consumer("t", group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.poll(timeout_ms=0)
        assert consumer.committed(("t", 0)) is None
        assert consumer.position(("t", 0)) in {0, 2}
        with pytest.raises(ValueError, match="0 or more, not -1"):
            consumer.commit({("t", 0): -1})


@pytest.mark.parametrize("version", [one for one in versions("OffsetFetch") if one < BY_ID])
def test_offsets_are_fetched(wire, group, version):
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": 0, "committed_metadata": "note"}]
    wire.ask("OffsetCommit", 6, group_id=group, topics=[{"name": "t", "partitions": partitions}])

    def fetched(topics):
        if version < 8:
            answer = wire.ask("OffsetFetch", version, group_id=group, topics=topics)
        else:
            (answer,) = wire.ask("OffsetFetch", version, groups=[{"group_id": group, "topics": topics}])["groups"]
            assert answer["group_id"] == group
        assert answer["error_code"] == 0
        fields = "partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code"
        return [(topic["name"], *(one[field] for field in fields)) for topic in answer["topics"] for one in topic["partitions"]]

    committed = ("t", 0, 5, 0 if version >= 5 else -1, "note", 0)
    none = -1, -1, "", 0
    asked = [{"name": "t", "partition_indexes": [0, 1]}, {"name": "none", "partition_indexes": [3]}]
    assert fetched(asked) == [committed, ("t", 1, *none), ("none", 3, *none)]
    if version >= 2:
        assert fetched(None) == [committed]


@pytest.mark.parametrize("version", [7, 8, 9])
def test_offsets_of_an_open_transaction_are_not_stable(wire, served, group, version):
    producer = served.db._session.init_producer_id(group)
    served.db._session.commit_transaction_offsets(group, producer, group, {TopicPartition("t", 0): OffsetAndMetadata(5)})
    asked = {"group_id": group, "topics": [{"name": "t", "partition_indexes": [0, 1]}]}
    for stable, code in ((True, 88), (False, 0)):
        fields = asked if version < 8 else {"groups": [asked]}
        answer = wire.ask("OffsetFetch", version, **fields, require_stable=stable)
        found = (answer if version < 8 else answer["groups"][0])["topics"][0]["partitions"]
        assert {one["error_code"] for one in found} == {code}
    served.db._session.end_transaction(group, producer, commit=False)


# ---------------------------------------------------------------- administration


def test_groups_are_described_listed_and_deleted(wire, group):
    member_id = member_of(wire, group)["member_id"]
    for version in versions("DescribeGroups"):
        found, none = wire.ask("DescribeGroups", version, groups=[group, "none"], include_authorized_operations=True)["groups"]
        assert (found["group_state"], found["protocol_data"], none["group_state"]) == ("Stable", "range", "Dead")
        (member,) = found["members"]
        assert (member["member_id"], member["client_id"], member["client_host"]) == (member_id, "test", "/127.0.0.1")
        assert (member["member_metadata"], member["member_assignment"]) == (b"mine", b"all")
        assert found["authorized_operations"] == (1 << 3 | 1 << 6 | 1 << 8 if version >= 3 else -(1 << 31))
    for version in versions("ListGroups"):
        listed = wire.ask("ListGroups", version)["groups"]
        assert (group, "consumer") in {(one["group_id"], one["protocol_type"]) for one in listed}
    for filters, is_there in (
        ({"states_filter": ["stable"]}, True),
        ({"states_filter": ["Empty"]}, False),
        ({"types_filter": ["classic"]}, True),
        ({"types_filter": ["consumer"]}, False),
    ):
        assert (group in {one["group_id"] for one in wire.ask("ListGroups", 5, **filters)["groups"]}) == is_there
    for version in versions("DeleteGroups"):
        answer = wire.ask("DeleteGroups", version, groups_names=[group, "none"])
        assert [(one["group_id"], one["error_code"]) for one in answer["results"]] == [(group, 68), ("none", 69)]
    wire.ask("LeaveGroup", 3, group_id=group, members=[{"member_id": member_id}])
    assert wire.ask("DeleteGroups", 2, groups_names=[group])["results"][0]["error_code"] == 0


def test_offsets_are_deleted(wire, served, group):
    topics = [{"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 7}]}]
    assert wire.ask("OffsetDelete", 0, group_id=group, topics=topics)["error_code"] == 69
    committed = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    wire.ask("OffsetCommit", 2, group_id=group, topics=[{"name": "t", "partitions": committed}], generation_id_or_member_epoch=-1)
    answer = wire.ask("OffsetDelete", 0, group_id=group, topics=topics)
    assert [one["error_code"] for one in answer["topics"][0]["partitions"]] == [0, 3]
    assert served.db._session.fetch_offsets(group) == {}


def test_a_topic_that_is_named_twice(wire, served, group):
    topics = [{"name": "t", "partitions": [{"partition_index": at, "committed_offset": 5 + at, "committed_metadata": ""}]} for at in (0, 1)]
    answer = wire.ask("OffsetCommit", 8, group_id=group, topics=topics)
    assert [one["partitions"][0]["error_code"] for one in answer["topics"]] == [0, 0]
    asked = [{"name": "t", "partition_indexes": [at]} for at in (0, 1)]
    (found,) = wire.ask("OffsetFetch", 8, groups=[{"group_id": group, "topics": asked}])["groups"]
    assert [one["committed_offset"] for topic in found["topics"] for one in topic["partitions"]] == [5, 6]
    producer = served.db._session.init_producer_id(group)._asdict()
    parts = [{"name": "t", "partitions": [at]} for at in (0, 1)]
    added = wire.ask("AddPartitionsToTxn", 3, transactional_id=group, **producer, topics=parts)["results_by_topic"]
    assert [one["results_by_partition"][0]["partition_error_code"] for one in added] == [0, 0]
    assert wire.ask("AddOffsetsToTxn", 3, transactional_id=group, **producer, group_id=group)["error_code"] == 0
    answer = wire.ask("TxnOffsetCommit", 3, transactional_id=group, **producer, group_id=group, topics=topics)
    assert [one["partitions"][0]["error_code"] for one in answer["topics"]] == [0, 0]
    assert wire.ask("EndTxn", 3, transactional_id=group, **producer, committed=True)["error_code"] == 0
    answer = wire.ask("OffsetDelete", 0, group_id=group, topics=topics)
    assert [one["partitions"][0]["error_code"] for one in answer["topics"]] == [0, 0]
