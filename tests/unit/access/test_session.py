"""What each call needs: with all of it the call gets through, and without any part of it it does not."""

import asyncio
import contextlib
import inspect
import logging

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.access.authentication import AuthenticationOff, ClientCertificate
from logdb.access.security_document import Security, encode
from logdb.errors import (
    AuthenticationFailed,
    InvalidPartitions,
    InvalidTopic,
    InvalidTransactionState,
    LogdbError,
    NotAuthorized,
    UnknownTopic,
)
from logdb.log.protocols import PartitionLog
from logdb.model import ListChange, OffsetAndMetadata, TopicPartition
from logdb.requests import nodes as of_cluster
from logdb.requests.groups import CommitOffsets, FetchOffsets
from logdb.requests.nodes import PartitionState
from logdb.requests.principals import ANONYMOUS, Principal
from logdb.requests.records import Produce, ReadBatches
from logdb.requests.security import CredentialStore
from logdb.requests.session import Session
from logdb.requests.topic_changes import AlterTopic, CheckPartitions, CreateTopic, DeleteTopic
from logdb.requests.topics import ClusterNodes
from logdb.requests.users import Quota
from logdb.store.housekeeping import Housekeeping
from support.batches import Rec, encode_batch
from support.produced import batch
from support.security import secure
from support.session_needs import CALLS, JOINING, ORDERS
from support.transactional import Writer

ALICE, HOME = Principal("User", "alice"), "10.0.0.1"
BATCH = encode_batch([Rec(b"x")])
LISTS = {"topics", "changes", "cluster_nodes", "groups", "transactions"}  # leave out instead of refusing
OF_LOGS = {"read_batches", "aborted_transactions", "open_transactions", "offset_for_timestamp", "epoch_at"}  # submitted; a log's methods
BEYOND = {
    "check_partitions",
    "metrics",
    "describe_at_rest",
    "partition_sizes",
    "reassign",
    "reassignments",
    "describe_quorum",
    "elect_leaders",
    "producers",
} | OF_LOGS
FREE = {"check_open", "close", "io", "clock", "closed", "look_interval_ms_max", "submit", "topic_change_count"}  # of the handle
OF_OTHERS = {"produce_many", "submit_batches"}  # each partition by ``produce``, which is the other
OFFSETS = {  # Describe was asked for by ``log``
    "topic", "partition", "topic_id", "start_offset", "end_offset", "last_stable_offset", "durability", "size_bytes",
    "offset_for_timestamp", "latest_record", "open_transactions", "readable_end_offset", "epoch_at", "watch", "unwatch",
}  # fmt: skip
COUNTED_AS = {
    "log.append_batches": "produce",
    "log.read": "read_batches",
    "log.get": "read_batches",
    "log.tail": "read_batches",
    "log.read_arrow": "read_batches",
}
UNCOUNTED = {"metrics", "log.follow", "log.aborted_transactions"}
WAYS = [(name, needs) for name, (_, *ways) in CALLS.items() for needs in ways]


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        for topic in ("orders", "other", "secret"):
            db.create_topic(topic, partitions=2)
            db.log(topic).append(b"first")
        yield db


@pytest.fixture
def broker(db):
    return db._session


@pytest.fixture
def opened(db, broker):
    """Make a session of alice, who may do just this."""
    controls = []

    def session(*grants, quotas=None):
        secure(db.path, *(f"Allow alice@* {grant}" for grant in grants), quotas=quotas)
        controls.append(AccessControl(broker))
        return controls[-1].session(ALICE, HOME)

    yield session
    for access in controls:
        access.close()


def test_every_call_of_a_session_and_a_log_is_in_the_table():
    def public(kind):
        return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}

    calls = {name.partition(",")[0] for name in CALLS}
    of_log = {name.removeprefix("log.") for name in calls if name.startswith("log.")}
    assert public(Session) | public(CredentialStore) == {name for name in calls if "." not in name} - BEYOND | LISTS | FREE | OF_OTHERS
    assert public(PartitionLog) == of_log | OFFSETS


def test_batches_for_several_partitions_go_where_the_principal_may_write(opened, db, broker):
    writer = Writer(broker)
    batches = {where: writer.batches(where, b"x") for where in (TopicPartition("orders", 0), TopicPartition("secret", 0))}
    session = opened("Write Topic orders", "Write TransactionalId tx")
    answers = session.produce_many(batches, transactional_id="tx")
    assert answers[TopicPartition("orders", 0)] == range(1, 2)
    assert isinstance(answers[TopicPartition("secret", 0)], NotAuthorized)
    assert db.log("secret", 0).end_offset == 1
    assert session.topic_change_count is None


def test_a_check_of_partitions_is_bounded_as_their_creation_is(opened):
    session = opened("Alter Topic orders")
    for made in (CheckPartitions("orders", 2_000), AlterTopic("orders", partitions=2_000)):
        with pytest.raises(InvalidPartitions, match="a request adds 1000 at most"):
            session.submit(made)
    assert session.submit(CheckPartitions("orders", 3)) is None


def test_a_usual_append_needs_what_produce_needs_and_is_counted_as_one_call(opened, broker):
    asked, where = Produce("orders", 0), TopicPartition("orders", 0)
    session = opened("Write Topic orders")
    before = session._access.metrics.counts()
    assert session.usual_log(where, None, "") is None  # no client has appended to the log
    session.produce("orders", 0, BATCH)
    log = session.usual_log(where, None, "")
    assert [session.append(asked, BATCH, log=one).start for one in (None, log, log)] == [2, 3, 4]
    counts = session._access.metrics.counts()
    assert (counts.calls["produce"], counts.topics["orders"].messages_in) == (4, 4)
    assert counts.requests == before.requests  # which renew counts
    assert counts.topics["orders"].bytes_in == 4 * len(BATCH)
    with pytest.raises(NotAuthorized):
        opened("Write Topic other").append(asked, BATCH, log=log)
    assert broker.served_log("orders").end_offset == 5


def test_configs_that_delete_records_are_audited(opened, broker, monkeypatch, caplog):
    monkeypatch.setattr(Housekeeping, "_loop", lambda self: None)  # nothing goes by itself
    log = broker._store.open_log("orders")
    log.flush()  # what lingers is rolled by no one
    log.roll()
    broker._store.checkpoint([log])
    session = opened("AlterConfigs Topic orders")
    with caplog.at_level(logging.WARNING, "logdb.audit"):
        session.alter_topic("orders", config={"segment.bytes": 2048})
        session.alter_configs("orders", {"retention.bytes": 0}, validate_only=True)
        assert caplog.messages == []
        session.alter_topic("orders", config={"retention.bytes": 0})
        session.alter_configs("orders", {}, replace=True)
        session.alter_configs("orders", {"cleanup.policy": ListChange(("compact",))})
    assert [message.split(" change=")[1] for message in caplog.messages] == [
        "alter_configs of='orders: retention.bytes=0; deletes records of partition 0 before 1'",
        "alter_configs of='orders: retention.bytes=default'",
        "alter_configs of='orders: cleanup.policy=+compact'",
    ]


def test_an_append_that_may_wait_is_not_usual(opened, db):
    session = opened("Write Topic orders", "Write Topic other")
    session.produce("orders", 0, BATCH)
    where = TopicPartition("orders", 0)
    assert session.usual_log(where, "fsync", "") is None
    assert session.usual_log(TopicPartition("orders", 1), None, "") is None
    assert session.usual_log(where, None, "another") is None
    assert session.usual_log(where, "os", "") is not None
    db.alter_topic("orders", config={"durability": "fsync"})
    assert session.usual_log(where, None, "") is None


@pytest.mark.parametrize(("name", "needs"), WAYS, ids=[f"{name}: {' + '.join(needs)}" for name, needs in WAYS])
def test_a_call_gets_through_with_all_that_it_needs(opened, name, needs):
    with contextlib.suppress(LogdbError):  # an unknown producer, say: the broker was asked
        CALLS[name][0](session := opened(*needs))
    counted = session._access.metrics.counts()
    assert counted.refusals == 0
    assert name in UNCOUNTED or COUNTED_AS.get(name, name.partition(",")[0].removeprefix("log.")) in counted.calls


@pytest.mark.parametrize(("name", "needs"), WAYS, ids=[f"{name}: {' + '.join(needs)}" for name, needs in WAYS])
def test_a_call_is_refused_without_any_part_of_it(opened, db, name, needs):
    before = [db.log(topic).end_offset for topic in ("orders", "other")], db.topics()
    for missing in needs:
        others = [need for need in needs if need != missing] + (["Describe Topic orders"] if name.startswith("log.") else [])
        with pytest.raises(NotAuthorized) as refusal:
            CALLS[name][0](session := opened(*others))
        wanted = [way[0] for _, *ways in [CALLS[name]] for way in ways] if len(CALLS[name]) > 2 else [missing]
        assert f"{refusal.value.operation} {refusal.value.resource}".replace("'", "") in wanted
        assert refusal.value.principal == "User:alice"
        assert session._access.metrics.counts().refusals == 1
    assert ([db.log(topic).end_offset for topic in ("orders", "other")], db.topics()) == before


@pytest.mark.parametrize(
    "append",
    [
        lambda log: log.append(b"x", b"k"),
        lambda log: log.append_many([b"x"], [b"k"]),
        lambda log: log.append_batches(batch([b"x"], 1, 0, 0)),
    ],
)
def test_no_client_appends_to_what_groups_are_kept_in(broker, append):
    broker.commit_offsets("readers", {ORDERS: OffsetAndMetadata(1)}).result()
    session = AccessControl(broker).session(ANONYMOUS, HOME)
    ends = [session.log("__consumer_offsets", partition).end_offset for partition in range(session.partition_count("__consumer_offsets"))]
    for partition in range(len(ends)):
        with pytest.raises(InvalidTopic, match="logdb alone writes to it"):
            append(session.log("__consumer_offsets", partition))
    assert [session.log("__consumer_offsets", partition).end_offset for partition in range(len(ends))] == ends


def test_without_a_file_every_principal_may_do_anything(broker):
    access = AccessControl(broker)
    assert not access.authentication
    session = access.session(ANONYMOUS, HOME)
    assert [info.name for info in session.topics()] == ["orders", "other", "secret"]
    assert session.log("orders").append(b"second") == 1
    session.delete_topic("secret")


def test_with_a_file_who_is_allowed_nothing_may_do_nothing(opened):
    session = opened()
    assert session._access.authentication
    assert session.topics() == session.groups() == session.transactions() == []
    with pytest.raises(NotAuthorized, match=r"^User:alice is not allowed to Describe Topic 'orders'$"):
        session.describe_topic("orders")


def test_of_a_request_in_part_only_what_is_permitted_is_left(opened):
    asked = {TopicPartition(topic, n): OffsetAndMetadata(1) for topic in ("orders", "secret") for n in (0, 1)}
    session = opened("Read Group readers", "Read Topic orders")
    request, refused = session.permitted(CommitOffsets("readers", asked, "m"))
    assert request == CommitOffsets("readers", {one: offset for one, offset in asked.items() if one.topic == "orders"}, "m")
    assert {one: error.resource for one, error in refused.items()} == {TopicPartition("secret", n): "Topic 'secret'" for n in (0, 1)}
    assert session._access.metrics.counts().refusals == 1  # for both partitions of the topic
    request, refused = session.permitted(FetchOffsets("readers", (TopicPartition("secret", 0), ORDERS)))
    assert (request.partitions, set(refused)) == ((ORDERS,), {TopicPartition("secret", 0)})
    with pytest.raises(NotAuthorized, match="Read Group 'others'"):
        session.permitted(CommitOffsets("others", asked))


def test_what_is_allowed_can_be_asked_without_being_refused(opened):
    session = opened("Create Cluster kafka-cluster", "Read Topic orders")
    wanted = [CreateTopic("new"), ReadBatches("orders", 0, 0), DeleteTopic("orders"), ReadBatches("secret", 0, 0)]
    assert [session.allows(one) for one in wanted] == [True, True, False, False]
    assert session.operations("Topic", "orders") == ["Read", "Describe"]
    assert session.operations("Topic", "secret") == session.operations("Cluster") == []  # Describe is needed to know
    assert session._access.metrics.counts().refusals == 0


def test_a_change_of_the_file_counts_from_the_next_call_on(opened, db):
    session = opened("Read Topic orders")
    records = session.log("orders").read(0)
    secure(db.path)
    with pytest.raises(NotAuthorized):
        list(records)
    secure(db.path, "Allow alice@10.0.0.1 Read Topic orders")
    assert [record.value for record in session.log("orders").read(0)] == [b"first"]
    assert session._access.session(ALICE, "10.0.0.2").topics() == []


def test_lists_leave_out_what_may_not_be_described(opened, broker):
    for group in ("readers", "writers"):
        broker.commit_offsets(group, {ORDERS: OffsetAndMetadata(1), TopicPartition("secret", 0): OffsetAndMetadata(1)}).result()
    for name in ("tx", "tx-of-others"):
        Writer(broker, name).write(ORDERS, b"x")
    session = opened("Read Topic orders", "Write Group readers".replace("Write", "Delete"), "Describe TransactionalId tx")
    assert [info.name for info in session.topics(internal=True)] == ["orders"]
    assert [group.group_id for group in session.groups()] == ["readers"]
    assert [(info.transactional_id, info.partitions) for info in session.transactions()] == [("tx", (ORDERS,))]
    assert list(session.fetch_offsets("readers")) == [ORDERS]
    assert [group.group_id for group in opened("Describe Cluster kafka-cluster").groups()] == ["readers", "writers"]


def test_changes_leave_out_topics_that_may_not_be_described(opened, broker):
    session = opened("Describe Topic mine")
    begin = session.changes(None, 0).position
    for name in ("hidden", "mine"):
        broker.create_topic(name)
    first = session.changes(begin, 0, count_max=1)
    assert first.events == () and first.complete and first.position != begin
    assert [event.topic.name for event in session.changes(first.position, 0).events] == ["mine"]


def test_of_a_cluster_brokers_and_topics_that_may_be_described_are_shown():
    partitions = {TopicPartition(topic, 0): PartitionState(1, 0, (1,), (1,)) for topic in ("mine", "hidden")}
    addresses = ((1, "board1:9092"),)
    nodes, mine = of_cluster.ClusterNodes((1, 2), partitions, addresses, "id"), TopicPartition("mine", 0)
    assert ClusterNodes().visible(nodes, lambda operation, kind, name: name == "mine") == ((), {mine: partitions[mine]}, (), "id")
    assert ClusterNodes().visible(nodes, lambda operation, kind, name: kind == "Cluster") == ((1, 2), {}, addresses, "id")


def test_without_a_cluster_there_are_no_nodes(opened, broker):
    assert opened("Describe Topic orders").cluster_nodes() == ((), {}, (), broker.metadata.database_id)


def test_a_transaction_shows_no_topics_that_may_not_be_described(opened, broker):
    writer = Writer(broker, "tx")
    writer.write(ORDERS, b"x")
    writer.write(TopicPartition("secret", 1), b"x")
    session = opened("Describe TransactionalId tx", "Describe Topic orders")
    assert session.describe_transaction("tx").partitions == (ORDERS,)


def test_what_there_is_is_not_told_to_who_may_not_know(opened):
    session = opened("Describe Topic o…")
    for asked in ("secret", "nosuch"):
        with pytest.raises(NotAuthorized):
            session.partition_count(asked)
    with pytest.raises(UnknownTopic, match=r"^unknown topic 'orders2'; there are 'orders', 'other'$"):
        session.describe_topic("orders2")


def test_who_may_describe_nothing_that_there_is_is_not_told_that_there_is_nothing(opened):
    with pytest.raises(UnknownTopic, match=r"^unknown topic 'mine-1'$"):
        opened("Read Topic mine…").log("mine-1")


def test_a_topic_that_goes_while_it_is_waited_for_leaves_the_others_unnamed(opened, broker):
    async def wait():
        waits = opened("Read Topic orders")._access.waits()
        waiting = asyncio.create_task(waits.wait({ORDERS: 1}, 60_000, isolation_level="read_uncommitted"))
        await asyncio.sleep(0)
        broker.delete_topic("orders")
        await waiting

    with pytest.raises(UnknownTopic, match=r"^unknown topic 'orders'$"):
        asyncio.run(wait())


def test_a_member_joins_from_the_address_that_it_has(opened, broker):
    session = opened("Read Group readers")
    session.join_group("readers", **JOINING, client_host="127.0.0.1").result()
    assert [member.client_host for member in broker.describe_group("readers").members] == [HOME]


def test_what_goes_in_and_out_is_counted(opened):
    session = opened("Write Topic orders", "Read Topic orders")
    batches = batch([b"x" * 100, b"y"], 1, 0, 0)
    session.produce("orders", 1, batches)
    read, _ = session.log("orders", 1).read_batches(0)
    assert [record.value for record in session.log("orders", 1).read(1)] == [b"y"]
    counts = session._access.metrics.counts().topics["orders"]
    assert counts == (2, len(batches), 2 * len(read))


def test_an_exceeded_quota_is_told_once(opened):
    session = opened("Write Topic orders", quotas={ALICE: Quota(produce_bytes=100)})
    batches = batch([b"x" * 1000], 1, 0, 0)
    session.produce("orders", 0, batches)
    expected_ms = (len(batches) - 100) * 10
    assert expected_ms - 100 <= session.take_throttle_ms() <= expected_ms + 1
    assert session.take_throttle_ms() == 0


def test_reading_is_that_of_the_log(opened, db, broker):
    writer = Writer(broker, "tx")
    writer.write(ORDERS, b"aborted")
    writer.end(commit=False)
    db.log("orders").append_many([b"%d" % number for number in range(50)])
    log = opened("Read Topic orders").log("orders")
    for options in ({}, {"isolation_level": "read_committed"}, {"end_offset": 20}):
        assert list(log.read(0, **options)) == list(db.log("orders").read(0, **options))
        assert [b.to_pylist() for b in log.read_arrow(**options)] == [b.to_pylist() for b in db.log("orders").read_arrow(**options)]
    with pytest.raises(logdb.errors.OffsetOutOfRange):
        log.read(1000)
    with pytest.raises(logdb.errors.LogTruncated):
        log.read(10, leader_epoch=7)


def test_gauges_are_the_broker_as_it_is(opened, broker):
    broker.commit_offsets("readers", {ORDERS: OffsetAndMetadata(0), TopicPartition("secret", 0): OffsetAndMetadata(1)}).result()
    broker.delete_topic("secret")
    gauges = opened("Describe Cluster kafka-cluster").metrics().gauges
    assert [partition.end_offset for partition in gauges.replicas["orders"]] == [1, 0]
    (group,) = gauges.groups
    assert (group.group_id, group.state, group.member_count, dict(group.lag)) == ("readers", "Empty", 0, {ORDERS: 1})


SESSIONS_CALLS = [
    lambda session: session.changes(None, 0),
    lambda session: session.check(),
    lambda session: session.topics(),
    lambda session: session.flush(),
    lambda session: session.log("orders"),
    lambda session: session.allows(ReadBatches("orders", 0, 0)),
    lambda session: session.permitted(CommitOffsets("readers", {ORDERS: OffsetAndMetadata(1)})),
    lambda session: session.operations("Topic", "orders"),
    lambda session: session.security.users(),
    lambda session: session.need_backup(),
]


@pytest.mark.parametrize("call", SESSIONS_CALLS)
def test_a_session_is_of_no_use_once_what_was_shown_is_revoked(db, broker, call):
    grants = ["Allow alice@* All Topic *", "Allow alice@* All Group *", "Allow alice@* All Cluster kafka-cluster"]
    secure(db.path, *grants, users={"alice": "secret", "bob": "hidden"})
    access = AccessControl(broker)
    session = access.session(ALICE, HOME, access.authenticate_password("alice", "secret", HOME).credential)
    call(session)
    secure(db.path, *grants, users={"alice": "another", "bob": "hidden"})
    with pytest.raises(AuthenticationFailed, match="the credential of User:alice is no longer valid"):
        call(session)
    assert access.metrics.counts().refusals == 0
    access.close()


def test_a_log_and_its_records_are_of_no_use_either(db, broker):
    secure(db.path, "Allow alice@* All Topic *", users={"alice": "secret"})
    access = AccessControl(broker)
    db.log("orders").append_many([bytes(1000)] * 3000)
    log = access.session(ALICE, HOME, access.authenticate_password("alice", "secret", HOME).credential).log("orders")
    records = iter(log.read(0))
    next(records)
    secure(db.path, "Allow alice@* All Topic *")
    for use in (lambda: list(records), lambda: log.append(b"x"), lambda: log.read_batches(0)):
        with pytest.raises(AuthenticationFailed):
            use()
    access.close()


def test_the_anonymous_principal_is_refused_once_authentication_is_on(db, broker):
    access = AccessControl(broker)
    session = access.session(ANONYMOUS, HOME, AuthenticationOff())
    session.log("orders")
    secure(db.path, "Allow *@* All Topic *")
    with pytest.raises(AuthenticationFailed):
        session.log("orders")
    access.close()


def test_a_session_that_goes_on_for_another_request_is_from_there(opened):
    access = opened("Describe Topic orders")._access
    session, asking = access.session(ALICE, HOME), access.session(ALICE, "10.0.0.2", ClientCertificate(0))
    session.log("orders")
    session.go_on_for(asking)
    assert (session.host, session.credential) == ("10.0.0.2", ClientCertificate(0))
    with pytest.raises(AuthenticationFailed):
        session.log("orders")


def test_a_session_that_appends_again_is_asked_again_once_rights_change(db, opened):
    session = opened("Write Topic orders")
    assert [session.produce("orders", 0, BATCH).start for _ in range(2)] == [1, 2]
    secure(db.path, "Allow alice@* Write Topic other")
    with pytest.raises(NotAuthorized):
        session.produce("orders", 0, BATCH)
    assert session.produce("other", 0, BATCH).start == 1


def test_what_is_allowed_while_rights_change_is_asked_again(opened, monkeypatch):
    session = opened("Write Topic orders")
    access = session._access
    configure = access.quotas.configure

    def append_meanwhile(*given):
        session.produce("orders", 0, BATCH)  # as another thread does: the new ACLs do not hold yet
        configure(*given)

    monkeypatch.setattr(access._file, "refresh", lambda: None)
    monkeypatch.setattr(access.quotas, "configure", append_meanwhile)
    access._take(encode(Security()))
    with pytest.raises(NotAuthorized):
        session.produce("orders", 0, BATCH)


def test_what_a_session_may_append_to_depends_on_its_address(db, broker):
    secure(db.path, f"Allow alice@{HOME} Write Topic orders")
    access = AccessControl(broker)
    session, asking = access.session(ALICE, HOME), access.session(ALICE, "10.0.0.2")
    session.produce("orders", 0, BATCH)
    session.go_on_for(asking)
    with pytest.raises(NotAuthorized):
        session.produce("orders", 0, BATCH)
    access.close()


def test_a_renewed_session_counts_as_another_request_and_needs_a_valid_credential(db, broker):
    secure(db.path, "Allow alice@* All Topic *", users={"alice": "secret"}, quotas={ALICE: Quota(requests=1)})
    access = AccessControl(broker)
    session = access.session(ALICE, HOME, access.authenticate_password("alice", "secret", HOME).credential)
    before = access.metrics.counts().requests
    session.renew()
    assert access.metrics.counts().requests == before + 1
    assert session.take_throttle_ms() > 0
    secure(db.path, "Allow alice@* All Topic *", users={"alice": "another"})
    with pytest.raises(AuthenticationFailed):
        session.renew()
    access.close()


def test_metrics_are_for_who_may_see_them_on_this_machine_too(opened):
    access = opened()._access
    for principal, host in ((ANONYMOUS, "127.0.0.1"), (ANONYMOUS, "10.0.0.1"), (ALICE, "127.0.0.1")):
        with pytest.raises(NotAuthorized):
            access.session(principal, host).metrics()


@pytest.mark.parametrize(
    "append",
    [
        lambda log: log.append(b"x", b"k"),
        lambda log: log.append_many([b"x"], [b"k"]),
        lambda log: log.append_batches(batch([b"x"], 1, 0, 0)),
    ],
)
def test_no_principal_writes_to_what_logdb_keeps_its_groups_in(broker, append):
    broker.commit_offsets("readers", {ORDERS: OffsetAndMetadata(1)}).result()
    log = AccessControl(broker).session(ANONYMOUS, HOME).log("__consumer_offsets")
    before = log.end_offset
    with pytest.raises(InvalidTopic, match="logdb alone writes to it"):
        append(log)
    assert log.end_offset == before


def test_transactional_batches_find_no_way_around_their_transaction(broker):
    log = AccessControl(broker).session(ANONYMOUS, HOME).log("orders")
    writer = Writer(broker, "tx")
    with pytest.raises(InvalidTransactionState, match="without its transactional id"):
        log.append_batches(writer.batches(ORDERS, b"x"))
    assert log.open_transactions() == []


@pytest.mark.parametrize(
    ("acl", "needs", "allowed"),
    [
        (None, [("Write", "Topic", "orders")], False),
        (None, [], True),
        ("Write Topic orders", [("Write", "Topic", "orders")], True),
        ("Write Topic orders", [("Write", "Topic", "others")], False),
        ("Write Topic others", [("Write", "Topic", None)], True),
        ("Read Topic orders", [("Write", "Topic", None), ("Read", "Topic", None)], True),
        ("Read Topic orders", [("Read", "Group", None)], False),
        ("Create Cluster kafka-cluster", [("Create", "Topic", None)], True),
        ("Write Topic orders", [("IdempotentWrite", "Cluster", None)], True),
        ("Read Topic orders", [("Alter", "Cluster", None)], False),
    ],
)
def test_before_a_body_is_read_something_of_what_is_needed_has_to_be_allowed(opened, acl, needs, allowed):
    session = opened(*[acl] if acl else [])
    if allowed:
        session.need_any(needs)
    else:
        with pytest.raises(NotAuthorized, match="alice is not allowed"):
            session.need_any(needs)


def test_retention_of_all_topics_is_that_of_those_whose_records_one_may_delete(opened, broker, monkeypatch):
    monkeypatch.setattr(Housekeeping, "_loop", lambda self: None)  # nothing goes by itself
    for name in ("orders", "other"):
        broker.alter_topic(name, config={"retention.bytes": 0})
        broker._store.open_log(name).append_many([b"x"])
        broker._store.open_log(name).roll()
    assert opened().enforce_retention() == []
    assert [gone.topic for gone in opened("Delete Topic orders").enforce_retention()] == ["orders"]
    assert broker._store.open_log("other").start_offset == 0


def test_configs_of_a_topic_that_is_not_there_tell_no_names_of_others(opened):
    session = opened("AlterConfigs Topic app-x")
    with pytest.raises(UnknownTopic) as refusal:
        session.alter_configs("app-x", {}, replace=True)
    assert "orders" not in str(refusal.value)


def test_what_a_door_shares_is_counted_for_principals_or_for_addresses_where_authentication_is_off(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        access = AccessControl(db._session)

        def owner(principal, host):
            return access.session(principal, host).owner

        ben = Principal("User", "ben")
        assert owner(ALICE, "10.0.0.7") == owner(ALICE, "10.0.0.8") != owner(ben, "10.0.0.7")
        assert owner(ANONYMOUS, "10.0.0.7") != owner(ANONYMOUS, "10.0.0.8")
        assert owner(ANONYMOUS, "2001:db8::1") == owner(ANONYMOUS, "2001:db8::2") != owner(ANONYMOUS, "2001:db8:1::1")
        access.close()
