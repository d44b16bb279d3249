"""What the door does for each API: one module for each family."""

from collections.abc import Mapping
from types import MappingProxyType

from logdb_kafka_api.call import AtOnce, Handler
from logdb_kafka_api.handlers import (
    acls,
    administration,
    cluster,
    configs,
    fetch,
    group_offsets,
    groups,
    metadata,
    offsets,
    produce,
    replicas,
    sasl,
    telemetry,
    topics,
    transactions,
    users,
)

HANDLERS: Mapping[int, Handler] = MappingProxyType(
    {
        0: produce.produce,
        1: fetch.fetch,
        2: offsets.list_offsets,
        3: metadata.metadata,
        8: group_offsets.offset_commit,
        9: group_offsets.offset_fetch,
        10: metadata.find_coordinator,
        11: groups.join_group,
        12: groups.heartbeat,
        13: groups.leave_group,
        14: groups.sync_group,
        15: groups.describe_groups,
        16: groups.list_groups,
        17: sasl.sasl_handshake,
        18: metadata.api_versions,
        19: topics.create_topics,
        20: topics.delete_topics,
        21: administration.delete_records,
        22: transactions.init_producer_id,
        23: offsets.offset_for_leader_epoch,
        24: transactions.add_partitions_to_txn,
        25: transactions.add_offsets_to_txn,
        26: transactions.end_txn,
        28: transactions.txn_offset_commit,
        29: acls.describe_acls,
        30: acls.create_acls,
        31: acls.delete_acls,
        32: configs.describe_configs,
        33: configs.alter_configs,
        34: administration.alter_replica_log_dirs,
        35: administration.describe_log_dirs,
        36: sasl.sasl_authenticate,
        37: administration.create_partitions,
        42: groups.delete_groups,
        43: replicas.elect_leaders,
        44: configs.incremental_alter_configs,
        45: replicas.alter_partition_reassignments,
        46: replicas.list_partition_reassignments,
        47: group_offsets.offset_delete,
        48: users.describe_client_quotas,
        49: users.alter_client_quotas,
        50: users.describe_user_scram_credentials,
        51: users.alter_user_scram_credentials,
        55: cluster.describe_quorum,
        57: cluster.update_features,
        60: cluster.describe_cluster,
        61: transactions.describe_producers,
        65: transactions.describe_transactions,
        66: transactions.list_transactions,
        68: groups.consumer_group_heartbeat,
        71: telemetry.get_telemetry_subscriptions,
        72: telemetry.push_telemetry,
        74: configs.list_config_resources,
        75: metadata.describe_topic_partitions,
    }
)
"""By the key of the API."""

AT_ONCE: Mapping[int, AtOnce] = MappingProxyType({0: produce.produce_at_once})
"""Of the APIs that may be answered on the loop, by key; ``HANDLERS`` has the same API's way that waits."""
