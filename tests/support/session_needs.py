"""Every call of a session and of a log, and what it needs: what tests of access control, and of doors, go through."""

from logdb.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from logdb.requests.acls import AclFilter
from logdb.requests.records import AbortedTransactions, EpochAt, OffsetForTimestamp, OpenTransactions, Producers, ReadBatches
from logdb.requests.replicas import DescribeQuorum, ElectLeaders, Reassign, Reassignments
from logdb.requests.topic_changes import AlterConfigs, CheckPartitions
from logdb.requests.topics import DescribeAtRest, PartitionSizes
from support.produced import batch

ORDERS = TopicPartition("orders", 0)
NOBODY = ProducerIdAndEpoch(4711, 0)
MEMBER = {"generation": 1, "member_id": "m"}
JOINING = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocols": [("range", b"")]}
TX, GROUP = "Write TransactionalId tx", "Read Group readers"

# call -> (what is done, ways in which it is allowed, each a set of ACLs that are all needed)
CALLS = {
    "create_topic": (lambda s: s.create_topic("new"), ["Create Cluster kafka-cluster"], ["Create Topic new"]),
    "alter_topic": (
        lambda s: s.alter_topic("orders", config={"retention.ms": 1}, partitions=3),
        ["Alter Topic orders", "AlterConfigs Topic orders"],
    ),
    "check_partitions": (lambda s: s.submit(CheckPartitions("orders", 3)), ["Alter Topic orders"]),
    "check_new_topic": (lambda s: s.check_new_topic("new"), ["Create Cluster kafka-cluster"], ["Create Topic new"]),
    "alter_configs": (lambda s: s.alter_configs("orders", {"retention.ms": 1}), ["AlterConfigs Topic orders"]),
    "check_topic_configs": (lambda s: s.check_topic_configs("orders", {"retention.ms": 1}), ["AlterConfigs Topic orders"]),
    "delete_topic": (lambda s: s.delete_topic("orders"), ["Delete Topic orders"]),
    "delete_records": (lambda s: s.delete_records("orders", 0, 1), ["Delete Topic orders"]),
    "enforce_retention": (lambda s: s.enforce_retention("orders"), ["Delete Topic orders"]),
    "compact": (lambda s: s.compact("orders"), ["Alter Topic orders"]),
    "flush": (lambda s: s.flush(), ["IdempotentWrite Cluster kafka-cluster"], ["Write Topic other"]),
    "describe_topic": (lambda s: s.describe_topic("orders"), ["Describe Topic orders"]),
    "describe_at_rest": (lambda s: s.submit(DescribeAtRest("orders")), ["Describe Topic orders"]),
    "describe_configs": (lambda s: s.describe_configs("orders"), ["DescribeConfigs Topic orders"]),
    "describe_configs, of the node": (lambda s: s.describe_configs(None), ["DescribeConfigs Cluster kafka-cluster"]),
    "alter_configs, of the node": (lambda s: s.submit(AlterConfigs(None, {})), ["AlterConfigs Cluster kafka-cluster"]),
    "partition_sizes": (lambda s: s.submit(PartitionSizes()), ["Describe Cluster kafka-cluster"]),
    "reassign": (lambda s: s.submit(Reassign({ORDERS: (0,)})), ["Alter Cluster kafka-cluster"]),
    "describe_quorum": (lambda s: s.submit(DescribeQuorum()), ["Describe Cluster kafka-cluster"]),
    "reassignments": (lambda s: s.submit(Reassignments()), ["Describe Cluster kafka-cluster"]),
    "elect_leaders": (lambda s: s.submit(ElectLeaders((ORDERS,))), ["Alter Cluster kafka-cluster"]),
    "producers": (lambda s: s.submit(Producers("orders", 0)), ["Read Topic orders"]),
    "partition_count": (lambda s: s.partition_count("orders"), ["Describe Topic orders"]),
    "log": (lambda s: s.log("orders"), ["Describe Topic orders"]),
    "read_batches": (lambda s: s.submit(ReadBatches("orders", 0, 0)), ["Read Topic orders"]),
    "aborted_transactions": (lambda s: s.submit(AbortedTransactions("orders", 0, 0, 1)), ["Read Topic orders"]),
    "open_transactions": (lambda s: s.submit(OpenTransactions("orders", 0)), ["Describe Topic orders"]),
    "offset_for_timestamp": (lambda s: s.submit(OffsetForTimestamp("orders", 0, 0)), ["Describe Topic orders"]),
    "epoch_at": (lambda s: s.submit(EpochAt("orders", 0, 0)), ["Describe Topic orders"]),
    "wait": (lambda s: s.wait({ORDERS: 0, TopicPartition("other", 0): 0}, 0), ["Read Topic orders", "Read Topic other"]),
    "produce": (lambda s: s.produce("orders", 0, batch([b"x"], 1, 0, 0)), ["Write Topic orders"]),
    "produce, transactional": (
        lambda s: s.produce("orders", 0, batch([b"x"], 1, 0, 0, transactional=True), transactional_id="tx"),
        ["Write Topic orders", TX],
    ),
    "produce, mirrored": (
        lambda s: s.produce("orders", 0, batch([b"x"], 1, 0, 0), mirrored=True),
        ["Write Topic orders", "ClusterAction Cluster kafka-cluster"],
    ),
    "init_producer_id": (lambda s: s.init_producer_id(), ["IdempotentWrite Cluster kafka-cluster"], ["Write Topic other"]),
    "init_producer_id, transactional": (lambda s: s.init_producer_id("tx"), [TX]),
    "add_partitions": (lambda s: s.add_partitions("tx", NOBODY, [ORDERS]), ["Write Topic orders", TX]),
    "add_offsets": (lambda s: s.add_offsets("tx", NOBODY, "readers"), [GROUP, TX]),
    "commit_transaction_offsets": (
        lambda s: s.commit_transaction_offsets("tx", NOBODY, "readers", {ORDERS: OffsetAndMetadata(1)}),
        [GROUP, TX, "Read Topic orders"],
    ),
    "end_transaction": (lambda s: s.end_transaction("tx", NOBODY, commit=True), [TX]),
    "abort_transaction": (lambda s: s.abort_transaction("tx"), [TX]),
    "describe_transaction": (lambda s: s.describe_transaction("tx"), ["Describe TransactionalId tx"]),
    "join_group": (lambda s: s.join_group("readers", **JOINING), [GROUP]),
    "sync_group": (lambda s: s.sync_group("readers", assignments={}, **MEMBER), [GROUP]),
    "heartbeat": (lambda s: s.heartbeat("readers", **MEMBER), [GROUP]),
    "leave_group": (lambda s: s.leave_group("readers", "m"), [GROUP]),
    "commit_offsets": (lambda s: s.commit_offsets("readers", {ORDERS: OffsetAndMetadata(1)}), [GROUP, "Read Topic orders"]),
    "fetch_offsets": (lambda s: s.fetch_offsets("readers", [ORDERS]), ["Describe Group readers", "Describe Topic orders"]),
    "describe_group": (lambda s: s.describe_group("readers"), ["Describe Group readers"]),
    "delete_group": (lambda s: s.delete_group("readers"), ["Delete Group readers"]),
    "delete_offsets": (lambda s: s.delete_offsets("readers", [ORDERS]), ["Delete Group readers", "Read Topic orders"]),
    "reports": (lambda s: s.reports(), ["Describe Cluster kafka-cluster"]),
    "verify": (lambda s: s.verify(), ["ClusterAction Cluster kafka-cluster"]),
    "backup": (lambda s: s.backup(f"{s._broker.directory}/b.tmp"), ["ClusterAction Cluster kafka-cluster"]),
    "metrics": (lambda s: s.metrics(), ["Describe Cluster kafka-cluster"]),
    **{
        name: (call, [f"{operation} Cluster kafka-cluster"])
        for name, operation, call in (
            ("users", "Alter", lambda s: s.security.users()),
            ("add_user", "Alter", lambda s: s.security.add_user("new", {})),
            ("set_password", "Alter", lambda s: s.security.set_password("alice", {})),
            ("alter_credentials", "Alter", lambda s: s.security.alter_credentials("alice", {})),
            ("alter_user", "Alter", lambda s: s.security.alter_user("alice", quota={"requests": 5})),
            ("delete_users", "Alter", lambda s: s.security.delete_users(["alice"])),
            ("tokens", "Alter", lambda s: s.security.tokens()),
            ("add_token", "Alter", lambda s: s.security.add_token("ci", "alice", "0" * 64)),
            ("revoke_tokens", "Alter", lambda s: s.security.revoke_tokens(["ci"])),
            ("acls", "Describe", lambda s: s.security.acls()),
            ("add_acls", "Alter", lambda s: s.security.add_acls([])),
            ("delete_acls", "Alter", lambda s: s.security.delete_acls([AclFilter()])),
        )
    },
    "log.append": (lambda s: s.log("orders").append(b"x"), ["Write Topic orders"]),
    "log.append_many": (lambda s: s.log("orders").append_many([b"x"], [b"k"]), ["Write Topic orders"]),
    "log.append_batches": (lambda s: s.log("orders").append_batches(batch([b"x"], 1, 0, 0)), ["Write Topic orders"]),
    "log.flush": (lambda s: s.log("orders").flush(), ["Write Topic orders"]),
    "log.read": (lambda s: list(s.log("orders").read(0)), ["Read Topic orders"]),
    "log.get": (lambda s: s.log("orders").get(0), ["Read Topic orders"]),
    "log.tail": (lambda s: s.log("orders").tail(1), ["Read Topic orders"]),
    "log.read_batches": (lambda s: s.log("orders").read_batches(0), ["Read Topic orders"]),
    "log.read_arrow": (lambda s: list(s.log("orders").read_arrow(0)), ["Read Topic orders"]),
    "log.follow": (lambda s: list(s.log("orders").follow(0, timeout_ms=0)), ["Read Topic orders"]),
    "log.aborted_transactions": (lambda s: s.log("orders").aborted_transactions(0, 1), ["Read Topic orders"]),
}
