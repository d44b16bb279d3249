"""What a principal may do with a resource, as the bits that Kafka's clients read."""

from logdb.access.session import AuthorizedSession
from logdb.requests.resources import CLUSTER, Operation, ResourceType

CODES: dict[Operation, int] = {
    "All": 2,
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "ClusterAction": 9,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
    "IdempotentWrite": 12,
}
"""Kafka's numbers of operations."""


def operations(session: AuthorizedSession, resource_type: ResourceType, name: str = CLUSTER) -> int:
    """A bit for each operation that the principal may do."""
    return sum(1 << CODES[one] for one in session.operations(resource_type, name))
