"""Every error of docs/reference/errors.md, provoked at a server: its status, its code and its class are those of the page.

What no request can come to is listed with its reason; a class that is in neither list fails.
"""

import base64
import contextlib
import errno
import json
import re
import time
from pathlib import Path

import pytest

import logdb
from logdb import errors
from logdb.coordinator.consumer_protocol import Subscription
from logdb.errors import LogdbError
from logdb.io import IO
from logdb.requests import coding
from logdb.requests.acls import Acl
from logdb.requests.principals import Principal
from logdb.store.copy.backup_file import BackupReader
from logdb_http_api.errors import code_of
from support.batches import encode_batch
from support.faulty_io import FaultyIO
from support.produced import batch
from support.security import secure
from support.serving import served

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "errors.md"
BATCHES, BACKUP = "application/vnd.logdb.batches", "application/vnd.logdb.backup"
T0 = {"topic": "t", "partition": 0}
LOG = "/logdb/v1/topics/{}/partitions/{}/"
NOBODY = {"producer_id": 4711, "producer_epoch": 0}
PROTOCOLS = [["range", base64.b64encode(Subscription(("t",)).encode()).decode()]]
JOINING = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocols": PROTOCOLS}
OFFSETS = [[T0, {"offset": 1}]]

NOT_PROVOKED = {
    **dict.fromkeys(
        ("BufferExhausted", "DeliveryTimeout", "NoOffset", "NotAssigned", "SerializationError", "TransactionAborted"),
        "a producer's or consumer's own, in the client",
    ),
    **dict.fromkeys(("LocalOnly", "MirrorDiverged"), "a client's: no request is made"),
    **dict.fromkeys(("ServerUnavailable", "InvalidAnswer", "InvalidCertificate", "InsecureConnection"), "a client's, of its way"),
    **dict.fromkeys(
        ("InsecureAddress", "DirectoryLocked", "NotADatabase", "UnsupportedFormat", "CatalogueDamaged"), "the server does not start"
    ),
    **dict.fromkeys(("TargetNotEmpty", "TargetInside", "BackupDamaged"), "of files where the client is; a server is told 422 of a base"),
    **dict.fromkeys(("Forked", "UnsupportedPlatform"), "no server runs there"),
    **dict.fromkeys(("GroupFull", "CoordinatorFenced"), "of Kafka's wire, or of a coordinator that was replaced"),
    "MemberMemoryFull": "of more memory than a test should take",
    **dict.fromkeys(("InvalidMessage", "ConcurrentTransactions", "CodecMissing", "ThreadUnavailable"), "of a moment, or what is not there"),
    **dict.fromkeys(("LogdbError", "CloseIncomplete", "Closed"), "never raised itself; at the end, when nobody is answered"),
    **dict.fromkeys(
        (
            "NotLeaderOrFollower",
            "NotLeaderAfterAppend",
            "NotEnoughReplicas",
            "NotEnoughReplicasAfterAppend",
            "CommitTimeout",
            "OffsetNotAvailable",
            "StaleBrokerEpoch",
            "ControllerUnavailable",
            "MetadataTimeout",
            "FencedLeaderEpoch",
            "UnknownLeaderEpoch",
        ),
        "of several nodes: a single one leads all partitions, and has their only replicas",
    ),
    **dict.fromkeys(
        (
            "InvalidReassignment",
            "ReplicaCountChanged",
            "NoReassignment",
            "ElectionNotNeeded",
            "PreferredLeaderNotAvailable",
            "EligibleLeadersNotAvailable",
        ),
        "of Kafka's wire: no request of HTTP moves a replica",
    ),
    **dict.fromkeys(("NotCoordinator", "CoordinatorLoading"), "a single node coordinates all groups; tests/unit/broker provoke them"),
    "InvalidRecord": "a client's own; raw batches are told InvalidBatch, v2 and v3 have codes of their own",
    **dict.fromkeys(("ReadFailed", "WriteFailed"), "a disk's; unit tests of the segments provoke them"),
}


@pytest.fixture(scope="module")
def io():
    return FaultyIO()


@pytest.fixture(scope="module")
def server(tmp_path_factory, io):
    path = tmp_path_factory.mktemp("codes")
    with served(path / "db", opened={"io": io}) as server:
        for name, config in (("t", {"max.message.bytes": 5_000}), ("strict", STRICT)):
            server.database.create_topic(name, config=config)
        server.database.log("t").append_many([b"1", b"2", b"3"])
        yield server


STRICT = {"message.timestamp.after.max.ms": 1_000}


def call(server, operation, /, **arguments):
    return server.call(f"/logdb/v1/calls/{operation}", arguments)


def append(server, image, topic="t", partition=0, query=""):
    return server.call(LOG.format(topic, partition) + f"batches{query}", image, content_type=BATCHES)


def joined(server, group_id, **options):
    """A member of a group of its own, in its first generation."""
    member = server.call("/logdb/v1/calls/join_group", {"group_id": group_id, **JOINING, **options})[1]
    named = {"group_id": group_id, "generation": member["generation"], "member_id": member["member_id"]}
    assert call(server, "sync_group", **named, assignments=[[member["member_id"], ""]])[0] == 200
    return named


def began(server, transactional_id):
    """A producer of an open transaction with a record in it."""
    producer = call(server, "init_producer_id", transactional_id=transactional_id)[1]
    image = batch([b"x"], producer["producer_id"], producer["producer_epoch"], 0, transactional=True)
    assert append(server, image, query=f"?transactional_id={transactional_id}")[0] == 200
    return producer


# ---------------------------------------------------------------- what takes several steps


def a_producer_that_was_replaced(server):
    first = call(server, "init_producer_id", transactional_id="fenced")[1]
    call(server, "init_producer_id", transactional_id="fenced")
    return call(server, "end_transaction", transactional_id="fenced", producer=first, commit=True)


def a_gap_of_sequences(server):
    producer_id = call(server, "init_producer_id")[1]["producer_id"]
    assert append(server, batch([b"x"], producer_id, 0, 0))[0] == 200
    return append(server, batch([b"x"], producer_id, 0, 5))


def a_member_of_an_old_generation(server):
    return call(server, "heartbeat", **joined(server, "generations") | {"generation": 99})


def a_group_that_is_rebalanced(server):
    """By a member that joins and goes away without waiting for the answer."""
    member = joined(server, "rebalanced")
    with contextlib.closing(logdb.open(server.url)) as db:
        second = db._session.join_group("rebalanced", session_timeout_ms=60_000, rebalance_timeout_ms=60_000, protocols=[("range", b"")])
        until = time.monotonic() + 30
        while (said := call(server, "heartbeat", **member))[0] == 200 and time.monotonic() < until:
            pass
        call(server, "leave_group", group_id="rebalanced", member_id=member["member_id"])
        second.result(30)
    return said


def a_static_member_that_was_replaced(server):
    static = {"group_instance_id": "one"}
    first = joined(server, "static", **static)
    call(server, "join_group", group_id="static", **JOINING, **static)
    return call(server, "heartbeat", **first, **static)


def a_group_with_members(server):
    joined(server, "full")
    return call(server, "delete_group", group_id="full")


def another_assignor(server):
    joined(server, "assignors")
    return call(server, "join_group", group_id="assignors", **JOINING | {"protocols": [["other", ""]]})


def offsets_of_an_open_transaction(server):
    producer = began(server, "unstable")
    call(server, "add_offsets", transactional_id="unstable", producer=producer, group_id="unstable")
    done = call(server, "commit_transaction_offsets", transactional_id="unstable", producer=producer, group_id="unstable", offsets=OFFSETS)
    assert done[0] == 200, done
    return call(server, "fetch_offsets", group_id="unstable", partitions=[T0], require_stable=True)


def a_base_of_another_database(server):
    beside = Path(server.database.path).parent
    with logdb.open(beside / "other") as other:
        other.backup(beside / "stranger")
    with BackupReader(IO(), str(beside / "stranger")) as reader:
        return server.call("/logdb/v1/backups", reader.outline(), content_type=BACKUP)


def an_epoch_that_was_lost(server):
    return server.call(LOG.format("t", 0) + "batches?offset=0&leader_epoch=5")


ASKS = {
    "UnknownTopic": lambda s: call(s, "describe_topic", name="none"),
    "TopicDeleted": lambda s: s.call(LOG.format("t", 0) + "batches?offset=0&topic_id=another"),
    "UnknownPartition": lambda s: s.call(LOG.format("t", 7) + "batches?offset=0"),
    "TopicExists": lambda s: call(s, "create_topic", name="t"),
    "InvalidTopic": lambda s: call(s, "create_topic", name="no/name"),
    "InvalidConfig": lambda s: call(s, "create_topic", name="new", config=[["retention.ms", "soon"]]),
    "PolicyViolation": lambda s: call(s, "compact", topic="t"),
    "InvalidPartitions": lambda s: call(s, "alter_topic", name="t", partitions=0),
    "InvalidReplicationFactor": lambda s: call(s, "create_topic", name="r", replication_factor=4),
    "RecordTooLarge": lambda s: append(s, encode_batch([b"x" * 9_000])),
    "InvalidTimestamp": lambda s: append(s, encode_batch([b"x"], base_timestamp=4 * 10**12), "strict"),
    "InvalidBatch": lambda s: append(s, b"no batch" * 20),
    "CorruptBatch": lambda s: append(s, bytes(encode_batch([b"x"]))[:-1] + b"\xff"),
    "OffsetOutOfRange": lambda s: s.call(LOG.format("t", 0) + "batches?offset=999999"),
    "LogTruncated": an_epoch_that_was_lost,
    "UnexpectedOffset": lambda s: append(s, encode_batch([b"x"]), query="?expected_offset=0"),
    "ProducerFenced": a_producer_that_was_replaced,
    "OutOfOrderSequence": a_gap_of_sequences,
    "InvalidProducer": lambda s: call(s, "describe_transaction", transactional_id="none"),
    "InvalidTransactionState": lambda s: call(
        s, "end_transaction", transactional_id="idle", producer=call(s, "init_producer_id", transactional_id="idle")[1], commit=True
    ),
    "InvalidTransactionTimeout": lambda s: call(s, "init_producer_id", transactional_id="x", transaction_timeout_ms=0),
    "UnknownGroup": lambda s: call(s, "describe_group", group_id="none"),
    "InvalidGroup": lambda s: call(s, "join_group", group_id="", **JOINING),
    "MemberIdRequired": lambda s: call(s, "join_group", group_id="g", **JOINING, require_member_id=True),
    "OffsetMetadataTooLarge": lambda s: call(s, "commit_offsets", group_id="g", offsets=[[T0, {"offset": 1, "metadata": "x" * 5_000}]]),
    "GroupNotEmpty": a_group_with_members,
    "UnknownMember": lambda s: call(s, "heartbeat", group_id="g", generation=1, member_id="m"),
    "IllegalGeneration": a_member_of_an_old_generation,
    "RebalanceInProgress": a_group_that_is_rebalanced,
    "FencedInstance": a_static_member_that_was_replaced,
    "InconsistentProtocol": another_assignor,
    "UnstableOffsets": offsets_of_an_open_transaction,
    "BackupMismatch": a_base_of_another_database,
    "SecurityDisabled": lambda s: call(s, "add_acls", acls=json.loads(coding.encode([ACL]))),
}
ACL = Acl(Principal("User", "alice"), "*", "Read", "Allow", "Topic", "Literal", "t")


def check(name, said):
    status, body = said
    kind = getattr(errors, name)
    assert (status, body.get("error_code"), body.get("error")) == (*code_of(kind.__new__(kind)), name), body
    assert body["message"] and "Traceback" not in body["message"]


@pytest.mark.parametrize("name", ASKS)
def test_it_is_told(server, name):
    check(name, ASKS[name](server))


SECURED = {
    "AuthenticationFailed": lambda s: s.by("alice", "wrong").call("/topics"),
    "NotAuthorized": lambda s: call(s.by("alice", "secret"), "describe_topic", name="t"),
    "UnknownCredential": lambda s: call(s.by("root", "secret"), "delete_users", names=["nobody"]),
    "CredentialExists": lambda s: call(s.by("root", "secret"), "add_user", name="alice", credentials=[]),
    "InvalidSecurity": lambda s: call(s.by("root", "secret"), "add_user", name="a:b", credentials=[]),
}


@pytest.mark.parametrize("name", SECURED)
def test_it_is_told_where_authentication_is_on(tmp_path, name):
    with served(tmp_path / "db") as server:
        secure(server.database.path, users={"root": "secret", "alice": "secret"}, super_users=["root"])
        check(name, SECURED[name](server))


def test_what_can_only_be_read_is_not_written(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
    with served(tmp_path / "db", opened={"mode": "r"}) as server:
        check("ReadOnly", append(server, encode_batch([b"x"])))


def test_a_disk_that_is_full(tmp_path):
    io = FaultyIO()
    with served(tmp_path / "db", opened={"io": io}) as server:
        server.database.create_topic("t")
        io.fill_up()
        check("DiskFull", append(server, encode_batch([b"x"])))
        io.heal()


def test_a_disk_that_does_not_sync(tmp_path):
    io = FaultyIO()
    with contextlib.suppress(LogdbError), served(tmp_path / "db", opened={"io": io}) as server:
        server.database.create_topic("t", config={"durability": "fsync"})
        io.fail("fdatasync", errno.EIO, "t-0")
        check("SyncFailed", append(server, encode_batch([b"x"])))
        cluster = server.call("/v3/clusters")[1]["data"][0]["cluster_id"]
        status, report = server.call(f"/v3/clusters/{cluster}/topics/t/records", {"value": {"type": "STRING", "data": "x"}})
        assert (status, report["error_code"]) == (200, 50002)


def test_a_record_that_the_disk_has_changed(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 1_024})
        for _ in range(3):
            db.log("t").append(bytes(900))
    (segment, *_) = sorted((tmp_path / "db" / "t-0").glob("*.log"))
    with segment.open("r+b") as file:
        file.seek(200)
        file.write(b"!")
    with served(tmp_path / "db") as server:
        check("CorruptionError", server.call(LOG.format("t", 0) + "batches?offset=0"))


def test_every_error_of_the_page_is_provoked_or_cannot_be():
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    provoked = ASKS.keys() | SECURED.keys() | {"ReadOnly", "DiskFull", "SyncFailed", "CorruptionError"}
    assert documented == provoked | NOT_PROVOKED.keys()
    assert not provoked & NOT_PROVOKED.keys()
