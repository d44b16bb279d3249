"""The worked examples of docs/inside/format.md, taken out of the page and decoded by the library."""

import re
from pathlib import Path

from logdb.access import security_document
from logdb.access.credentials import is_password, token_hash
from logdb.access.security_document import Token
from logdb.codec import RecordIterator, Status, check, crc32c
from logdb.log import high_watermark, producer_snapshot, recovery_point
from logdb.log.producers import Batch, Producer, ProducerStates
from logdb.log.recovery_point import Point, Slot
from logdb.meta import entries
from logdb.model import AbortedTransaction
from logdb.requests.acls import Acl
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from logdb.segment import transaction_index
from logdb.store import cluster_file, topic_file
from logdb.store.check import segment_rewrite
from logdb.store.cluster_file import ClusterFile
from logdb.store.copy import snapshot_file
from logdb.store.copy.snapshot_file import SnapshotFile
from logdb.store.topic_file import TopicFile
from support.batches import varint

PAGE = (Path(__file__).parents[2] / "docs" / "inside" / "format.md").read_text(encoding="utf-8")


def text(name: str) -> str:
    """The fenced block after ``<!-- example: name -->``."""
    found = re.search(rf"<!-- example: {name} -->\n```\n(.*?)```", PAGE, re.DOTALL)
    assert found, f"docs/inside/format.md has no example {name!r}"
    return found.group(1)


def example(name: str) -> bytes:
    """The bytes of a block of hex, without the positions at the left."""
    return bytes.fromhex(" ".join(line.split(maxsplit=1)[1] for line in text(name).splitlines()))


def test_the_batch_header_is_what_the_page_says() -> None:
    status, header, computed_crc = check(example("batch"))
    assert status is Status.OK
    assert header is not None
    assert header._asdict() == {
        "base_offset": 42,
        "last_offset": 43,
        "base_timestamp": 1357034400000,
        "max_timestamp": 1357034460000,
        "producer_id": -1,
        "size_bytes": 99,
        "leader_epoch": 7,
        "base_sequence": -1,
        "record_count": 2,
        "crc": 0x13AE1A6F,
        "attributes": 0,
        "producer_epoch": -1,
        "magic": 2,
    }
    assert computed_crc == header.crc


def test_an_empty_batch_is_what_the_page_says() -> None:
    assert segment_rewrite.empty_batch(10, 13, 0) == example("empty batch")


def test_the_records_are_what_the_page_says() -> None:
    records = RecordIterator(lambda _offset, _end_offset: iter([example("batch")]), 42, 44, "t", 0)
    assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers, r.leader_epoch) for r in records] == [
        (42, 1357034400000, b"N14228", b"UA1545", (), 7),
        (43, 1357034460000, None, b"", (("to", b"IAH"), ("x", None)), 7),
    ]


def test_the_table_beside_the_example_quotes_its_bytes() -> None:
    batch = example("batch")
    rows = re.findall(r"^\| ([0-9a-f]{4}) \| (.+?) \|", PAGE, re.MULTILINE)
    position = 0
    for at, quoted in rows:
        assert int(at, 16) == position
        data = b"".join(bytes.fromhex(cell) * int(times or 1) for cell, times in re.findall(r"`([0-9a-f ]+)`(?: × (\d+))?", quoted))
        assert batch[position : position + len(data)] == data, f"at {at}"
        position += len(data)
    assert position == len(batch)


def test_varints_are_what_the_page_says() -> None:
    rows = re.search(r"^\| value \|(.*)\|\n\|[-|]+\n\| bytes \|(.*)\|$", PAGE, re.MULTILINE)
    assert rows
    numbers, encoded = (row.replace("−", "-").replace("`", "").split("|") for row in rows.groups())
    assert [varint(int(number)) for number in numbers] == [bytes.fromhex(data) for data in encoded]


def test_the_recovery_point_is_what_the_page_says() -> None:
    slot = Slot(1, Point(segment=0, offset=44, position=99), Point(segment=0, offset=60, position=140), 0x1A2B3C4D)
    assert recovery_point.decode(example("recovery-point")) == slot
    assert recovery_point.encode(slot) == example("recovery-point")


def test_the_high_watermark_is_what_the_page_says() -> None:
    assert high_watermark.decode(example("high-watermark"), "high-watermark") == 44
    assert high_watermark.encode(44) == example("high-watermark")


def test_the_topic_file_is_what_the_page_says() -> None:
    content = TopicFile("trades", "2f6a7c1e-6d0b-4a51-9a54-0f6c2f1f2a77", 0, 3, {"retention.ms": 604_800_000}, 0)
    assert topic_file.encode(content) == text("topic.json").encode()
    assert topic_file.decode(text("topic.json").encode(), "topic.json") == content


def test_the_catalogue_entry_is_what_the_page_says() -> None:
    data = example("catalogue")
    key, value = data[:1], data[1:]
    assert (key, value[:-4]) == (entries.FORMAT_KEY, b'{"format":1}')
    assert entries.decode_format(value)[0] == 1
    assert int.from_bytes(value[-4:], "big") == crc32c(value[:-4], crc32c(key))


def test_the_aborted_transaction_is_what_the_page_says() -> None:
    data = example("txnindex")
    transaction_index.check(data, "the page")
    assert list(transaction_index.entries(data)) == [AbortedTransaction(7, 5100, 5133, 5120)]


def test_the_producer_snapshot_is_what_the_page_says() -> None:
    states = producer_snapshot.decode(example("snapshot"), "the page").states
    (producer,) = states.producers.values()
    assert producer == Producer(7, 1, (Batch(41, 1201, 1),), 1357034460000, 0, 1190, 1357034460000)
    assert producer.batches[0].first_sequence == 40
    assert producer_snapshot.encode(states, {}) == example("snapshot")


def test_the_checksum_of_an_index_is_what_the_page_says() -> None:
    data = producer_snapshot.encode(ProducerStates(), {5100: transaction_index.summary(example("txnindex"))})
    assert data[10:] == example("checksum of a txnindex")
    assert producer_snapshot.decode(data, "the page").aborted_in(5100) == transaction_index.summary(example("txnindex"))


def test_the_mark_of_a_snapshot_is_what_the_page_says() -> None:
    content = SnapshotFile(
        "0b6a0a64-6f5e-4d0c-9a0e-6d2b8c1f4e11", "2f6a7c1e-6d0b-4a51-9a54-0f6c2f1f2a77", 1_764_000_000_000, 32768, 0x1A2B3C4D
    )
    assert snapshot_file.decode(text("SNAPSHOT").encode(), "SNAPSHOT") == content
    assert snapshot_file.encode(content).decode() == text("SNAPSHOT")


def test_the_mark_of_a_cluster_s_node_is_what_the_page_says() -> None:
    content = ClusterFile("6c1f9d0e-8a57-4a26-9c0c-6b8f4f0f3a11", 1)
    assert cluster_file.decode(text("cluster.json").encode(), "cluster.json") == content
    assert cluster_file.encode(content).decode() == text("cluster.json")


def test_the_security_file_is_what_the_page_says() -> None:
    content = security_document.decode(text("security.json").encode(), "security.json")
    assert security_document.encode(content) == text("security.json").encode()
    assert is_password("SCRAM-SHA-256", content.users["alice"]["SCRAM-SHA-256"], "pencil")
    assert content.tokens == (Token("ci", Principal("User", "alice"), token_hash("logdb_example"), 1_764_000_000_000, None),)
    assert content.acls == (Acl(Principal("User", "alice"), "*", "Read", "Allow", "Topic", "Prefixed", "ord"),)
    assert (content.super_users, content.quotas) == ({Principal("User", "root")}, {None: Quota(requests=1000)})
