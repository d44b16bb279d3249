"""The APIs of Kafka's protocol that this door answers, by key."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from logdb.codec import messages as batch_messages
from logdb.codec.schema import Message
from logdb_kafka_api.messages import (
    cluster,
    configs,
    group_offsets,
    groups,
    metadata,
    offsets,
    replicas,
    security,
    telemetry,
    topics,
    transactions,
)


class Api(NamedTuple):
    """A request and its response; both have the same versions."""

    key: int
    name: str
    request: Message
    response: Message


def _api(key: int, request: Message, response: Message) -> Api:
    return Api(key, request.name.removesuffix("Request"), request, response)


_ALL = (
    _api(batch_messages.PRODUCE, batch_messages.PRODUCE_REQUEST, batch_messages.PRODUCE_RESPONSE),
    _api(batch_messages.FETCH, batch_messages.FETCH_REQUEST, batch_messages.FETCH_RESPONSE),
    _api(2, offsets.LIST_OFFSETS_REQUEST, offsets.LIST_OFFSETS_RESPONSE),
    _api(3, metadata.METADATA_REQUEST, metadata.METADATA_RESPONSE),
    _api(8, group_offsets.OFFSET_COMMIT_REQUEST, group_offsets.OFFSET_COMMIT_RESPONSE),
    _api(9, group_offsets.OFFSET_FETCH_REQUEST, group_offsets.OFFSET_FETCH_RESPONSE),
    _api(10, metadata.FIND_COORDINATOR_REQUEST, metadata.FIND_COORDINATOR_RESPONSE),
    _api(11, groups.JOIN_GROUP_REQUEST, groups.JOIN_GROUP_RESPONSE),
    _api(12, groups.HEARTBEAT_REQUEST, groups.HEARTBEAT_RESPONSE),
    _api(13, groups.LEAVE_GROUP_REQUEST, groups.LEAVE_GROUP_RESPONSE),
    _api(14, groups.SYNC_GROUP_REQUEST, groups.SYNC_GROUP_RESPONSE),
    _api(15, groups.DESCRIBE_GROUPS_REQUEST, groups.DESCRIBE_GROUPS_RESPONSE),
    _api(16, groups.LIST_GROUPS_REQUEST, groups.LIST_GROUPS_RESPONSE),
    _api(17, security.SASL_HANDSHAKE_REQUEST, security.SASL_HANDSHAKE_RESPONSE),
    _api(18, metadata.API_VERSIONS_REQUEST, metadata.API_VERSIONS_RESPONSE),
    _api(19, topics.CREATE_TOPICS_REQUEST, topics.CREATE_TOPICS_RESPONSE),
    _api(20, topics.DELETE_TOPICS_REQUEST, topics.DELETE_TOPICS_RESPONSE),
    _api(21, topics.DELETE_RECORDS_REQUEST, topics.DELETE_RECORDS_RESPONSE),
    _api(22, transactions.INIT_PRODUCER_ID_REQUEST, transactions.INIT_PRODUCER_ID_RESPONSE),
    _api(
        batch_messages.OFFSET_FOR_LEADER_EPOCH,
        batch_messages.OFFSET_FOR_LEADER_EPOCH_REQUEST,
        batch_messages.OFFSET_FOR_LEADER_EPOCH_RESPONSE,
    ),
    _api(24, transactions.ADD_PARTITIONS_TO_TXN_REQUEST, transactions.ADD_PARTITIONS_TO_TXN_RESPONSE),
    _api(25, transactions.ADD_OFFSETS_TO_TXN_REQUEST, transactions.ADD_OFFSETS_TO_TXN_RESPONSE),
    _api(26, transactions.END_TXN_REQUEST, transactions.END_TXN_RESPONSE),
    _api(28, transactions.TXN_OFFSET_COMMIT_REQUEST, transactions.TXN_OFFSET_COMMIT_RESPONSE),
    _api(29, security.DESCRIBE_ACLS_REQUEST, security.DESCRIBE_ACLS_RESPONSE),
    _api(30, security.CREATE_ACLS_REQUEST, security.CREATE_ACLS_RESPONSE),
    _api(31, security.DELETE_ACLS_REQUEST, security.DELETE_ACLS_RESPONSE),
    _api(32, configs.DESCRIBE_CONFIGS_REQUEST, configs.DESCRIBE_CONFIGS_RESPONSE),
    _api(33, configs.ALTER_CONFIGS_REQUEST, configs.ALTER_CONFIGS_RESPONSE),
    _api(34, topics.ALTER_REPLICA_LOG_DIRS_REQUEST, topics.ALTER_REPLICA_LOG_DIRS_RESPONSE),
    _api(35, topics.DESCRIBE_LOG_DIRS_REQUEST, topics.DESCRIBE_LOG_DIRS_RESPONSE),
    _api(36, security.SASL_AUTHENTICATE_REQUEST, security.SASL_AUTHENTICATE_RESPONSE),
    _api(37, topics.CREATE_PARTITIONS_REQUEST, topics.CREATE_PARTITIONS_RESPONSE),
    _api(42, groups.DELETE_GROUPS_REQUEST, groups.DELETE_GROUPS_RESPONSE),
    _api(43, replicas.ELECT_LEADERS_REQUEST, replicas.ELECT_LEADERS_RESPONSE),
    _api(44, configs.INCREMENTAL_ALTER_CONFIGS_REQUEST, configs.INCREMENTAL_ALTER_CONFIGS_RESPONSE),
    _api(45, replicas.ALTER_PARTITION_REASSIGNMENTS_REQUEST, replicas.ALTER_PARTITION_REASSIGNMENTS_RESPONSE),
    _api(46, replicas.LIST_PARTITION_REASSIGNMENTS_REQUEST, replicas.LIST_PARTITION_REASSIGNMENTS_RESPONSE),
    _api(47, group_offsets.OFFSET_DELETE_REQUEST, group_offsets.OFFSET_DELETE_RESPONSE),
    _api(48, configs.DESCRIBE_CLIENT_QUOTAS_REQUEST, configs.DESCRIBE_CLIENT_QUOTAS_RESPONSE),
    _api(49, configs.ALTER_CLIENT_QUOTAS_REQUEST, configs.ALTER_CLIENT_QUOTAS_RESPONSE),
    _api(50, security.DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST, security.DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE),
    _api(51, security.ALTER_USER_SCRAM_CREDENTIALS_REQUEST, security.ALTER_USER_SCRAM_CREDENTIALS_RESPONSE),
    _api(55, cluster.DESCRIBE_QUORUM_REQUEST, cluster.DESCRIBE_QUORUM_RESPONSE),
    _api(57, cluster.UPDATE_FEATURES_REQUEST, cluster.UPDATE_FEATURES_RESPONSE),
    _api(60, metadata.DESCRIBE_CLUSTER_REQUEST, metadata.DESCRIBE_CLUSTER_RESPONSE),
    _api(61, transactions.DESCRIBE_PRODUCERS_REQUEST, transactions.DESCRIBE_PRODUCERS_RESPONSE),
    _api(65, transactions.DESCRIBE_TRANSACTIONS_REQUEST, transactions.DESCRIBE_TRANSACTIONS_RESPONSE),
    _api(66, transactions.LIST_TRANSACTIONS_REQUEST, transactions.LIST_TRANSACTIONS_RESPONSE),
    _api(68, groups.CONSUMER_GROUP_HEARTBEAT_REQUEST, groups.CONSUMER_GROUP_HEARTBEAT_RESPONSE),
    _api(71, telemetry.GET_TELEMETRY_SUBSCRIPTIONS_REQUEST, telemetry.GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE),
    _api(72, telemetry.PUSH_TELEMETRY_REQUEST, telemetry.PUSH_TELEMETRY_RESPONSE),
    _api(74, configs.LIST_CONFIG_RESOURCES_REQUEST, configs.LIST_CONFIG_RESOURCES_RESPONSE),
    _api(75, metadata.DESCRIBE_TOPIC_PARTITIONS_REQUEST, metadata.DESCRIBE_TOPIC_PARTITIONS_RESPONSE),
)
APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _ALL})
API_VERSIONS = APIS[18]
UNADVERTISED = frozenset((71, 72))
"""APIs that are answered and that ApiVersions leaves out: those of client metrics."""
UNAUTHENTICATED = frozenset((17, 18, 36))
"""APIs that a client may ask before it is authenticated: SaslHandshake, ApiVersions, SaslAuthenticate."""
