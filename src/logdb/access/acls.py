"""Kafka's ACLs: operations, resources, patterns, and which of several ACLs decides.

An ACL allows or denies one operation on the resources of a pattern to a principal from a host.  In this order:

    1. a super user may do anything
    2. one ACL that denies the operation, or All, denies
    3. one ACL that allows it, All, or an operation that implies it, allows
    4. everything else is denied

    Read, Write, Delete, Alter  imply  Describe            AlterConfigs  implies  DescribeConfigs

Only an allowed operation implies another: a principal that is denied Read may still have Describe.

Source: Kafka's ``AclAuthorizer`` and ``StandardAuthorizer``; KIP-11, KIP-290 (prefixes), KIP-679 (any resource of a type).
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping

from logdb.requests.acls import ANY, Acl, PatternType
from logdb.requests.principals import Principal
from logdb.requests.resources import Operation, ResourceType

_IMPLIED_BY: Mapping[Operation, tuple[Operation, ...]] = {
    "Describe": ("Describe", "Read", "Write", "Delete", "Alter", "All"),
    "DescribeConfigs": ("DescribeConfigs", "AlterConfigs", "All"),
}
_DECISION_COUNT_MAX, _NAME_LENGTH_MAX = 10_000, 249


class Authorizer:
    """What a set of ACLs allows; immutable.

    Threading: any number of threads.
    """

    def __init__(self, acls: Iterable[Acl] = (), super_users: Iterable[Principal] = ()) -> None:
        self._super_users = frozenset(super_users)
        self._acls: dict[tuple[ResourceType, PatternType, str], list[Acl]] = {}
        for given in acls:
            acl = given._replace(host=_address(given.host))
            self._acls.setdefault((acl.resource_type, acl.pattern_type, acl.name), []).append(acl)
        lengths: dict[ResourceType, set[int]] = {}
        for resource_type, pattern_type, name in self._acls:
            if pattern_type == "Prefixed":
                lengths.setdefault(resource_type, set()).add(len(name))
        self._prefix_lengths = {resource_type: sorted(found) for resource_type, found in lengths.items()}
        self._decisions: dict[tuple[Principal, str, Operation, ResourceType, str | None], bool] = {}

    def is_super_user(self, principal: Principal) -> bool:
        """Whether a principal is a super user: ACLs do not bind it."""
        return principal in self._super_users

    def allows(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether a principal, from the address ``host``, may do an operation on one resource."""
        known = self._decisions.get((principal, host, operation, resource_type, name))
        if known is None:
            known = self._decide(principal, host, operation, resource_type, name)
            if len(name) <= _NAME_LENGTH_MAX:
                self._remember((principal, host, operation, resource_type, name), known)
        return known

    def _remember(self, asked: tuple[Principal, str, Operation, ResourceType, str | None], decision: bool) -> None:
        if len(self._decisions) >= _DECISION_COUNT_MAX:
            self._decisions = {}
        self._decisions[asked] = decision

    def _decide(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        enough, host = _IMPLIED_BY.get(operation, (operation, "All")), _address(host)
        allowed = False
        for acl in self._of(resource_type, name):
            if acl.is_for(principal, host):
                if acl.permission == "Deny" and acl.operation in (operation, "All"):
                    return False
                allowed = allowed or (acl.permission == "Allow" and acl.operation in enough)
        return allowed

    def _of(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        """The ACLs that cover a resource."""
        for literal in {name, ANY}:
            yield from self._acls.get((resource_type, "Literal", literal), ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            yield from self._acls.get((resource_type, "Prefixed", name[:length]), ())

    def allows_some(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the principal may do the operation on some resource of a type, existing or not.

        It may if an ACL allows it, and no single other ACL denies every resource that this one covers.

        Source: KIP-679, ``authorizeByResourceType``.
        """
        known = self._decisions.get((principal, host, operation, resource_type, None))
        if known is None:
            known = self._decide_some(principal, host, operation, resource_type)
            self._remember((principal, host, operation, resource_type, None), known)
        return known

    def _decide_some(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        if principal in self._super_users:
            return True
        enough, host = _IMPLIED_BY.get(operation, (operation, "All")), _address(host)
        of_type = (acl for (its_type, _, _), acls in self._acls.items() if its_type == resource_type for acl in acls)
        mine = [acl for acl in of_type if acl.is_for(principal, host)]
        denied = [acl for acl in mine if acl.permission == "Deny" and acl.operation in (operation, "All")]
        allowed = [acl for acl in mine if acl.permission == "Allow" and acl.operation in enough]
        return any(not any(_takes_all(denial, acl) for denial in denied) for acl in allowed)


def _address(host: str) -> str:
    """The canonical form of an address; text that is no address stays as it is."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)


def _takes_all(denial: Acl, acl: Acl) -> bool:
    """Whether a denial covers every resource that an ACL covers."""
    if denial.pattern_type == "Prefixed":
        return acl.name.startswith(denial.name) and (acl.name != ANY or acl.pattern_type == "Prefixed")
    return denial.name == ANY or (acl.pattern_type == "Literal" and acl.name == denial.name)
