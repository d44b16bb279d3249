"""Principals: the authenticated users of requests."""

from typing import NamedTuple


class Principal(NamedTuple):
    """A principal by kind and name, as Kafka writes it: ``User:alice``."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @staticmethod
    def parse(text: str) -> "Principal":
        """The inverse of ``str``.

        Raises:
            ValueError: It is not ``kind:name``, or one of the two is empty.
        """
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"principal {text!r}: must be KIND:NAME, such as User:alice")
        return Principal(kind, name)


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of every request while authentication is off."""
CLUSTER_NODE = Principal("User", "logdb-cluster")
"""The principal of a cluster's nodes among themselves: a super user, and no user can log in under its name."""
EVERYBODY = Principal("User", "*")
"""In an ACL: every principal.  Source: Kafka's ``AclEntry.WildcardPrincipal``."""
