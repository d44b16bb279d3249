"""The authorizer against the rules written down one by one, over all ACLs, without an index and without a memory."""

from hypothesis import given
from hypothesis import strategies as st

from logdb.access.acls import Authorizer
from logdb.requests.acls import Acl
from logdb.requests.principals import Principal
from logdb.requests.resources import OPERATIONS

NAMES = ["*", "a", "ab", "abc", "b", "a*", "**"]
PRINCIPALS = [Principal("User", name) for name in ("*", "alice", "bob")] + [Principal("Robot", "alice")]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
ASKED_NAMES = ["a", "ab", "abc", "abcd", "b", "c", "*a"]
IMPLIES = {
    "Read": {"Describe"},
    "Write": {"Describe"},
    "Delete": {"Describe"},
    "Alter": {"Describe"},
    "AlterConfigs": {"DescribeConfigs"},
}
TYPES = [name for name in OPERATIONS if name != "Cluster"]


@st.composite
def acls(draw):
    resource_type = draw(st.sampled_from(TYPES))
    return Acl(
        draw(st.sampled_from(PRINCIPALS)),
        draw(st.sampled_from(HOSTS)),
        draw(st.sampled_from(OPERATIONS[resource_type])),
        draw(st.sampled_from(["Allow", "Allow", "Deny"])),
        resource_type,
        draw(st.sampled_from(["Literal", "Prefixed"])),
        draw(st.sampled_from(NAMES)),
    )


def concerns(acl, principal, host, resource_type):
    who = acl.principal == principal or str(acl.principal) == "User:*"
    return who and acl.host in ("*", host) and acl.resource_type == resource_type


def matches(acl, name):
    return name[: len(acl.name)] == acl.name if acl.pattern_type == "Prefixed" else acl.name in (name, "*")


def model(all_acls, principal, host, operation, resource_type, name):
    found = [acl for acl in all_acls if concerns(acl, principal, host, resource_type) and matches(acl, name)]
    if any(acl.permission == "Deny" and acl.operation in (operation, "All") for acl in found):
        return False
    granted = {acl.operation for acl in found if acl.permission == "Allow"}
    return operation in granted or "All" in granted or any(operation in IMPLIES.get(one, ()) for one in granted)


@given(st.lists(acls(), max_size=12))
def test_decisions_are_those_of_the_rules(given_acls):
    authorizer = Authorizer(given_acls)
    for principal in PRINCIPALS[1:]:
        for host in HOSTS[1:]:
            for resource_type in TYPES:
                for operation in OPERATIONS[resource_type]:
                    for name in ASKED_NAMES if operation != "All" else ():
                        asked = (principal, host, operation, resource_type, name)
                        expected = model(given_acls, *asked)
                        assert authorizer.allows(*asked) is expected, asked
                        assert authorizer.allows(*asked) is expected, asked  # as remembered


@given(st.lists(acls(), max_size=8), st.sampled_from(PRINCIPALS[1:]), st.sampled_from(HOSTS[1:]))
def test_who_may_write_to_one_topic_may_write_to_some(given_acls, principal, host):
    """Of one allowed name there is an ACL that no single denial covers: KIP-679 never says no where there is a yes."""
    authorizer = Authorizer(given_acls)
    if any(model(given_acls, principal, host, "Write", "Topic", name) for name in ASKED_NAMES):
        assert authorizer.allows_some(principal, host, "Write", "Topic")
    if not any(acl.permission == "Allow" for acl in given_acls):
        assert not authorizer.allows_some(principal, host, "Write", "Topic")
