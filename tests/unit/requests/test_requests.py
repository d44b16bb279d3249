"""Every request in one table: what it needs, its answer, its method of a session, and who carries it out; as JSON and back."""

import contextlib
import dataclasses
import inspect
import json
import types
import typing
from concurrent.futures import Future

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.broker.broker import _STEPS, A, Broker
from logdb.log import isolation
from logdb.log.producers import Producer
from logdb.log.protocols import PartitionLog, ReplicaLog
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb.requests import cluster, coding, groups, records, replicas, report, topic_changes, topics, transactions
from logdb.requests.request import REQUESTS, Request
from logdb.requests.resources import AS_GOOD, OPERATIONS
from logdb.requests.security import SECURITY_REQUESTS, CredentialStore, SubmittedCredentialStore
from logdb.requests.session import Session
from logdb_http_api.door.calls import CALLS
from support.session_needs import CALLS as USES
from support.typed import values

OF_DOORS = {
    "describe_configs",
    "check_new_topic",
    "check_partitions",
    "check_topic_configs",
    "alter_configs",
    "describe_at_rest",
    "partition_sizes",
    "reassign",
    "reassignments",
    "describe_quorum",
    "elect_leaders",
}
OF_LOGS = {"read_batches", "aborted_transactions", "open_transactions", "offset_for_timestamp", "epoch_at", "producers"}
OF_NODES = {
    "write_transaction_marker",
    "will_end_transaction",
    "find_decision",
    "end_mirrored_transactions",
    "committed_end",
}  # of a cluster, of one another
WITH_BATCHES = {"log", "produce"} | OF_LOGS  # not behind a URL, where they have routes of their own
OF_THE_HANDLE = {"check_open", "close", "io", "clock", "closed", "look_interval_ms_max", "topic_change_count"}
NO_REQUESTS = OF_THE_HANDLE | {"submit", "submit_batches", "produce_many"}
KNOWN = {
    **vars(groups),
    **vars(transactions),
    **vars(report),
    "Future": Future,
    "IsolationLevel": isolation.IsolationLevel,
    "Producer": Producer,
}
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=6)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=12,
)


def methods(kind):
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def signature(method):
    """Parameters by name with their defaults, and hints, of a method."""
    parameters = dict(list(inspect.signature(method).parameters.items())[1:])
    return {name: one.default for name, one in parameters.items()}, typing.get_type_hints(method, localns=KNOWN)


def test_session_and_credential_store_have_a_method_for_each_request_and_no_other():
    assert (methods(Session) | methods(CredentialStore)) - NO_REQUESTS | OF_DOORS | OF_LOGS | OF_NODES == REQUESTS.keys()
    of_modules = {kind for kind in REQUESTS.values() if kind.__module__ != SECURITY_REQUESTS[0].__module__}
    modules = (topics, topic_changes, transactions, groups, records, replicas, cluster)
    assert {kind.__module__ for kind in of_modules} == {module.__name__ for module in modules}
    assert set(REQUESTS.values()) == of_modules | set(SECURITY_REQUESTS)


def test_every_request_is_a_call_over_http_or_has_another_route():
    assert {kind.method for kind in CALLS} == REQUESTS.keys() - OF_DOORS - WITH_BATCHES - {"changes", "reports", "verify", "backup"}


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_a_request_says_what_it_needs_and_answers(name):
    kind = REQUESTS[name]
    assert kind.needs and all(need.operation in OPERATIONS[need.resource_type] for need in kind.needs)
    assert not any(need.listed for need in kind.needs) or kind.visible is not Request.visible
    others = {
        CredentialStore: methods(CredentialStore),
        Broker: OF_DOORS | OF_NODES,
        PartitionLog: OF_LOGS - {"producers"},
        ReplicaLog: {"producers"},
    }
    of = next((kind for kind, names in others.items() if name in names), Session)
    _, hints = signature(_STEPS[kind] if of is Broker and kind in _STEPS else getattr(of, name))
    if hints["return"] is A:  # the metadata's answer, as it is
        return
    wanted = Future[kind.answer] if kind.waits else kind.answer
    assert hints["return"] in (wanted, type(None) if wanted is None else wanted)


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_fields_parameters_and_handlers_agree(name):
    """The method of a session, the request's fields, and the method that carries it out: the same names, and the same defaults."""
    kind = REQUESTS[name]
    fields = {one.name: one.default for one in inspect.signature(kind).parameters.values()}
    fields |= {one.name: one.default_factory() for one in dataclasses.fields(kind) if one.default_factory is not dataclasses.MISSING}
    if name in OF_LOGS | {"log"}:  # others are carried out as the values that they are
        log = ReplicaLog if name == "producers" else PartitionLog
        carried, _ = signature(getattr(log if name in OF_LOGS else Broker, name))
        assert carried.keys() == fields.keys() - ({"topic", "partition"} if name in OF_LOGS else set())
    if name in OF_DOORS | OF_LOGS | OF_NODES:
        return
    readable, _ = signature(getattr(CredentialStore if kind in SECURITY_REQUESTS else Session, name))
    readable.pop("batches", None)
    assert readable.keys() == fields.keys()
    for field, default in fields.items():
        if default is not inspect.Parameter.empty:
            assert readable[field] == default


class Told(Session):
    """A session that keeps the request it was given."""

    def submit(self, request):
        self.request = request


@pytest.mark.parametrize(
    "name", sorted(name for name in REQUESTS if name in USES and name not in OF_DOORS | OF_LOGS | {"produce", "backup"})
)
def test_the_method_of_a_session_makes_the_request_of_its_name(name):
    told = Told.__new__(Told)
    told.security = SubmittedCredentialStore(told)
    USES[name][0](told)
    assert type(told.request) is REQUESTS[name]


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.method)
def test_requests_and_answers_come_back_as_they_were(kind):
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items() if name in kind.__dataclass_fields__}

    @given(st.builds(kind, **{name: values(hint) for name, hint in hints.items()}), values(kind.answer))
    def check(request, answer):
        assert coding.decode(kind, coding.encode(request)) == request
        back = coding.decode(kind.answer, coding.encode(answer))
        assert back == answer and type(back) is type(answer)

    check()


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.method)
def test_any_json_is_a_request_or_refused(kind):
    @given(JSON)
    def check(value):
        with contextlib.suppress(msgspec.ValidationError):
            coding.encode(coding.decode(kind, json.dumps(value).encode()))

    check()


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.method)
def test_an_unknown_field_is_refused_by_name(kind):
    with pytest.raises(msgspec.ValidationError, match=r"unknown field `more`|missing required field"):
        coding.decode(kind, b'{"more":1}')


def test_what_is_wrong_is_named():
    for body, said in (
        ('{"name":1}', "Expected `str`, got `int` - at `$.name`"),
        ('{"name":"t","partitions":true}', "Expected `int`, got `bool` - at `$.partitions`"),
        ('{"name":"t","partitions":1.0}', "Expected `int`, got `float` - at `$.partitions`"),
        ('{"name":"t","config":[["retention.ms",[1]]]}', "got `array` - at `$.config"),
        ("{}", "missing required field `name`"),
    ):
        with pytest.raises(msgspec.ValidationError) as refusal:
            coding.decode(topic_changes.CreateTopic, body)
        assert said in str(refusal.value)
    with pytest.raises(msgspec.ValidationError, match=r"at `\$\.offsets"):
        coding.decode(groups.CommitOffsets, '{"group_id":"g","offsets":[[{"topic":"t"},{"offset":1}]]}')


def test_a_field_that_has_a_default_may_be_left_out():
    request = coding.decode(groups.CommitOffsets, '{"group_id":"g","offsets":[[{"topic":"t","partition":0},{"offset":5}]]}')
    assert request == groups.CommitOffsets("g", {TopicPartition("t", 0): OffsetAndMetadata(5)})


def test_what_applications_pass_is_sent_as_plain_values():
    numpy = pytest.importorskip("numpy")
    config = types.MappingProxyType({"a": numpy.int32(5), "b": numpy.float64(0.5), "c": numpy.str_("d")})
    request = topic_changes.CreateTopic("t", numpy.int64(3), config)
    assert coding.decode(type(request), coding.encode(request)) == type(request)("t", 3, {"a": 5, "b": 0.5, "c": "d"})


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "\ud800", object()])
def test_what_json_has_not_is_refused_before_it_is_sent(value):
    with pytest.raises((TypeError, ValueError)):
        coding.encode(topic_changes.CreateTopic("t", config={"a": value}))


def test_a_right_that_is_as_good_is_of_the_resources_that_there_are():
    for (operation, resource_type), (other, of, _) in AS_GOOD.items():
        assert operation in OPERATIONS[resource_type] and other in OPERATIONS[of]


def test_a_request_that_does_not_say_what_it_needs_is_none():
    before = dict(REQUESTS)
    with pytest.raises(TypeError, match="needs"):

        class Silent(Request[None]):
            pass

    with pytest.raises(TypeError, match="needs"):

        class Inherits(topic_changes.DeleteTopic, Request[None]):
            pass

    assert before == REQUESTS


def test_a_request_that_needs_nothing_says_so():
    try:

        class Open(Request[None]):
            needs = ()

        assert REQUESTS["open"] is Open
    finally:
        REQUESTS.pop("open", None)


def test_the_requests_of_doors_say_so():
    assert {name for name, kind in REQUESTS.items() if kind.local} == OF_DOORS | WITH_BATCHES
