import pytest

from logdb.coordinator.consumer_protocol import Assignment, Subscription
from logdb.errors import InvalidMessage
from logdb.model import TopicPartition

FULL = Subscription(("a", "b"), b"u", (TopicPartition("a", 1), TopicPartition("a", 2)), 4, "r")
OWNED = " 00000001 0001 61 00000002 00000001 00000002"


def of(text: str) -> bytes:
    return bytes.fromhex(text)


@pytest.mark.parametrize(
    ("version", "tail", "read"),
    [
        (0, "", Subscription(("a", "b"), b"u")),
        (1, OWNED, FULL._replace(generation=-1, rack_id=None)),
        (2, OWNED + " 00000004", FULL._replace(rack_id=None)),
        (3, OWNED + " 00000004 0001 72", FULL),
    ],
)
def test_subscriptions(version: int, tail: str, read: Subscription) -> None:
    data = of(f"000{version} 00000002 0001 61 0001 62 00000001 75 {tail}")
    assert FULL.encode(version) == data
    assert Subscription.decode(data) == read


def test_a_plain_subscription() -> None:
    data = of("0003 00000001 0001 61 ffffffff 00000000 ffffffff ffff")
    assert Subscription(("a",)).encode() == data
    assert Subscription.decode(data) == Subscription(("a",))


def test_assignments() -> None:
    assignment = Assignment((TopicPartition("a", 1), TopicPartition("b", 0)), b"u")
    data = of("0003 00000002 0001 61 00000001 00000001 0001 62 00000001 00000000 00000001 75")
    assert assignment.encode() == data
    assert Assignment.decode(data) == assignment
    assert Assignment.decode(b"") == Assignment(())


def test_later_versions_are_read_as_far_as_they_are_known() -> None:
    assert Subscription.decode(of("0007") + FULL.encode()[2:] + b"more") == FULL
    assert Assignment.decode(of("0007") + Assignment(()).encode()[2:] + b"more") == Assignment(())


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0\0\0", b"\0\0\x7f\xff\xff\xff"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessage):
        Subscription.decode(data)
    if data:
        with pytest.raises(InvalidMessage):
            Assignment.decode(data)
