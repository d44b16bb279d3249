"""Kafka's error codes, and which one each error of logdb becomes.

An error without a row has that of its nearest base.  Which codes a client retries is the client's own table: a fault of the disk
is KAFKA_STORAGE_ERROR, which it does, because a client that meets UNKNOWN_SERVER_ERROR may give up its producer.
"""

from enum import IntEnum

from logdb import errors
from logdb.errors import LogdbError, NotAuthorized


class Code(IntEnum):
    """Kafka's names and numbers of the codes that are answered here."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_SUBSCRIPTION_ID = 117
    TRANSACTION_ABORTABLE = 120


CODES: dict[type[LogdbError], Code] = {
    LogdbError: Code.UNKNOWN_SERVER_ERROR,
    errors.UnknownTopic: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicDeleted: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownPartition: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: Code.TOPIC_ALREADY_EXISTS,
    errors.InvalidTopic: Code.INVALID_TOPIC_EXCEPTION,
    errors.InvalidConfig: Code.INVALID_CONFIG,
    errors.PolicyViolation: Code.POLICY_VIOLATION,
    errors.InvalidPartitions: Code.INVALID_PARTITIONS,
    errors.InvalidReplicationFactor: Code.INVALID_REPLICATION_FACTOR,
    errors.RecordTooLarge: Code.MESSAGE_TOO_LARGE,
    errors.InvalidTimestamp: Code.INVALID_TIMESTAMP,
    errors.InvalidRecord: Code.INVALID_RECORD,
    errors.InvalidBatch: Code.INVALID_RECORD,
    errors.CorruptBatch: Code.CORRUPT_MESSAGE,
    errors.InvalidMessage: Code.INVALID_REQUEST,
    errors.CodecMissing: Code.UNSUPPORTED_COMPRESSION_TYPE,
    errors.OffsetOutOfRange: Code.OFFSET_OUT_OF_RANGE,
    errors.LogTruncated: Code.OFFSET_OUT_OF_RANGE,
    errors.UnexpectedOffset: Code.INVALID_REQUEST,  # a condition that clients of this library alone send
    errors.FencedLeaderEpoch: Code.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpoch: Code.UNKNOWN_LEADER_EPOCH,
    errors.ProducerFenced: Code.PRODUCER_FENCED,
    errors.OutOfOrderSequence: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.CoordinatorFenced: Code.TRANSACTION_COORDINATOR_FENCED,
    errors.InvalidProducer: Code.INVALID_PRODUCER_ID_MAPPING,
    errors.InvalidTransactionState: Code.INVALID_TXN_STATE,
    errors.ConcurrentTransactions: Code.CONCURRENT_TRANSACTIONS,
    errors.InvalidTransactionTimeout: Code.INVALID_TRANSACTION_TIMEOUT,
    errors.ThreadUnavailable: Code.KAFKA_STORAGE_ERROR,
    errors.UnknownGroup: Code.GROUP_ID_NOT_FOUND,
    errors.InvalidGroup: Code.INVALID_GROUP_ID,
    errors.OffsetMetadataTooLarge: Code.OFFSET_METADATA_TOO_LARGE,
    errors.GroupNotEmpty: Code.NON_EMPTY_GROUP,
    errors.UnknownMember: Code.UNKNOWN_MEMBER_ID,
    errors.IllegalGeneration: Code.ILLEGAL_GENERATION,
    errors.RebalanceInProgress: Code.REBALANCE_IN_PROGRESS,
    errors.FencedInstance: Code.FENCED_INSTANCE_ID,
    errors.MemberIdRequired: Code.MEMBER_ID_REQUIRED,
    errors.GroupFull: Code.GROUP_MAX_SIZE_REACHED,
    errors.MemberMemoryFull: Code.GROUP_MAX_SIZE_REACHED,
    errors.UnstableOffsets: Code.UNSTABLE_OFFSET_COMMIT,
    errors.InconsistentProtocol: Code.INCONSISTENT_GROUP_PROTOCOL,
    errors.NotLeaderOrFollower: Code.NOT_LEADER_OR_FOLLOWER,
    errors.NotLeaderAfterAppend: Code.NOT_LEADER_OR_FOLLOWER,
    errors.NotEnoughReplicas: Code.NOT_ENOUGH_REPLICAS,
    errors.NotEnoughReplicasAfterAppend: Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.CommitTimeout: Code.REQUEST_TIMED_OUT,
    errors.OffsetNotAvailable: Code.OFFSET_NOT_AVAILABLE,
    errors.StaleBrokerEpoch: Code.STALE_BROKER_EPOCH,
    errors.ControllerUnavailable: Code.REQUEST_TIMED_OUT,
    errors.MetadataTimeout: Code.REQUEST_TIMED_OUT,
    errors.InvalidReassignment: Code.INVALID_REPLICA_ASSIGNMENT,
    errors.ReplicaCountChanged: Code.INVALID_REPLICATION_FACTOR,
    errors.NoReassignment: Code.NO_REASSIGNMENT_IN_PROGRESS,
    errors.ElectionNotNeeded: Code.ELECTION_NOT_NEEDED,
    errors.PreferredLeaderNotAvailable: Code.PREFERRED_LEADER_NOT_AVAILABLE,
    errors.EligibleLeadersNotAvailable: Code.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    errors.NotCoordinator: Code.NOT_COORDINATOR,
    errors.CoordinatorLoading: Code.COORDINATOR_LOAD_IN_PROGRESS,
    errors.Closed: Code.NETWORK_EXCEPTION,
    errors.ReadOnly: Code.KAFKA_STORAGE_ERROR,
    errors.AuthenticationFailed: Code.SASL_AUTHENTICATION_FAILED,
    errors.NotAuthorized: Code.CLUSTER_AUTHORIZATION_FAILED,  # of other resources: _OF_RESOURCE
    errors.UnknownCredential: Code.RESOURCE_NOT_FOUND,
    errors.CredentialExists: Code.DUPLICATE_RESOURCE,
    errors.InvalidSecurity: Code.INVALID_REQUEST,
    errors.SecurityDisabled: Code.SECURITY_DISABLED,
    errors.DiskFull: Code.KAFKA_STORAGE_ERROR,
    errors.WriteFailed: Code.KAFKA_STORAGE_ERROR,
    errors.ReadFailed: Code.KAFKA_STORAGE_ERROR,
    errors.SyncFailed: Code.KAFKA_STORAGE_ERROR,
    errors.CorruptionError: Code.KAFKA_STORAGE_ERROR,
    errors.CatalogueDamaged: Code.KAFKA_STORAGE_ERROR,
}
_OF_RESOURCE = {
    "Topic": Code.TOPIC_AUTHORIZATION_FAILED,
    "Group": Code.GROUP_AUTHORIZATION_FAILED,
    "TransactionalId": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_NO_COORDINATOR = (
    Code.UNKNOWN_SERVER_ERROR,
    Code.NETWORK_EXCEPTION,
    Code.KAFKA_STORAGE_ERROR,
    Code.NOT_LEADER_OR_FOLLOWER,  # of the coordinator's own partition, as Kafka's TransactionStateManager has it
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.REQUEST_TIMED_OUT,
    Code.TRANSACTION_COORDINATOR_FENCED,  # another node is the coordinator by now
)


def code_of(error: LogdbError) -> Code:
    """The code of an error, by its class or the nearest base."""
    if isinstance(error, NotAuthorized):
        return _OF_RESOURCE.get(error.resource.partition(" ")[0], Code.CLUSTER_AUTHORIZATION_FAILED)
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def topic_code_of(error: LogdbError, *, by_id: bool) -> Code:
    """As ``code_of``; to a request that names topics by ids, a topic that is gone is an unknown id."""
    return Code.UNKNOWN_TOPIC_ID if by_id and isinstance(error, errors.UnknownTopic) else code_of(error)


def coordinator_code_of(error: LogdbError) -> Code:
    """The code for what a client asks of a coordinator.

    A client takes any code that it does not expect for the end; of a fault of the disk, or of a server that closes, it is told to
    find the coordinator again.
    """
    code = code_of(error)
    return Code.COORDINATOR_NOT_AVAILABLE if code in _NO_COORDINATOR else code
