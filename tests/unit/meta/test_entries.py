"""meta/entries.py: keys that sort, values that notice a flipped bit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.meta import entries
from logdb.meta.entries import DamagedEntry, Intent, LogEntry, SegmentEntry, TopicEntry
from logdb.model import OFFSET_MAX, PARTITION_COUNT_MAX

topics = st.text("abzAZ019._-", min_size=1, max_size=249)
partitions = st.integers(0, PARTITION_COUNT_MAX - 1)
offsets = st.integers(0, OFFSET_MAX)
configs = st.dictionaries(st.text(max_size=9), st.text(max_size=9) | st.integers() | st.booleans() | st.floats(0, 1), max_size=3)
some_topics = st.builds(TopicEntry, topics, st.uuids().map(str), partitions, configs)
some_logs = st.builds(
    LogEntry, topics, partitions, offsets, offsets, offsets, offsets, offsets, st.booleans(), st.none() | st.text(max_size=9)
)
some_segments = st.builds(SegmentEntry, topics, partitions, offsets, offsets, offsets, offsets, st.integers(-1, OFFSET_MAX), offsets)
some_intents = st.builds(
    Intent, st.sampled_from(["create", "swap"]), topics, st.dictionaries(st.text(max_size=5), st.integers(), max_size=3)
)


@given(some_topics, some_logs, some_segments, offsets, some_intents)
def test_what_is_written_is_read_back(topic: TopicEntry, log: LogEntry, segment: SegmentEntry, intent_id: int, intent: Intent) -> None:
    assert entries.decode_topic(*entries.encode_topic(topic)) == topic
    assert entries.decode_log(*entries.encode_log(log)) == log
    assert entries.decode_segment(*entries.encode_segment(segment)) == segment
    assert entries.decode_intent(*entries.encode_intent(intent_id, intent)) == (intent_id, intent)


@given(some_segments, some_segments)
def test_segment_keys_sort_by_base_offset_within_their_partition(one: SegmentEntry, other: SegmentEntry) -> None:
    other = other._replace(topic=one.topic, partition=one.partition)
    ordered = sorted([one, other], key=lambda entry: entry.base_offset)
    assert [key for key, _ in map(entries.encode_segment, ordered)] == sorted(key for key, _ in map(entries.encode_segment, [one, other]))


def test_the_longest_key_fits_into_lmdb() -> None:
    assert len(entries.segment_key("t" * 249, PARTITION_COUNT_MAX, OFFSET_MAX)) <= 511


@given(topics, topics, partitions)
def test_a_prefix_selects_one_topic_only(one: str, other: str, partition: int) -> None:
    inside = entries.log_key(other, partition).startswith(entries.logs_prefix(one))
    assert inside == (one == other)
    inside = entries.segment_key(other, partition, 5).startswith(entries.segments_prefix(one, partition))
    assert inside == (one == other)


def test_the_example_of_the_module_docstring() -> None:
    assert entries.__doc__ is not None
    spelled = bytes.fromhex("7b 22 66 6f 72 6d 61 74 22 3a 31 7d  30 11 26 5f")
    assert "7b 22 66 6f 72 6d 61 74 22 3a 31 7d  30 11 26 5f" in entries.__doc__
    assert entries.decode_format(spelled) == (1, "")


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_no_flipped_byte_of_a_value_escapes(mask: int) -> None:
    key, value = entries.encode_log(LogEntry("events", 3, recovery_offset=17))
    for position in range(len(value)):
        flipped = bytearray(value)
        flipped[position] ^= mask
        with pytest.raises(DamagedEntry, match=r"stored CRC [0-9a-f]{8}, computed [0-9a-f]{8}"):
            entries.decode_log(key, bytes(flipped))


def test_a_value_under_another_key_is_damage() -> None:
    _, value = entries.encode_log(LogEntry("events", 3))
    with pytest.raises(DamagedEntry, match="stored CRC"):
        entries.decode_log(entries.log_key("events", 4), value)


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\0\0\0", b"{}"])
def test_a_value_too_short_for_a_crc_is_damage(value: bytes) -> None:
    with pytest.raises(DamagedEntry):
        entries.decode_topic(b"t events", value)


@pytest.mark.parametrize("fields", [{}, {"start_offset": 1, "unheard_of": 2}])
def test_a_value_with_a_right_crc_and_a_wrong_form_is_damage(fields: dict[str, int]) -> None:
    key = b"s events 0000000000 00000000000000000000"
    with pytest.raises(DamagedEntry, match="no segment entry"):
        entries.decode_segment(key, entries._seal(key, fields))


@pytest.mark.parametrize("payload", [b"[1]", b"{", b"\xff", b"[" * 2000, b'{"format":Infinity}'])
def test_a_value_that_is_no_object_is_damage(payload: bytes) -> None:
    crc = entries.crc32c(payload, entries.crc32c(b"f"))
    with pytest.raises(DamagedEntry, match=r"^not |has no format number"):
        entries.decode_format(payload + crc.to_bytes(4, "big"))
