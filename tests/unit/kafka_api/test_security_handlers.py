"""ACLs, SCRAM credentials and quotas by Kafka's requests, beside what the access control makes of them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.access.credentials import salted_password
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.handlers import users
from support.security import acl, secure

KEYS = {api.name: key for key, api in APIS.items()}
TOPIC, CLUSTER = 2, 4
LITERAL, PREFIXED = 3, 4
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3
ANY, MATCH = 1, 2


@pytest.fixture
def access(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        secure(tmp_path / "db", users={"admin": "secret", "alice": "secret"}, super_users=["admin"])
        yield AccessControl(db._session)


def run_in_thread(work):
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def asked_by(access, user, run=asyncio.run):
    """A function that makes requests for a user."""

    def ask(name, version=None, **values):
        api = APIS[KEYS[name]]
        version = api.request.versions[-1] if version is None else version

        async def call(function, *args):
            return function(*args)

        request = SimpleNamespace(
            values=api.request.decode(api.request.encode(values, version), version)[0],
            version=version,
            session=access.session(Principal("User", user), "127.0.0.1"),
            door=SimpleNamespace(access=access),
            call=call,
        )
        answer = run(api.run(request))
        return api.response.decode(api.response.encode(answer, version), version)[0]

    return ask


@pytest.fixture
def ask(access):
    return asked_by(access, "admin")


# ---------------------------------------------------------------- ACLs

ALICE_READS = {
    "resource_type": TOPIC,
    "resource_name": "orders",
    "resource_pattern_type": LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": READ,
    "permission_type": ALLOW,
}
ALL = {"resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY}
ALL |= {"principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY}


def test_acls_are_created_described_and_deleted(access, ask):
    denied = ALICE_READS | {"resource_name": "or", "resource_pattern_type": PREFIXED, "permission_type": DENY, "host": "10.0.0.1"}
    answer = ask("CreateAcls", creations=[ALICE_READS, denied])
    assert [one["error_code"] for one in answer["results"]] == [0, 0]
    stored = access.session(Principal("User", "admin"), "127.0.0.1").security.acls()
    assert set(stored) == {acl("Allow alice@* Read Topic orders"), acl("Deny alice@10.0.0.1 Read Topic or…")}
    assert access.allows(Principal("User", "alice"), "127.0.0.1", "Read", "Topic", "orders")

    shown = {"principal": "User:alice", "operation": READ}
    literal = {"resource_type": TOPIC, "resource_name": "orders", "pattern_type": LITERAL}
    prefixed = {"resource_type": TOPIC, "resource_name": "or", "pattern_type": PREFIXED}
    allow, deny = shown | {"host": "*", "permission_type": ALLOW}, shown | {"host": "10.0.0.1", "permission_type": DENY}
    found = ask("DescribeAcls", **ALL)["resources"]
    assert sorted(found, key=lambda one: one["resource_name"]) == [prefixed | {"acls": [deny]}, literal | {"acls": [allow]}]
    for wanted, names in (
        ({"resource_name_filter": "orders", "pattern_type_filter": MATCH}, {"orders", "or"}),
        ({"resource_name_filter": "orders"}, {"orders"}),
        ({"permission_type": DENY}, {"or"}),
        ({"operation": WRITE}, set()),
        ({"principal_filter": "User:bob"}, set()),
    ):
        assert {one["resource_name"] for one in ask("DescribeAcls", **ALL | wanted)["resources"]} == names

    gone = ask("DeleteAcls", filters=[ALL | {"permission_type": DENY}, ALL | {"host_filter": "*"}])["filter_results"]
    assert [one["matching_acls"] for one in gone] == [
        [prefixed | deny | {"error_code": 0, "error_message": None}],
        [literal | allow | {"error_code": 0, "error_message": None}],
    ]
    assert ask("DescribeAcls", **ALL)["resources"] == []


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_acls_in_each_version(ask, version):
    assert ask("CreateAcls", version, creations=[ALICE_READS])["results"][0]["error_code"] == 0
    (found,) = ask("DescribeAcls", version, **ALL)["resources"]
    assert (found["resource_name"], found["acls"][0]["principal"]) == ("orders", "User:alice")
    assert len(ask("DeleteAcls", version, filters=[ALL])["filter_results"][0]["matching_acls"]) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 1},
        {"resource_type": 7},
        {"operation": ANY},
        {"operation": 12},
        {"permission_type": ANY},
        {"resource_pattern_type": MATCH},
        {"principal": "alice"},
        {"host": ""},
        {"resource_type": CLUSTER},
    ],
    ids=str,
)
def test_an_invalid_acl(ask, wrong):
    results = ask("CreateAcls", creations=[ALICE_READS | wrong, ALICE_READS])["results"]
    assert [one["error_code"] for one in results] == [42, 0]
    assert results[0]["error_message"]


def test_an_invalid_filter(ask):
    assert ask("DescribeAcls", **ALL | {"principal_filter": "alice"})["error_code"] == 42
    assert ask("DeleteAcls", filters=[ALL | {"operation": 99}])["filter_results"][0]["error_code"] == 42


# ---------------------------------------------------------------- SCRAM


def upsertion(name="bob", mechanism=1, password="new", iterations=4096):
    salt, hashed = b"salt" * 4, "SCRAM-SHA-256" if mechanism == 1 else "SCRAM-SHA-512"
    salted = salted_password(hashed, password, salt, iterations)
    return {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": salt, "salted_password": salted}


def altered(ask, *upsertions, deletions=()):
    answer = ask("AlterUserScramCredentials", upsertions=list(upsertions), deletions=list(deletions))
    return {one["user"]: one["error_code"] for one in answer["results"]}


def test_credentials_of_users(access, ask):
    assert altered(ask, upsertion(), upsertion("alice", 2)) == {"bob": 0, "alice": 0}
    assert access.authenticate_password("bob", "new", "127.0.0.1").principal == Principal("User", "bob")
    assert altered(ask, upsertion(mechanism=2, iterations=5000)) == {"bob": 0}
    names = [{"name": name} for name in ("bob", "none")]
    bob, none = ask("DescribeUserScramCredentials", users=names)["results"]
    assert bob["credential_infos"] == [{"mechanism": 1, "iterations": 4096}, {"mechanism": 2, "iterations": 5000}]
    assert none["error_code"] == 91
    assert [one["user"] for one in ask("DescribeUserScramCredentials", users=None)["results"]] == ["admin", "alice", "bob"]
    assert altered(ask, deletions=[{"name": "bob", "mechanism": 1}]) == {"bob": 0}
    (bob,) = ask("DescribeUserScramCredentials", users=[{"name": "bob"}])["results"]
    assert [one["mechanism"] for one in bob["credential_infos"]] == [2]
    twice = ask("DescribeUserScramCredentials", users=[{"name": "bob"}] * 2)["results"]
    assert [one["error_code"] for one in twice] == [92]


def test_changes_of_two_mechanisms_at_once_lose_neither(access, ask, monkeypatch):
    """The second change comes while the first one is made."""
    salted, interleaved = users.credential_of_salted, iter((None,))

    def later(mechanism, *rest):
        for _ in interleaved:
            assert altered(ask_again, upsertion(mechanism=2)) == {"bob": 0}
        return salted(mechanism, *rest)

    ask_again = asked_by(access, "admin", run_in_thread)
    monkeypatch.setattr(users, "credential_of_salted", later)
    assert altered(ask, upsertion(mechanism=1)) == {"bob": 0}
    (bob,) = ask("DescribeUserScramCredentials", users=[{"name": "bob"}])["results"]
    assert [one["mechanism"] for one in bob["credential_infos"]] == [1, 2]


def test_credentials_that_are_refused(access, ask):
    delete = {"name": "bob", "mechanism": 1}
    assert altered(ask, deletions=[delete]) == {"bob": 91}
    assert altered(ask, upsertion(mechanism=1) | {"mechanism": 3}) == {"bob": 33}
    assert altered(ask, upsertion(), deletions=[delete]) == {"bob": 92}
    assert altered(ask, upsertion() | {"iterations": 10}) == {"bob": 93}
    assert altered(ask, upsertion("a:b")) == {"a:b": 93}
    assert altered(asked_by(access, "alice"), upsertion()) == {"bob": 31}
    describe = partial(asked_by(access, "alice"), "DescribeUserScramCredentials")
    assert describe(users=None)["error_code"] == 31
    assert [(one["user"], one["error_code"]) for one in describe(users=[{"name": "bob"}])["results"]] == [("bob", 31)]


# ---------------------------------------------------------------- quotas


def quota(name, *ops, kind="user"):
    return {"entity": [{"entity_type": kind, "entity_name": name}], "ops": [{"key": key, "value": value} for key, value in ops]}


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_of_users(access, ask, version):
    entries = [quota("alice", ("producer_byte_rate", 1000.0), ("consumer_byte_rate", 2000.0)), quota(None, ("producer_byte_rate", 10.0))]
    answer = ask("AlterClientQuotas", version, entries=entries, validate_only=True)
    assert [one["error_code"] for one in answer["entries"]] == [0, 0]
    assert ask("DescribeClientQuotas", version)["entries"] == []
    ask("AlterClientQuotas", version, entries=entries)
    users = access.session(Principal("User", "admin"), "127.0.0.1").security.users()
    assert users.default_quota == Quota(produce_bytes=10)
    assert next(one.quota for one in users.users if one.name == "alice") == Quota(1000, 2000)

    def described(*components, strict=False):
        found = ask("DescribeClientQuotas", version, components=list(components), strict=strict)["entries"]
        return {entry["entity"][0]["entity_name"]: {one["key"]: one["value"] for one in entry["values"]} for entry in found}

    alice = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}
    of_user = {"entity_type": "user", "match": None}
    assert described() == described(of_user | {"match_type": 2}) == {None: {"producer_byte_rate": 10.0}, "alice": alice}
    assert described(of_user | {"match_type": 0, "match": "alice"}, strict=True) == {"alice": alice}
    assert described(of_user | {"match_type": 1}) == {None: {"producer_byte_rate": 10.0}}
    assert described(of_user | {"entity_type": "client-id", "match_type": 2}) == described(strict=True) == {}

    removed = quota("alice") | {"ops": [{"key": "producer_byte_rate", "remove": True}]}
    ask("AlterClientQuotas", version, entries=[removed])
    assert described()["alice"] == {"consumer_byte_rate": 2000.0}


@pytest.mark.parametrize(
    "entry",
    [
        quota("c", ("producer_byte_rate", 1.0), kind="client-id"),
        quota("alice", ("request_percentage", 1.0)),
        quota("alice", ("producer_byte_rate", 0.5)),
        quota("alice", ("producer_byte_rate", 0.0)),
        quota("alice", ("producer_byte_rate", float("nan"))),
        quota("alice", ("producer_byte_rate", float("inf"))),
        {"entity": [], "ops": []},
    ],
    ids=str,
)
def test_a_quota_that_is_refused(ask, entry):
    assert ask("AlterClientQuotas", entries=[entry])["entries"][0]["error_code"] == 42
    assert ask("DescribeClientQuotas")["entries"] == []


@pytest.mark.parametrize("validate_only", [False, True])
def test_quotas_are_for_those_that_may_alter_the_cluster(access, validate_only):
    entries = [quota("alice", ("producer_byte_rate", 1000.0)), quota("alice", ("no_such_rate", 1.0))]
    answer = asked_by(access, "alice")("AlterClientQuotas", entries=entries, validate_only=validate_only)
    assert [one["error_code"] for one in answer["entries"]] == [31, 31]
