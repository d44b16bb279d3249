import pytest

from logdb.coordinator import records
from logdb.coordinator.records import GroupKey, GroupValue, MemberValue, OffsetKey, OffsetValue, TransactionValue
from logdb.errors import InvalidMessage
from logdb.model import TopicPartition

T3 = TopicPartition("t", 3)


def of(text: str) -> bytes:
    return bytes.fromhex(text)


# ---------------------------------------------------------------- __consumer_offsets

OFFSET = OffsetValue(5, 7, "m", 77)


def test_the_key_of_an_offset() -> None:
    key = of("0001 0001 67 0001 74 00000003")
    assert records.offset_key("g", T3) == key
    assert records.parse_group_key(key) == OffsetKey("g", T3)
    assert records.parse_group_key(of("0000") + key[2:]) == OffsetKey("g", T3)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("0000 0000000000000005 0001 6d 000000000000004d", OFFSET._replace(leader_epoch=-1)),
        ("0001 0000000000000005 0001 6d 000000000000004d 0000000000000063", OFFSET._replace(leader_epoch=-1, expire_timestamp_ms=99)),
        ("0002 0000000000000005 0001 6d 000000000000004d", OFFSET._replace(leader_epoch=-1)),
        ("0003 0000000000000005 00000007 0001 6d 000000000000004d", OFFSET),
        ("0004 0000000000000005 00000007 02 6d 000000000000004d 00", OFFSET),
        ("0004 0000000000000005 00000007 02 6d 000000000000004d 01 09 02 ffff", OFFSET),
    ],
    ids=["v0", "v1", "v2", "v3", "v4", "v4 with a later field"],
)
def test_the_values_of_an_offset(data: str, value: OffsetValue) -> None:
    assert records.parse_offset_value(of(data)) == value


def test_an_offset_is_written_as_version_3_or_with_an_expiry_time_as_1() -> None:
    assert records.offset_value(OFFSET) == of("0003 0000000000000005 00000007 0001 6d 000000000000004d")
    expiring = OFFSET._replace(expire_timestamp_ms=99)
    assert records.parse_offset_value(records.offset_value(expiring)) == expiring._replace(leader_epoch=-1)


MEMBER = MemberValue("id", "i", "c", "/h", 60_000, 10_000, b"sub", b"as")
GROUP = GroupValue("consumer", 4, "range", "id", 77, (MEMBER,))
GROUP_HEAD = "0008 636f6e73756d6572 00000004 0005 72616e6765 0002 6964"


def test_the_key_of_a_group() -> None:
    assert records.group_key("g") == of("0002 0001 67")
    assert records.parse_group_key(of("0002 0001 67")) == GroupKey("g")


def test_a_group_is_written_as_version_3() -> None:
    member = "0002 6964 0001 69 0001 63 0002 2f68 0000ea60 00002710 00000003 737562 00000002 6173"
    data = of(f"0003 {GROUP_HEAD} 000000000000004d 00000001 {member}")
    assert records.group_value(GROUP) == data
    assert records.parse_group_value(data) == GROUP


@pytest.mark.parametrize(
    ("data", "group"),
    [
        (
            f"0000 {GROUP_HEAD} 00000001 0002 6964 0001 63 0002 2f68 00002710 00000003 737562 00000002 6173",
            GROUP._replace(state_timestamp_ms=-1, members=(MEMBER._replace(group_instance_id=None, rebalance_timeout_ms=-1),)),
        ),
        (
            f"0001 {GROUP_HEAD} 00000001 0002 6964 0001 63 0002 2f68 0000ea60 00002710 00000003 737562 00000002 6173",
            GROUP._replace(state_timestamp_ms=-1, members=(MEMBER._replace(group_instance_id=None),)),
        ),
        (
            f"0002 {GROUP_HEAD} 000000000000004d 00000001 0002 6964 0001 63 0002 2f68 0000ea60 00002710 00000003 737562 00000002 6173",
            GROUP._replace(members=(MEMBER._replace(group_instance_id=None),)),
        ),
        (
            (
                "0004 09 636f6e73756d6572 00000004 06 72616e6765 03 6964 000000000000004d"
                " 02 03 6964 02 69 02 63 03 2f68 0000ea60 00002710 04 737562 03 6173 00 00"
            ),
            GROUP,
        ),
    ],
    ids=["v0", "v1", "v2", "v4"],
)
def test_the_other_versions_of_a_group(data: str, group: GroupValue) -> None:
    assert records.parse_group_value(of(data)) == group


def test_an_empty_group() -> None:
    group = GroupValue("consumer", 5, None, None, 77, ())
    data = of("0003 0008 636f6e73756d6572 00000005 ffff ffff 000000000000004d 00000000")
    assert records.group_value(group) == data
    assert records.parse_group_value(data) == group


# ---------------------------------------------------------------- __transaction_state

TRANSACTION = TransactionValue(
    1000, 999, 1001, 2, 60_000, 2, frozenset({TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 2)}), 5, 4, 2
)


def test_the_key_of_a_transaction() -> None:
    assert records.transaction_key("x") == of("0000 0001 78")
    assert records.parse_transaction_key(of("0000 0001 78")) == "x"


def test_a_transaction_is_written_as_version_1() -> None:
    data = of(
        "0001 00000000000003e8 0002 0000ea60 02 03 02 61 03 00000000 00000001 00 02 62 02 00000002 00"
        " 0000000000000005 0000000000000004 03 00 08 00000000000003e7 01 08 00000000000003e9 02 02 0002"
    )
    assert records.transaction_value(TRANSACTION) == data
    assert records.parse_transaction_value(data) == TRANSACTION


def test_version_0_of_a_transaction() -> None:
    data = of(
        "0000 00000000000003e8 0002 0000ea60 02 00000002 0001 61 00000002 00000000 00000001 0001 62 00000001 00000002"
        " 0000000000000005 0000000000000004"
    )
    plain = TRANSACTION._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)
    assert records.parse_transaction_value(data) == plain


def test_what_is_as_always_takes_no_room() -> None:
    plain = TransactionValue(1, -1, -1, 0, 1, 0, frozenset(), 5, -1, 0)
    for status, partitions in ((0, "00"), (1, "01")):  # null while there was no transaction yet
        value = plain._replace(status=status)
        data = of(f"0001 0000000000000001 0000 00000001 0{status} {partitions} 0000000000000005 ffffffffffffffff 00")
        assert records.transaction_value(value) == data
        assert records.parse_transaction_value(data) == value


def test_kafka_writes_null_for_no_partitions() -> None:
    data = of("0000 0000000000000001 0000 00000001 00 ffffffff 0000000000000005 ffffffffffffffff")
    assert records.parse_transaction_value(data).partitions == frozenset()


# ---------------------------------------------------------------- both


@pytest.mark.parametrize("key", ["0003 0001 67", "7fff", "ffff"])
def test_other_kinds_are_passed_over(key: str) -> None:
    assert records.parse_group_key(of(key)) is None
    assert records.parse_transaction_key(of(key)) is None


@pytest.mark.parametrize(
    "parse", [records.parse_group_key, records.parse_transaction_key, records.parse_offset_value], ids=lambda f: f.__name__
)
def test_what_has_no_version_is_refused(parse: object) -> None:
    for data in (b"", b"\0"):
        with pytest.raises(InvalidMessage):
            parse(data)  # type: ignore[operator]


def test_values_of_versions_to_come_are_refused() -> None:
    for parse, version in ((records.parse_offset_value, 5), (records.parse_group_value, 5), (records.parse_transaction_value, 2)):
        with pytest.raises(InvalidMessage, match=f"not {version}"):
            parse(bytes((0, version)) + bytes(100))


@pytest.mark.parametrize(
    ("name", "hash_code"),  # as Java prints it
    [
        ("", 0),
        ("foo", 101_574),
        ("console-consumer-1", 35_782_224),
        ("polygenelubricants", -(2**31)),
        ("grüße", 98_768_023),
        ("\U0001f600", 1_772_899),
        ("zzzzzzzz", -1_910_022_912),
    ],
)
def test_names_go_to_the_partition_that_kafka_chooses(name: str, hash_code: int) -> None:
    for count in (1, 4, 50):
        assert records.partition_of(name, count) == (0 if hash_code == -(2**31) else abs(hash_code) % count)
