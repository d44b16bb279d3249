"""Who asks.

Knows names.  Does not know how somebody shows who they are (``credentials``, and the doors), nor what they may do (``acls``).
"""

from typing import NamedTuple


class Principal(NamedTuple):
    """Somebody, by kind and name, as Kafka writes it: ``User:alice``."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @staticmethod
    def parse(text: str) -> "Principal":
        """The principal that ``str`` was given.

        Raises:
            ValueError: It is not ``kind:name``, or one of the two is empty.
        """
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"principal {text!r}: wanted is KIND:NAME, such as User:alice")
        return Principal(kind, name)


ANONYMOUS = Principal("User", "ANONYMOUS")
"""Whoever did not say, where nobody has to."""
EVERYBODY = Principal("User", "*")
"""In an ACL: whoever it is.  Source: Kafka's ``AclEntry.WildcardPrincipal``."""
