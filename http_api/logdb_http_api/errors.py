"""Errors over HTTP: their statuses, Kafka REST's error codes, and their JSON.

The code of the door's own error is its status, as in Kafka's REST proxy, or has five digits where a client must distinguish it from
others of that status; the code of another error has five digits.  The first three of five digits are the status.
"""

from collections.abc import Mapping
from typing import Any

from logdb import errors
from logdb.errors import LogdbError
from logdb.requests.error_document import document
from logdb.serving.shares import NoRoom

BAD_REQUEST = (400, 40002)  # the answer of Kafka's REST proxy if the broker refuses names and configs

# class -> (HTTP status, error_code: that of Kafka's REST proxy or, without one, our own)
CODES: dict[type[LogdbError], tuple[int, int]] = {
    LogdbError: (500, 50002),
    errors.UnknownTopic: (404, 40401),
    errors.TopicDeleted: (404, 40401),
    errors.UnknownPartition: (404, 40402),
    errors.TopicExists: BAD_REQUEST,
    errors.InvalidTopic: BAD_REQUEST,
    errors.InvalidConfig: BAD_REQUEST,
    errors.PolicyViolation: BAD_REQUEST,
    errors.InvalidPartitions: BAD_REQUEST,
    errors.InvalidReplicationFactor: BAD_REQUEST,
    errors.RecordTooLarge: (413, 41302),
    errors.InvalidTimestamp: (422, 42211),
    errors.InvalidRecord: (422, 42212),
    errors.InvalidBatch: (422, 42213),
    errors.CorruptBatch: (422, 42213),
    errors.InvalidMessage: (422, 42214),
    errors.CodecMissing: (501, 50102),
    errors.OffsetOutOfRange: (416, 41601),
    errors.LogTruncated: (410, 41001),
    errors.FencedLeaderEpoch: (409, 40951),
    errors.UnknownLeaderEpoch: (409, 40952),
    errors.UnexpectedOffset: (412, 41201),
    errors.MirrorDiverged: (409, 40959),
    errors.ProducerFenced: (409, 40911),
    errors.OutOfOrderSequence: (409, 40912),
    errors.CoordinatorFenced: (409, 40913),
    errors.InvalidProducer: (409, 40914),
    errors.InvalidTransactionState: (409, 40915),
    errors.ConcurrentTransactions: (409, 40916),
    errors.InvalidTransactionTimeout: BAD_REQUEST,
    errors.TransactionAborted: (409, 40917),
    errors.DeliveryTimeout: (504, 50401),
    errors.ThreadUnavailable: (503, 50315),
    errors.BufferExhausted: (503, 50311),
    errors.SerializationError: (422, 42215),
    errors.UnknownGroup: (404, 40405),
    errors.InvalidGroup: BAD_REQUEST,
    errors.OffsetMetadataTooLarge: BAD_REQUEST,
    errors.GroupNotEmpty: (409, 40921),
    errors.UnknownMember: (404, 40403),
    errors.IllegalGeneration: (409, 40922),
    errors.RebalanceInProgress: (409, 40923),
    errors.FencedInstance: (409, 40924),
    errors.MemberIdRequired: (409, 40925),
    errors.GroupFull: (409, 40926),
    errors.MemberMemoryFull: (409, 40926),
    errors.UnstableOffsets: (409, 40927),
    errors.InconsistentProtocol: (409, 40928),
    errors.NotAssigned: (409, 40903),
    errors.NoOffset: (404, 40406),
    errors.NotLeaderOrFollower: (503, 50321),
    errors.NotLeaderAfterAppend: (503, 50330),
    errors.NotEnoughReplicas: (503, 50322),
    errors.NotEnoughReplicasAfterAppend: (503, 50323),
    errors.CommitTimeout: (504, 50402),
    errors.OffsetNotAvailable: (503, 50324),
    errors.StaleBrokerEpoch: (409, 40953),
    errors.ControllerUnavailable: (503, 50329),
    errors.MetadataTimeout: (504, 50403),
    errors.InvalidReassignment: BAD_REQUEST,
    errors.ReplicaCountChanged: BAD_REQUEST,
    errors.NoReassignment: (404, 40407),
    errors.ElectionNotNeeded: (409, 40954),
    errors.PreferredLeaderNotAvailable: (503, 50327),
    errors.EligibleLeadersNotAvailable: (503, 50328),
    errors.NotCoordinator: (503, 50325),
    errors.CoordinatorLoading: (503, 50326),
    errors.TargetNotEmpty: (409, 40931),
    errors.TargetInside: (409, 40934),
    errors.BackupDamaged: (500, 50011),
    errors.BackupMismatch: (409, 40932),
    errors.Closed: (503, 50312),
    errors.ReadOnly: (409, 40933),
    errors.LocalOnly: (501, 50104),
    errors.Forked: (500, 50012),
    errors.DirectoryLocked: (503, 50313),
    errors.UnsupportedPlatform: (501, 50103),
    errors.ServerUnavailable: (503, 50314),
    errors.AuthenticationFailed: (401, 40101),
    errors.NotAuthorized: (403, 40301),
    errors.InsecureAddress: (500, 50013),
    errors.InvalidAnswer: (502, 50201),
    errors.InvalidCertificate: (500, 50021),
    errors.UnknownCredential: (404, 40411),
    errors.CredentialExists: (409, 40941),
    errors.InvalidSecurity: BAD_REQUEST,
    errors.SecurityDisabled: (409, 40942),
    errors.InsecureConnection: (500, 50022),
    errors.DiskFull: (507, 50701),
    errors.WriteFailed: (500, 50003),
    errors.ReadFailed: (500, 50014),
    errors.SyncFailed: (500, 50015),
    errors.CloseIncomplete: (500, 50016),
    errors.CorruptionError: (500, 50017),
    errors.CatalogueDamaged: (500, 50018),
    errors.UnsupportedFormat: (500, 50019),
    errors.NotADatabase: (500, 50020),
}
_RETRY_S = "1"

DRAINING = 50302  # the server is about to stop, and has not begun the request


class ApiError(Exception):
    """The door itself refuses a request.

    ``code``: Kafka REST's error code, or else the status.  ``headers``: of the answer.
    """

    def __init__(self, status: int, code: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers or {}


REFUSALS = (ApiError, NoRoom)
"""The door's own errors: logdb has no part in them."""


def code_of(error: LogdbError) -> tuple[int, int]:
    """Status and error code of an error, by its class or the nearest base."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def describe(error: Exception) -> tuple[int, dict[str, Any]]:
    """Status and JSON body, with class and fields, so that the remote session raises the same error."""
    if isinstance(error, ApiError):
        return error.status, {"error_code": error.code, "message": str(error)}
    if isinstance(error, NoRoom):
        return 503, {"error_code": 503, "message": str(error)}
    if isinstance(error, LogdbError):
        status, code = code_of(error)
        return status, {"error_code": code, **document(error)}
    return 500, {"error_code": 500, "message": "internal error"}


def headers_of(error: Exception) -> dict[str, str]:
    """The headers of an error's answer."""
    headers = dict(error.headers) if isinstance(error, ApiError) else {}
    if describe(error)[0] == 503:
        headers["Retry-After"] = _RETRY_S
    return headers
