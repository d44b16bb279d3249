"""What of a request is made where the principal may not make all of it: Kafka's answer for each of its topics."""

import asyncio
from types import SimpleNamespace

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb.requests.principals import Principal
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.errors import Code
from logdb_kafka_api.topic_ids import TopicIds
from support.security import secure

KEYS = {api.name: key for key, api in APIS.items()}
GROUP, TX = "Allow alice@* Read Group g", "Allow alice@* Write TransactionalId tx"
MINE, DELETING = "Allow alice@* All Topic mine", "Allow alice@* All Group g"
REFUSED, UNKNOWN, NONE = Code.TOPIC_AUTHORIZATION_FAILED, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NONE
ASKED = ("mine", "secret", "none")


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        for topic in ("mine", "secret"):
            db.create_topic(topic)
            db.log(topic).append(b"a")
        yield db


@pytest.fixture
def ask(db):
    """Ask for alice, who may do just what is given."""

    def ask(acls, name, *, version=None, **values):
        secure(db.path, *acls)
        api, access = APIS[KEYS[name]], AccessControl(db._session)
        version = api.request.versions[-1] if version is None else version

        async def call(function, *args, **kwargs):
            return function(*args, **kwargs)

        request = SimpleNamespace(
            each=iter,
            values=api.request.decode(api.request.encode(values, version), version)[0],
            version=version,
            session=access.session(Principal("User", "alice"), "127.0.0.1"),
            door=SimpleNamespace(
                access=access,
                topics=TopicIds(access),
                auto_create_topics=False,
                num_partitions=1,
                note_missing=lambda *_, **__: None,
                brokers=lambda _: {0: ("host", 1)},
                serving=lambda: {0},
                advertised_listener=lambda _: "PLAINTEXT://host:1",
                racks=dict,
            ),
            client=None,
            call=call,
            change=call,
            aside=call,
            outcome=asyncio.wrap_future,
        )
        answer = asyncio.run(api.run(request))
        return api.response.decode(api.response.encode(answer, version), version)[0]

    return ask


def offsets(*topics):
    return [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for name in topics]


def codes(topics, key="error_code"):
    return {topic["name"]: one[key] for topic in topics for one in topic.get("partitions", topic.get("results_by_partition"))}


def test_offsets_of_the_topics_that_may_be_read_are_committed(db, ask):
    member = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1}
    told = ask([GROUP, MINE, "Allow alice@* All Topic none"], "OffsetCommit", version=9, **member, topics=offsets(*ASKED))["topics"]
    assert codes(told) == {"mine": NONE, "secret": REFUSED, "none": UNKNOWN}
    assert db._session.fetch_offsets("g") == {TopicPartition("mine", 0): OffsetAndMetadata(1)}
    told = ask([MINE], "OffsetCommit", version=9, **member, topics=offsets(*ASKED))["topics"]
    assert set(codes(told).values()) == {Code.GROUP_AUTHORIZATION_FAILED}


def test_a_topic_that_is_named_by_its_id_needs_the_same_rights(db, ask):
    ids = {name: db.describe_topic(name).uuid for name in ("mine", "secret")} | {"none": b"x" * 16}
    names = {topic_id: name for name, topic_id in ids.items()}

    def by_name(topics):
        return {names[topic["topic_id"]]: one["error_code"] for topic in topics for one in topic["partitions"]}

    member = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1}
    asked = [{"topic_id": ids[one["name"]], "partitions": one["partitions"]} for one in offsets(*ASKED)]
    told = ask([GROUP, MINE], "OffsetCommit", **member, topics=asked)["topics"]
    assert by_name(told) == {"mine": NONE, "secret": REFUSED, "none": Code.UNKNOWN_TOPIC_ID}
    assert db._session.fetch_offsets("g") == {TopicPartition("mine", 0): OffsetAndMetadata(1)}
    both = {TopicPartition(topic, 0): OffsetAndMetadata(1) for topic in ("mine", "secret")}
    db._session.commit_offsets("g", both).result()
    named = [{"topic_id": topic_id, "partition_indexes": [0]} for topic_id in ids.values()]
    (told,) = ask([GROUP, MINE], "OffsetFetch", groups=[{"group_id": "g", "topics": named}])["groups"]
    assert by_name(told["topics"]) == {"mine": NONE, "secret": REFUSED, "none": Code.UNKNOWN_TOPIC_ID}
    (told,) = ask([GROUP, MINE], "OffsetFetch", groups=[{"group_id": "g", "topics": None}])["groups"]
    assert by_name(told["topics"]) == {"mine": NONE}


def test_offsets_of_the_topics_that_may_be_described_are_told(db, ask):
    both = {TopicPartition(topic, 0): OffsetAndMetadata(1) for topic in ("mine", "secret")}
    db._session.commit_offsets("g", both).result()
    named = [{"name": name, "partition_indexes": [0]} for name in ASKED]
    acls = [GROUP, MINE, "Allow alice@* Describe Topic none"]
    (told,) = ask(acls, "OffsetFetch", version=9, groups=[{"group_id": "g", "topics": named}])["groups"]
    assert codes(told["topics"]) == {"mine": NONE, "secret": REFUSED, "none": NONE}
    assert codes(told["topics"], "committed_offset") == {"mine": 1, "secret": -1, "none": -1}
    (told,) = ask(acls, "OffsetFetch", version=9, groups=[{"group_id": "g", "topics": None}])["groups"]
    assert codes(told["topics"], "committed_offset") == {"mine": 1}
    (told,) = ask([MINE], "OffsetFetch", version=9, groups=[{"group_id": "g", "topics": named}])["groups"]
    assert (told["error_code"], told["topics"]) == (Code.GROUP_AUTHORIZATION_FAILED, [])


def test_offsets_of_the_topics_that_may_be_read_are_deleted(db, ask):
    both = {TopicPartition(topic, 0): OffsetAndMetadata(1) for topic in ("mine", "secret")}
    db._session.commit_offsets("g", both).result()
    asked = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ASKED]
    told = ask([DELETING, MINE], "OffsetDelete", group_id="g", topics=asked)
    assert (told["error_code"], codes(told["topics"])) == (NONE, {"mine": NONE, "secret": REFUSED, "none": REFUSED})
    assert set(db._session.fetch_offsets("g")) == {TopicPartition("secret", 0)}
    assert ask([MINE], "OffsetDelete", group_id="g", topics=asked)["error_code"] == Code.GROUP_AUTHORIZATION_FAILED


@pytest.fixture
def producer(db):
    return db._session.init_producer_id("tx")


def test_of_the_partitions_of_a_transaction_all_are_added_or_none(db, ask, producer):
    values = {"transactional_id": "tx", **producer._asdict()}

    def told(acls, *topics):
        answer = ask(acls, "AddPartitionsToTxn", **values, topics=[{"name": name, "partitions": [0]} for name in topics])
        return codes(answer["results_by_topic"], "partition_error_code")

    assert told([TX, MINE], "mine", "secret") == {"mine": Code.OPERATION_NOT_ATTEMPTED, "secret": REFUSED}
    assert not db._session.describe_transaction("tx").partitions
    assert told([MINE], "mine") == {"mine": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert told([TX, MINE], "mine") == {"mine": NONE}
    assert set(db._session.describe_transaction("tx").partitions) == {TopicPartition("mine", 0)}


def test_offsets_are_committed_in_a_transaction_topic_by_topic(db, ask, producer):
    values = {"transactional_id": "tx", "group_id": "g", "member_id": "", "generation_id": -1, **producer._asdict()}
    db._session.add_offsets("tx", producer, "g")
    told = ask([TX, GROUP, MINE], "TxnOffsetCommit", **values, topics=offsets("mine", "secret"))["topics"]
    assert codes(told) == {"mine": NONE, "secret": REFUSED}
    db._session.end_transaction("tx", producer, commit=True)
    assert set(db._session.fetch_offsets("g")) == {TopicPartition("mine", 0)}
    for acls, code in (([GROUP, MINE], Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ([TX, MINE], Code.GROUP_AUTHORIZATION_FAILED)):
        assert set(codes(ask(acls, "TxnOffsetCommit", **values, topics=offsets("mine", "secret"))["topics"]).values()) == {code}


def test_what_is_of_the_node_needs_rights_to_the_cluster(ask):
    def code(acls, name, **values):
        answer = ask(acls, name, **values)
        return (
            answer.get("error_code") or next(iter(answer.get("results") or answer.get("responses") or [{"error_code": NONE}]))["error_code"]
        )

    node = [{"resource_type": 4, "resource_name": "0", "configuration_keys": None, "configs": [{"name": "num.partitions", "value": "2"}]}]
    for name, values, right, answer in (
        ("DescribeConfigs", {"resources": node}, "DescribeConfigs", NONE),
        ("AlterConfigs", {"resources": node}, "AlterConfigs", Code.INVALID_REQUEST),
        ("IncrementalAlterConfigs", {"resources": node}, "AlterConfigs", Code.INVALID_REQUEST),
        ("DescribeLogDirs", {"topics": None}, "Describe", NONE),
        ("ElectLeaders", {"topic_partitions": None}, "Alter", NONE),
        ("AlterPartitionReassignments", {"topics": []}, "Alter", NONE),
        ("ListPartitionReassignments", {"topics": None}, "Describe", NONE),
        ("DescribeQuorum", {"topics": []}, "Describe", NONE),
        ("UpdateFeatures", {"feature_updates": []}, "Alter", NONE),
        ("ListConfigResources", {"resource_types": []}, "DescribeConfigs", NONE),
    ):
        assert code(["Allow alice@* All Topic *"], name, **values) == Code.CLUSTER_AUTHORIZATION_FAILED
        assert code([f"Allow alice@* {right} Cluster kafka-cluster"], name, **values) == answer


def test_replicas_are_moved_by_those_that_may_alter_the_cluster(db, ask):
    dirs = [{"path": db.path, "topics": [{"name": "mine", "partitions": [0]}]}]

    def code(acl):
        return ask([acl, MINE], "AlterReplicaLogDirs", dirs=dirs)["results"][0]["partitions"][0]["error_code"]

    assert code(MINE) == Code.CLUSTER_AUTHORIZATION_FAILED
    assert code("Allow alice@* Alter Cluster kafka-cluster") == NONE


def test_topics_that_may_be_described_are_described_page_by_page(ask):
    def codes(*names):
        topics = ask([MINE], "DescribeTopicPartitions", topics=[{"name": name} for name in names])["topics"]
        return {topic["name"]: topic["error_code"] for topic in topics}

    assert codes(*ASKED) == {"mine": NONE, "secret": REFUSED, "none": REFUSED}
    assert codes() == {"mine": NONE}


def test_resources_are_listed_that_may_be_described(ask):
    found = ask([MINE, "Allow alice@* DescribeConfigs Cluster kafka-cluster"], "ListConfigResources", resource_types=[2])
    assert [one["resource_name"] for one in found["config_resources"]] == ["mine"]


def test_sizes_are_of_all_topics(ask):
    """As in Kafka: what is needed is Describe of the cluster, and of no topic."""
    (found,) = ask(["Allow alice@* Describe Cluster kafka-cluster"], "DescribeLogDirs", topics=None)["results"]
    assert {"mine", "secret"} <= {topic["name"] for topic in found["topics"]}
    (found,) = ask(["Allow alice@* Describe Cluster kafka-cluster"], "DescribeLogDirs", topics=[{"topic": "mine", "partitions": [0, 7]}])[
        "results"
    ]
    assert [(topic["name"], [one["partition_index"] for one in topic["partitions"]]) for topic in found["topics"]] == [("mine", [0])]


def test_operations_are_told_to_those_that_may_describe(ask):
    answer = ask(["Allow alice@* Create Cluster kafka-cluster"], "DescribeCluster", include_cluster_authorized_operations=True)
    assert answer["cluster_authorized_operations"] == 0
    acls = ["Allow alice@* Create Cluster kafka-cluster", "Allow alice@* Describe Cluster kafka-cluster"]
    answer = ask(acls, "DescribeCluster", include_cluster_authorized_operations=True)
    assert answer["cluster_authorized_operations"] == 1 << 5 | 1 << 8


def test_a_coordinator_is_found_by_those_that_may_describe_what_it_coordinates(ask):
    (found,) = ask([GROUP], "FindCoordinator", key_type=0, coordinator_keys=["g"])["coordinators"]
    assert (found["error_code"], found["host"]) == (NONE, "host")
    (found,) = ask([TX], "FindCoordinator", key_type=0, coordinator_keys=["g"])["coordinators"]
    assert found["error_code"] == Code.GROUP_AUTHORIZATION_FAILED
    (found,) = ask([GROUP], "FindCoordinator", key_type=1, coordinator_keys=["tx"])["coordinators"]
    assert found["error_code"] == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_configs_of_a_new_topic_are_told_to_those_that_may_describe_them(ask):
    asked = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    (made,) = ask(["Allow alice@* Create Topic new"], "CreateTopics", topics=[asked], validate_only=True)["topics"]
    assert (made["error_code"], made["topic_config_error_code"], made["configs"]) == (NONE, REFUSED, None)
    acls = ["Allow alice@* Create Topic new", "Allow alice@* DescribeConfigs Topic new"]
    (made,) = ask(acls, "CreateTopics", topics=[asked], validate_only=True)["topics"]
    assert made["configs"]
