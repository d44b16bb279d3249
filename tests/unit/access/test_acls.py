import pytest

from logdb.access.acls import Authorizer
from logdb.requests.acls import AclFilter
from logdb.requests.principals import Principal
from logdb.requests.resources import CLUSTER, OPERATIONS
from support.security import acl

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOME, AWAY = "10.0.0.1", "10.0.0.2"


def authorizer(*texts: str, super_users=()) -> Authorizer:
    return Authorizer(map(acl, texts), super_users)


@pytest.mark.parametrize(
    ("texts", "allowed"),
    [
        ((), False),  # default deny
        (("Allow alice@* Read Topic orders",), True),
        (("Allow bob@* Read Topic orders",), False),
        (("Allow *@* Read Topic orders",), True),
        (("Allow alice@* Read Topic order",), False),
        (("Allow alice@* Read Topic *",), True),
        (("Allow alice@* Read Topic ord…",), True),
        (("Allow alice@* Read Topic orders…",), True),
        (("Allow alice@* Read Topic orders2…",), False),
        (("Allow alice@* Read Topic *…",), False),  # names that begin with a star
        (("Allow alice@* Read Group orders",), False),
        (("Allow alice@10.0.0.1 Read Topic orders",), True),
        (("Allow alice@10.0.0.2 Read Topic orders",), False),
        (("Allow alice@* All Topic orders",), True),
        (("Allow alice@* Write Topic orders",), False),
        (("Allow alice@* Describe Topic orders",), False),
        (("Allow alice@* Read Topic orders", "Deny alice@* Read Topic orders"), False),
        (("Deny alice@* Read Topic orders", "Allow alice@* Read Topic orders"), False),
        (("Allow alice@* Read Topic orders", "Deny *@* Read Topic *"), False),
        (("Allow alice@* Read Topic orders", "Deny alice@* All Topic o…"), False),
        (("Allow alice@* Read Topic orders", "Deny alice@10.0.0.2 Read Topic orders"), True),
        (("Allow alice@* Read Topic orders", "Deny bob@* Read Topic orders"), True),
        (("Allow alice@* Read Topic orders", "Deny alice@* Write Topic orders"), True),
        (("Allow alice@* All Topic *", "Deny alice@* Describe Topic orders"), True),  # a denial implies nothing
    ],
)
def test_reading_a_topic(texts, allowed):
    assert authorizer(*texts).allows(ALICE, HOME, "Read", "Topic", "orders") is allowed


@pytest.mark.parametrize("given", OPERATIONS["Topic"])
@pytest.mark.parametrize("asked", [operation for operation in OPERATIONS["Topic"] if operation != "All"])
def test_what_implies_what(given, asked):
    implied = {
        "All": set(OPERATIONS["Topic"]),
        "Read": {"Describe"},
        "Write": {"Describe"},
        "Delete": {"Describe"},
        "Alter": {"Describe"},
        "AlterConfigs": {"DescribeConfigs"},
    }
    allowed = asked in implied.get(given, set()) | {given}
    assert authorizer(f"Allow alice@* {given} Topic orders").allows(ALICE, HOME, asked, "Topic", "orders") is allowed


def test_who_is_denied_what_implies_describe_may_still_describe():
    granted = authorizer("Allow alice@* Describe Topic orders", "Deny alice@* Read Topic orders")
    assert granted.allows(ALICE, HOME, "Describe", "Topic", "orders")


def test_a_super_user_may_do_anything_whatever_is_denied():
    granted = authorizer("Deny *@* All Topic *", "Deny *@* All Cluster kafka-cluster", super_users=[ALICE])
    assert granted.allows(ALICE, HOME, "Read", "Topic", "orders")
    assert granted.allows(ALICE, HOME, "Alter", "Cluster", CLUSTER)
    assert granted.allows_some(ALICE, HOME, "Write", "Topic")
    assert not granted.allows(BOB, HOME, "Read", "Topic", "orders")


@pytest.mark.parametrize(
    ("written", "host", "same"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1", True),  # what a socket for both kinds of addresses says
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:DB8:0:0::1", "2001:db8::1", True),
        ("2001:db8::1", "2001:db8::2", False),
        ("10.0.0.1", "10.0.0.10", False),
        ("unix", "unix", True),
    ],
)
@pytest.mark.parametrize("permission", ["Allow", "Deny"])
def test_an_address_is_the_same_however_it_is_written(written, host, same, permission):
    granted = authorizer(*(["Allow alice@* Read Topic t"] if permission == "Deny" else []), f"{permission} alice@{written} Read Topic t")
    assert granted.allows(ALICE, host, "Read", "Topic", "t") is (same if permission == "Allow" else not same)
    assert granted.allows_some(ALICE, host, "Read", "Topic") is (same if permission == "Allow" else not same)


def test_principals_of_another_kind_are_others():
    granted = authorizer("Allow alice@* Read Topic orders")
    assert not granted.allows(Principal("Group", "alice"), HOME, "Read", "Topic", "orders")


def test_decisions_are_remembered_within_bounds():
    granted = authorizer("Allow alice@* Read Topic a…")
    for number in range(10_050):
        assert granted.allows(ALICE, HOME, "Read", "Topic", f"a{number}")
        assert not granted.allows(ALICE, HOME, "Read", "Topic", f"b{number}" + "x" * 250)
    assert len(granted._decisions) <= 10_000


@pytest.mark.parametrize(
    ("texts", "allowed"),
    [
        ((), False),
        (("Allow alice@* Write Topic orders",), True),
        (("Allow alice@* All Topic ord…",), True),
        (("Allow alice@* Read Topic orders",), False),
        (("Allow bob@* Write Topic orders",), False),
        (("Allow alice@10.0.0.2 Write Topic orders",), False),
        (("Allow alice@* Write Topic orders", "Deny alice@* Write Topic orders"), False),
        (("Allow alice@* Write Topic orders", "Deny alice@* Write Topic other"), True),
        (("Allow alice@* Write Topic orders", "Deny alice@* Write Topic ord…"), False),
        (("Allow alice@* Write Topic ord…", "Deny alice@* Write Topic orders"), True),
        (("Allow alice@* Write Topic ord…", "Deny alice@* All Topic or…"), False),
        (("Allow alice@* Write Topic *", "Deny alice@* Write Topic orders"), True),
        (("Allow alice@* Write Topic *", "Deny alice@* Write Topic o…"), True),
        (("Allow alice@* Write Topic *", "Deny *@* Write Topic *"), False),
        (("Allow alice@* Write Topic *", "Deny alice@* Write Topic *…"), True),
        (("Allow alice@* Write Topic orders", "Allow alice@* Write Topic x", "Deny alice@* Write Topic orders"), True),
    ],
)
def test_writing_to_some_topic(texts, allowed):
    assert authorizer(*texts).allows_some(ALICE, HOME, "Write", "Topic") is allowed


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resource_type": "Token"}, "resource_type 'Token': must be Topic, Group, Cluster or TransactionalId"),
        ({"operation": "read"}, "operation 'read': must be Read"),
        ({"resource_type": "TransactionalId"}, "operation 'Read': must be Describe, Write or All"),
        ({"permission": "allow"}, "permission 'allow': must be Allow or Deny"),
        ({"pattern_type": "Match"}, "pattern_type 'Match': must be Literal or Prefixed"),
        ({"name": ""}, "none of them may be empty"),
        ({"host": ""}, "none of them may be empty"),
        ({"name": "é" * 20_000}, "its resource's name has 40000 bytes: must have at most 32767"),
        ({"host": "h" * 32_768}, "its host has 32768 bytes"),
        ({"principal": Principal("User", "a" * 32_763)}, "its principal has 32768 bytes"),
        ({"resource_type": "Cluster", "operation": "Alter"}, "there is one, 'kafka-cluster'"),
    ],
)
def test_what_cannot_be_an_acl_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        acl("Allow alice@* Read Topic orders")._replace(**fields).check()


def test_filters_find_by_each_field_and_by_what_would_be_asked():
    kept = [
        acl("Allow alice@* Read Topic orders"),
        acl("Allow alice@* Read Topic ord…"),
        acl("Deny bob@10.0.0.1 Write Topic *"),
        acl("Allow bob@* Read Group orders"),
    ]

    def found(**fields):
        return [number for number, one in enumerate(kept) if AclFilter(**fields).finds(one)]

    assert found() == [0, 1, 2, 3]
    assert found(principal=ALICE) == [0, 1]
    assert found(host=HOME) == [2]
    assert found(operation="Write") == [2]
    assert found(permission="Deny") == [2]
    assert found(resource_type="Group") == [3]
    assert found(pattern_type="Prefixed") == [1]
    assert found(name="orders") == [0, 3]
    assert found(resource_type="Topic", name="orders", match=True) == [0, 1, 2]


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", ""])
def test_a_principal_has_a_kind_and_a_name(text):
    with pytest.raises(ValueError, match="must be KIND:NAME"):
        Principal.parse(text)


def test_a_principal_is_read_as_it_is_written():
    for text in ("User:alice", "User:CN=alice,O=Acme:1"):
        assert str(Principal.parse(text)) == text
