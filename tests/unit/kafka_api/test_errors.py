import pytest

from logdb import errors
from logdb_kafka_api.errors import CODES, Code, code_of


def test_every_error_that_a_request_may_meet_has_a_code() -> None:
    """The others are those of clients, of opening a directory, and of commands."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LogdbError)]
    without = {kind.__name__ for kind in kinds if not CODES.keys() & set(kind.__mro__) - {errors.LogdbError}}
    assert without == {
        "LogdbError",
        *("BufferExhausted", "DeliveryTimeout", "NoOffset", "NotAssigned", "SerializationError", "TransactionAborted"),
        *("InsecureAddress", "InsecureConnection", "InvalidAnswer", "InvalidCertificate", "LocalOnly", "ServerUnavailable"),
        *("CloseIncomplete", "DirectoryLocked", "Forked", "NotADatabase", "UnsupportedFormat", "UnsupportedPlatform"),
        *("BackupDamaged", "BackupMismatch", "MirrorDiverged", "TargetInside", "TargetNotEmpty"),
    }


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ("Topic 'a'", Code.TOPIC_AUTHORIZATION_FAILED),
        ("Group 'a'", Code.GROUP_AUTHORIZATION_FAILED),
        ("TransactionalId 'a'", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("Cluster", Code.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_a_right_that_lacks_is_told_by_its_resource(resource: str, code: Code) -> None:
    assert code_of(errors.NotAuthorized("User:a", "Read", resource)) is code


def test_the_numbers_are_kafkas() -> None:
    kinds = [kind for kind in vars(pytest.importorskip("kafka.errors")).values() if isinstance(kind, type)]
    names = {kind.errno: kind.message for kind in kinds if getattr(kind, "errno", None) is not None}
    others = {code.name for code in Code if names.get(code, code.name) != code.name}
    assert others == {  # which kafka-python names as Kafka once did
        "UNKNOWN_SERVER_ERROR",
        "NONE",
        "NOT_LEADER_OR_FOLLOWER",
        "MESSAGE_TOO_LARGE",
        "INVALID_TOPIC_EXCEPTION",
        "INVALID_REPLICA_ASSIGNMENT",
    }
