"""ACLs and filters of them, as requests carry them; which ACL decides is the rule of ``access.acls``.

Source: KIP-11, KIP-290 (prefixes).
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from logdb.mistakes import one_of
from logdb.requests.principals import EVERYBODY, Principal
from logdb.requests.resources import CLUSTER, OPERATIONS, Operation, ResourceType

Permission: TypeAlias = Literal["Allow", "Deny"]
PatternType: TypeAlias = Literal["Literal", "Prefixed"]

ANY = "*"
"""As the name or the host of an ACL: all of them."""

_TEXT_BYTES_MAX = 32_767  # what Kafka's clients read as a string


def spelled(name: str) -> str:
    """``DescribeConfigs`` as Kafka's tools and its REST API spell it: ``DESCRIBE_CONFIGS``."""
    return "".join(f"_{letter}" if letter.isupper() and at else letter for at, letter in enumerate(name)).upper()


class Acl(NamedTuple):
    """One ACL; ``host`` is an address or ``*``, ``name`` a resource's name, a prefix of one (``Prefixed``), or ``*``."""

    principal: Principal
    host: str
    operation: Operation
    permission: Permission
    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    def __str__(self) -> str:
        """``Allow User:alice@* Read Topic 'orders'``; three dots follow a prefix."""
        more = "…" if self.pattern_type == "Prefixed" else ""
        return f"{self.permission} {self.principal}@{self.host} {self.operation} {self.resource_type} {self.name!r}{more}"

    def check(self) -> "Acl":
        """Return the ACL if it is valid.

        Raises:
            ValueError: names the field and what is allowed.
        """
        allowed: dict[str, Iterable[str]] = {
            "resource_type": OPERATIONS,
            "operation": OPERATIONS.get(self.resource_type, ()),
            "permission": ("Allow", "Deny"),
            "pattern_type": ("Literal", "Prefixed"),
        }
        for field, values in allowed.items():
            if getattr(self, field) not in values:
                raise ValueError(f"ACL {field} {getattr(self, field)!r}: must be {one_of(values)}")
        if not (self.principal.kind and self.principal.name and self.host and self.name):
            raise ValueError(f"ACL of {self.principal} from {self.host!r} for {self.name!r}: none of them may be empty")
        for what, text in (("principal", str(self.principal)), ("host", self.host), ("resource's name", self.name)):
            if (size_bytes := len(text.encode(errors="replace"))) > _TEXT_BYTES_MAX:
                raise ValueError(f"an ACL is too long: its {what} has {size_bytes} bytes: must have at most {_TEXT_BYTES_MAX}")
        if self.resource_type == "Cluster" and (self.name, self.pattern_type) != (CLUSTER, "Literal"):
            raise ValueError(f"ACL for Cluster {self.name!r}: there is one, {CLUSTER!r}, to be named literally")
        return self

    def is_for(self, principal: Principal, host: str) -> bool:
        """Whether the ACL applies to a principal that calls from a host."""
        return self.principal in (principal, EVERYBODY) and self.host in (host, ANY)

    def covers(self, name: str) -> bool:
        """Whether the ACL applies to the resource of that name."""
        if self.pattern_type == "Prefixed":
            return name.startswith(self.name)
        return self.name in (name, ANY)


class AclFilter(NamedTuple):
    """Selects ACLs to list or to delete; a field that is None selects all.

    ``match`` is as Kafka's pattern type ``Match``: a ``name`` finds every ACL that applies to that resource.
    """

    principal: Principal | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None
    resource_type: ResourceType | None = None
    pattern_type: PatternType | None = None
    name: str | None = None
    match: bool = False

    def finds(self, acl: Acl) -> bool:
        """Whether the filter selects an ACL."""
        fields = ("principal", "host", "operation", "permission", "resource_type", "pattern_type")
        if any(getattr(self, field) not in (None, getattr(acl, field)) for field in fields):
            return False
        return self.name is None or (acl.covers(self.name) if self.match else acl.name == self.name)
