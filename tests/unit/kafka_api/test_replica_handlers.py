"""Elections and reassignments by Kafka's requests: of three brokers, whose controller is called directly, and of one."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.broker.broker import Broker
from logdb.errors import ControllerUnavailable
from logdb.requests.principals import ANONYMOUS, Principal
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.errors import Code
from logdb_replication.controller import elections
from logdb_replication.controller.commands import AlterInSync, FenceBroker, Replica, UnfenceBroker
from logdb_replication.raft.errors import UnknownOutcome
from support.metadata_nodes import Controller, Node
from support.security import secure

KEYS = {api.name: key for key, api in APIS.items()}
ELECT, ALTER, LIST = "ElectLeaders", "AlterPartitionReassignments", "ListPartitionReassignments"
RATES = ("follower.replication.throttled.rate", "leader.replication.throttled.rate")
SET, DELETE, APPEND = 0, 1, 2


class Asked:
    """Requests to one broker, each in its latest version unless it is named."""

    def __init__(self, broker) -> None:
        self.broker = broker

    def __call__(self, name, version=None, *, principal=ANONYMOUS, **values):
        api, access = APIS[KEYS[name]], AccessControl(self.broker)
        version = api.request.versions[-1] if version is None else version

        async def call(function, *args, **kwargs):
            return function(*args, **kwargs)

        request = SimpleNamespace(
            each=iter,
            values=api.request.decode(api.request.encode(values, version), version)[0],
            version=version,
            session=access.session(principal, "127.0.0.1"),
            door=SimpleNamespace(
                access=access,
                auto_create_topics=False,
                num_partitions=1,
                note_missing=lambda *_, **__: None,
                advertised_listener=lambda _: "PLAINTEXT://host:1",
                racks=dict,
            ),
            client=None,
            call=call,
            change=call,
        )
        answer = asyncio.run(api.run(request))
        return api.response.decode(api.response.encode(answer, version), version)[0]

    def elect(self, partitions, version=None, kind=0, **more):
        """The code of the answer, and of each partition; ``partitions``: by topic, None: all."""
        wanted = None if partitions is None else [{"topic": name, "partitions": numbers} for name, numbers in partitions.items()]
        answer = self(ELECT, version, election_type=kind, topic_partitions=wanted, **more)
        results = [(topic["topic"], one) for topic in answer["replica_election_results"] for one in topic["partition_result"]]
        assert all((one["error_message"] is None) == (one["error_code"] == 0) for _, one in results)
        return answer["error_code"], {(name, one["partition_id"]): one["error_code"] for name, one in results}

    def reassign(self, targets, version=None, **more):
        """The code of the answer, and of each partition."""
        topics = [{"name": name, "partitions": [{"partition_index": number, "replicas": nodes}]} for (name, number), nodes in targets]
        answer = self(ALTER, version, topics=topics, **more)
        results = [(topic["name"], one) for topic in answer["responses"] for one in topic["partitions"]]
        return answer["error_code"], {(name, one["partition_index"]): one["error_code"] for name, one in results}

    def moving(self, partitions=None):
        wanted = partitions and [{"name": name, "partition_indexes": numbers} for name, numbers in partitions.items()]
        answer = self(LIST, topics=wanted)
        assert answer["error_code"] == Code.NONE
        return {
            (topic["name"], one["partition_index"]): (one["replicas"], one["adding_replicas"], one["removing_replicas"])
            for topic in answer["topics"]
            for one in topic["partitions"]
        }

    def alter_broker(self, *changes, name="1", validate_only=False):
        configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
        resource = {"resource_type": 4, "resource_name": name, "configs": configs}
        return self("IncrementalAlterConfigs", resources=[resource], validate_only=validate_only)["responses"][0]["error_code"]

    def rates(self, name="1"):
        """Value and source of each rate."""
        asked = [{"resource_type": 4, "resource_name": name, "configuration_keys": list(RATES)}]
        (found,) = self("DescribeConfigs", resources=asked)["results"]
        return {one["name"]: (int(one["value"]), one["config_source"]) for one in found["configs"]}


@pytest.fixture
def controller():
    return Controller()


@pytest.fixture
def ask(tmp_path, controller):
    """Node 1 of three; t-0 is on nodes 1 and 2, led by 1, and t-1 on 3 and 1, led by 3."""
    node = Node(tmp_path / "db", controller, 1)
    with contextlib.closing(node.store), contextlib.closing(Broker(node.store, node.metadata)) as broker:
        broker.create_topic("t", partitions=2, replication_factor=2)
        assert [broker.partition_count("t"), *(node.metadata.partition_state("t", one).replicas for one in (0, 1))] == [2, (1, 2), (3, 1)]
        yield Asked(broker)


@pytest.fixture
def alone(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        yield Asked(db._session)


def in_sync(controller, partition, *members):
    """Let the leader of a partition report its in-sync set."""
    state = controller.machine.state
    known, topic = state.partition("t", partition), state.topics["t"]
    replicas = tuple(Replica(node, state.brokers[node].epoch) for node in members)
    epochs = known.leader_epoch, known.partition_epoch
    controller.propose(AlterInSync(known.leader, state.brokers[known.leader].epoch, "t", topic.topic_id, partition, *epochs, replicas))


# ---------------------------------------------------------------- leaders


@pytest.mark.parametrize("version", [0, 1, 2])
def test_preferred_leaders(ask, controller, version, monkeypatch):
    monkeypatch.setattr(elections, "HAND_OVER_S", 0.01)  # no leader is there to hand over
    needless = {("t", 0): Code.ELECTION_NOT_NEEDED, ("t", 1): Code.ELECTION_NOT_NEEDED, ("t", 2): Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert ask.elect({"t": [0, 1, 2, 0], "u": [0]}, version)[1] == {**needless, ("u", 0): Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert ask.elect(None, version) == (Code.NONE, {})
    controller.propose(FenceBroker(1, 1))
    assert ask.elect(None, version) == (Code.NONE, {("t", 0): Code.PREFERRED_LEADER_NOT_AVAILABLE})
    controller.propose(UnfenceBroker(1, 1))
    in_sync(controller, 0, 1, 2)
    assert ask.elect({"t": [0]}, version) == (Code.NONE, {("t", 0): Code.NONE})
    assert controller.machine.state.partition("t", 0).leader == 1


def test_leaders_that_lack_records_are_elected_where_there_is_none(ask, controller):
    in_sync(controller, 0, 1)
    for node in (1, 2):
        controller.propose(FenceBroker(node, node))
    assert ask.elect({"t": [0, 1]}, kind=1)[1] == {("t", 0): Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, ("t", 1): Code.ELECTION_NOT_NEEDED}
    controller.propose(UnfenceBroker(2, 2))
    assert ask.elect(None, kind=1)[1] == {("t", 0): Code.NONE}
    assert controller.machine.state.partition("t", 0).leader == 2


def test_an_unknown_type_of_election(ask):
    assert ask.elect({"t": [0]}, kind=2) == (Code.INVALID_REQUEST, {("t", 0): Code.INVALID_REQUEST})
    assert ask.elect(None, kind=-1) == (Code.INVALID_REQUEST, {})


# ---------------------------------------------------------------- replicas


@pytest.mark.parametrize("version", [0, 1])
def test_replicas_are_moved_listed_and_cancelled(ask, controller, version):
    assert ask.moving() == {}
    assert ask.reassign([(("t", 0), None)], version)[1] == {("t", 0): Code.NO_REASSIGNMENT_IN_PROGRESS}
    assert ask.reassign([(("t", 0), [3, 1])], version) == (Code.NONE, {("t", 0): Code.NONE})
    moving = {("t", 0): ([1, 2, 3], [3], [2])}
    assert ask.moving() == ask.moving({"t": [0, 1, 7], "u": [0]}) == moving
    assert ask.moving({"t": [1]}) == ask.moving({"u": [0]}) == {}
    assert ask.reassign([(("t", 0), None)], version)[1] == {("t", 0): Code.NONE}
    assert ask.moving() == {}
    ask.reassign([(("t", 0), [3, 1])], version)
    in_sync(controller, 0, 1, 2, 3)
    assert ask.moving() == {}
    assert controller.machine.state.partition("t", 0).replicas == (3, 1)


@pytest.mark.parametrize(("replicas", "more", "code"), [
    ([], {}, Code.INVALID_REPLICA_ASSIGNMENT),
    ([1, 1], {}, Code.INVALID_REPLICA_ASSIGNMENT),
    ([1, 9], {}, Code.INVALID_REPLICA_ASSIGNMENT),
    ([-1], {}, Code.INVALID_REPLICA_ASSIGNMENT),
    (list(range(100)), {}, Code.INVALID_REPLICA_ASSIGNMENT),
    ([1, 2, 3], {"allow_replication_factor_change": False}, Code.INVALID_REPLICATION_FACTOR),
    ([1, 3], {"allow_replication_factor_change": False}, Code.NONE),
    ([1, 2, 3], {}, Code.NONE),
])  # fmt: skip
def test_replicas_that_cannot_be(ask, replicas, more, code):
    assert ask.reassign([(("t", 0), replicas)], **more)[1] == {("t", 0): code}
    assert bool(ask.moving()) == (code == Code.NONE)


def test_fewer_replicas_than_an_acknowledgement_needs_are_refused(ask):
    ask.broker.alter_topic("t", config={"min.insync.replicas": 2})
    assert ask.reassign([(("t", 0), [3])])[1] == {("t", 0): Code.INVALID_REPLICA_ASSIGNMENT}
    assert ask.moving() == {}
    assert ask.reassign([(("t", 0), [3, 1])])[1] == ask.reassign([(("t", 0), None)])[1] == {("t", 0): Code.NONE}
    ask.broker.alter_topic("t", config={"min.insync.replicas": 1})
    assert ask.reassign([(("t", 0), [3])])[1] == {("t", 0): Code.NONE}


def test_a_replica_that_alone_is_in_sync_does_not_go_at_once(ask, controller):
    ask.reassign([(("t", 0), [3, 2])])
    in_sync(controller, 0, 3, 1)
    controller.propose(FenceBroker(1, 1))
    assert controller.machine.state.partition("t", 0).leader == 3
    assert ask.reassign([(("t", 0), None)])[1] == {("t", 0): Code.INVALID_REPLICA_ASSIGNMENT}


def test_what_is_refused_of_one_partition_is_done_of_another(ask):
    asked = [(("t", 0), [3]), (("t", 9), [3]), (("t", -1), [3]), (("u", 0), [3]), (("t", 1), [1]), (("t", 1), None)]
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    told = {("t", 9): unknown, ("t", -1): unknown, ("u", 0): unknown, ("t", 0): Code.NONE, ("t", 1): Code.INVALID_REQUEST}
    assert ask.reassign(asked)[1] == told
    assert ask.moving().keys() == {("t", 0)}


# ---------------------------------------------------------------- how long the controller is waited for


@pytest.mark.parametrize("silence", [ControllerUnavailable(5, "no leader is known"), UnknownOutcome("the connection is closed")])
@pytest.mark.parametrize(("timeout_ms", "least_s", "most_s"), [(20_000, 1, 20), (0, 0, 0), (-1, 0, 0), (2**31 - 1, 30, 30)])
def test_a_controller_is_waited_for_as_long_as_the_request_says(ask, controller, monkeypatch, silence, timeout_ms, least_s, most_s):
    def propose(command, timeout_s):
        asked_s.append(timeout_s)
        raise silence

    asked_s = []
    for command in (FenceBroker(1, 1), UnfenceBroker(1, 1)):
        controller.propose(command)
    in_sync(controller, 0, 1, 2)
    monkeypatch.setattr(controller, "propose", propose)
    assert ask.reassign([(("t", 0), [3, 1])], timeout_ms=timeout_ms) == (Code.REQUEST_TIMED_OUT, {})
    assert ask.elect({"t": [0]}, timeout_ms=timeout_ms) == (Code.REQUEST_TIMED_OUT, {("t", 0): Code.REQUEST_TIMED_OUT})
    assert len(asked_s) == 2
    assert all(least_s <= each <= most_s for each in asked_s)


# ---------------------------------------------------------------- the rate of reassignments


def test_the_rate_is_one_of_all_brokers(ask, controller):
    without = dict.fromkeys(RATES, (2**63 - 1, 5))
    assert (ask.rates(), ask.rates("")) == (without, {})
    assert ask.alter_broker(*((name, SET, "1000") for name in RATES)) == Code.NONE
    assert controller.machine.state.reassignment_bytes_per_s == 1_000
    assert (ask.rates(), ask.rates("")) == (dict.fromkeys(RATES, (1_000, 2)), dict.fromkeys(RATES, (1_000, 3)))
    assert ask.alter_broker((RATES[0], SET, "7"), name="") == Code.NONE
    assert ask.rates() == dict.fromkeys(RATES, (7, 2))
    assert ask.alter_broker((RATES[0], DELETE, None), (RATES[1], DELETE, None), ("some.thing.else", DELETE, None)) == Code.NONE
    assert ask.rates() == without


def test_what_is_no_rate_is_refused(ask, controller):
    rate = RATES[0]
    for value in ("0", "-1", "a", "1.5", str(2**63), ""):
        assert ask.alter_broker((rate, SET, value)) == Code.INVALID_CONFIG
    assert ask.alter_broker((rate, APPEND, "5")) == Code.INVALID_CONFIG
    assert ask.alter_broker((rate, SET, "5"), (RATES[1], SET, "6")) == Code.INVALID_CONFIG
    for name in ("num.partitions", "log.dirs", "some.thing.else"):
        assert ask.alter_broker((name, SET, "5"), (rate, SET, "5")) == Code.INVALID_REQUEST
    assert ask.alter_broker(("num.partitions", DELETE, None)) == Code.INVALID_REQUEST
    assert ask.alter_broker((rate, SET, "5"), name="2") == Code.INVALID_REQUEST
    assert ask.alter_broker((rate, SET, "5"), validate_only=True) == Code.NONE
    assert controller.machine.state.reassignment_bytes_per_s is None


def test_a_replacement_of_all_configs_resets_the_rate(ask, controller):
    ask.alter_broker((RATES[0], SET, "5"))
    ask("AlterConfigs", resources=[{"resource_type": 4, "resource_name": "1", "configs": []}], validate_only=False)
    assert controller.machine.state.reassignment_bytes_per_s is None


def test_lists_of_throttled_replicas_are_taken_and_not_kept(alone):
    def alter(name, operation, value):
        changes = [{"name": name, "config_operation": operation, "value": value}]
        resource = {"resource_type": 2, "resource_name": "t", "configs": changes}
        return alone("IncrementalAlterConfigs", resources=[resource], validate_only=False)["responses"][0]["error_code"]

    for name in ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"):
        for value in ("*", "", "0:1", "0:1,12:3"):
            assert alter(name, SET, value) == Code.NONE
        assert alter(name, DELETE, None) == Code.NONE
        for value in ("a", "0", "0:1,", "0:-1"):
            assert alter(name, SET, value) == Code.INVALID_CONFIG
    assert alone.broker.describe_topic("t").config == {}


# ---------------------------------------------------------------- one broker


def test_one_broker(alone):
    needless, unknown = Code.ELECTION_NOT_NEEDED, Code.UNKNOWN_TOPIC_OR_PARTITION
    for kind in (0, 1):
        assert alone.elect({"t": [0, 1], "u": [0]}, kind=kind)[1] == {("t", 0): needless, ("t", 1): unknown, ("u", 0): unknown}
        assert alone.elect(None, kind=kind) == (Code.NONE, {})
    assert alone.moving() == alone.moving({"t": [0]}) == {}
    for replicas, code in (
        ([0], Code.NONE),
        ([1], Code.INVALID_REPLICA_ASSIGNMENT),
        ([0, 1], Code.INVALID_REPLICA_ASSIGNMENT),
        ([], Code.INVALID_REPLICA_ASSIGNMENT),
        (None, Code.NO_REASSIGNMENT_IN_PROGRESS),
    ):
        assert alone.reassign([(("t", 0), replicas)])[1] == {("t", 0): code}
    told = alone.reassign([(("t", 0), [0, 1])], allow_replication_factor_change=False)[1]
    assert told == {("t", 0): Code.INVALID_REPLICATION_FACTOR}
    assert alone.reassign([(("t", 1), [0]), (("u", 0), [0])])[1] == {("t", 1): unknown, ("u", 0): unknown}
    assert alone.rates("0") == {}
    assert alone.alter_broker((RATES[0], SET, "5"), name="0") == Code.INVALID_REQUEST
    assert alone.alter_broker((RATES[0], DELETE, None), (RATES[1], DELETE, None), name="0") == Code.NONE


# ---------------------------------------------------------------- who may


def test_a_refusal_is_of_the_whole_and_of_each_partition(alone):
    secure(alone.broker.directory, "Allow alice@* All Topic *")
    alice, refused = Principal("User", "alice"), Code.CLUSTER_AUTHORIZATION_FAILED
    assert alone.elect({"t": [0]}, principal=alice) == (refused, {("t", 0): refused})
    assert alone.elect({"t": [0]}, 0, principal=alice) == (Code.NONE, {("t", 0): refused})
    assert alone.elect(None, principal=alice) == (refused, {})
    assert alone.reassign([(("t", 0), [0])], principal=alice) == (refused, {})
    assert alone(LIST, principal=alice, topics=None)["error_code"] == refused


def test_a_name_that_no_topic_can_have_is_not_repeated_with_each_partition(alone):
    name, partitions = "x" * 30_000, list(range(5))
    elected = alone(ELECT, election_type=0, topic_partitions=[{"topic": name, "partitions": partitions}])
    listed = [{"partition_index": one, "replicas": [0]} for one in partitions]
    reassigned = alone(ALTER, topics=[{"name": name, "partitions": listed}])
    found = elected["replica_election_results"][0]["partition_result"] + reassigned["responses"][0]["partitions"]
    assert len(found) == 10
    assert {one["error_code"] for one in found} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert max(len(one["error_message"]) for one in found) < 300
