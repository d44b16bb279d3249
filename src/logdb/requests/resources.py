"""What can be done with what: Kafka's operations and resources, by which requests say what they need and ACLs what they allow.

Source: Kafka's ``AclOperation`` and ``ResourceType``; KIP-11, KIP-679.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

Operation: TypeAlias = Literal[
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
    "All",
]
ResourceType: TypeAlias = Literal["Topic", "Group", "Cluster", "TransactionalId"]

OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    "Topic": ("Read", "Write", "Create", "Describe", "Delete", "Alter", "DescribeConfigs", "AlterConfigs", "All"),
    "Group": ("Read", "Describe", "Delete", "All"),
    "Cluster": ("Create", "ClusterAction", "DescribeConfigs", "AlterConfigs", "IdempotentWrite", "Alter", "Describe", "All"),
    "TransactionalId": ("Describe", "Write", "All"),
}
"""What can be done with a resource of each type."""
CLUSTER = "kafka-cluster"
"""The name of the one resource of type Cluster."""
Right: TypeAlias = tuple[Operation, ResourceType, str | None]
"""An operation on one resource; None: on some resource of the type."""
AS_GOOD: Mapping[tuple[Operation, ResourceType], Right] = {
    ("Create", "Topic"): ("Create", "Cluster", CLUSTER),
    ("IdempotentWrite", "Cluster"): ("Write", "Topic", None),
}
"""A right that is as good as another one."""
