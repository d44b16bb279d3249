import itertools
import json
import random

import pytest

from logdb.codec.compression import ZSTD, compress
from logdb.log.epochs import LeaderEpochs
from logdb.meta import LogEntry, SegmentEntry, TopicEntry
from logdb.store.copy import backup_list
from logdb.store.copy.backup_list import Continued, ListedLog, Part

TOPIC = TopicEntry("trades", "id-1", 2, {"retention.ms": 1000})
SEALED = (
    SegmentEntry("trades", 0, 100, 5000, 0xDEADBEEF, 180, 1_700_000_000_000, 1_700_000_000_005),
    SegmentEntry("trades", 0, 180, 4000, 7, 250, -1, 1_700_000_000_001, 3, 9),
)
FULL = ListedLog(
    topic=TOPIC,
    entry=LogEntry(
        "trades",
        0,
        start_offset=120,
        generation=4,
        recovery_segment=250,
        recovery_offset=260,
        recovery_position=777,
        leader_epoch=3,
        producers_offset=260,
        clean_offset=180,
        delete_horizon_ms=5,
        segment_created_ms=6,
        segment_append_ms=7,
    ),
    epochs=LeaderEpochs(((0, 0), (3, 170))),
    sealed=SEALED,
    stored=frozenset({1}),
    parts=(Part("log", 250, 777, 1, True), Part("txnindex", 250, 34, 2, False), Part("snapshot", 260, 64, 3, True)),
    continued=Continued(250, 700, 4),
)
EMPTY = ListedLog(topic=TOPIC, entry=LogEntry("trades", 1), epochs=LeaderEpochs(), sealed=(), stored=frozenset(), parts=())


def as_json(logs):
    return json.loads(json.dumps(backup_list.encode(logs)))


def fields_of(log):
    return {**vars(log), "epochs": log.epochs.entries}


def test_what_was_listed_is_read():
    assert [fields_of(log) for log in backup_list.decode(as_json([FULL, EMPTY]))] == [fields_of(FULL), fields_of(EMPTY)]
    assert backup_list.decode(as_json([])) == []


def test_no_field_of_an_entry_is_forgotten():
    """All of them differ from what they are by default, but for two that are of a writer's time, and sidecars, which are left out."""
    assert [name for name, value in LogEntry._field_defaults.items() if getattr(FULL.entry, name) == value] == [
        "strict",
        "read_only_reason",
    ]
    assert [name for name, value in SegmentEntry._field_defaults.items() if getattr(SEALED[1], name) == value] == ["sidecar"]


def test_what_a_backup_has():
    assert [FULL.has(file) for file in (*SEALED, *FULL.parts)] == [False, True, True, False, True]
    assert FULL.has(SEALED[0]._replace(crc=1)) is None
    assert FULL.has(FULL.parts[0]._replace(crc=9)) is None
    assert FULL.has(FULL.parts[1]._replace(stored=True)) is False


def test_thousands_of_segments_that_are_kept_take_less_than_64_kib():
    rng, sealed, offset, time = random.Random(4), [], 0, 1_700_000_000_000
    for _ in range(3500):
        count, time = rng.randrange(900_000, 1_000_000), time + rng.randrange(100_000)
        crc, size = rng.randrange(1 << 32), (1 << 30) - rng.randrange(16_384)
        sealed.append(SegmentEntry("trades", 0, offset, size, crc, offset + count, time, time + rng.randrange(5)))
        offset += count
    entry = LogEntry("trades", 0, recovery_segment=offset, recovery_offset=offset)
    topic = TOPIC._replace(partition_count=1)
    parts = (Part("log", offset, 0, 0, False),)
    log = ListedLog(topic=topic, entry=entry, epochs=LeaderEpochs(), sealed=tuple(sealed), stored=frozenset(), parts=parts)
    document = json.dumps(backup_list.encode([log]), separators=(",", ":")).encode()
    assert [fields_of(found) for found in backup_list.decode(json.loads(document))] == [fields_of(log)]
    assert len(compress(ZSTD, document)) < 64 << 10


def spoiled():
    """Lists in which one thing is not what it can be."""

    def change(path, value):
        document = as_json([FULL, EMPTY])
        place = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        return pytest.param(document, id=f"{'.'.join(map(str, path))}={str(value)[:30]}")

    log, topic = ("logs", 0), ("topics", 0)
    for at, value in itertools.product((0, 1), ("../../etc", "/etc", "a/b", "..", "", "x" * 250, "nul\0", 7, None)):
        yield change((*topic, at), value)
    for count in (0, -1, 1, 3, 100_001, 2.0, "2", True, None):
        yield change((*topic, 2), count)
    yield change((*topic, 3), {"retention.ms": "soon"})
    yield change((*topic, 3), {"no.such.key": 1})
    yield change((*topic, 3), [])
    yield change(("topics",), [["trades", "id-1", 1, {}], ["trades", "id-2", 1, {}]])
    yield change(("topics",), [["trades", "id-1", 1, {}], ["other", "id-1", 1, {}]])
    yield change(("topics",), 7)
    yield change(("logs",), [])
    for key in ("start_offset", "generation", "clean_offset", "segment_created_ms"):
        for value in (-1, 1 << 63, "0", 0.5, True, None):
            yield change((*log, key), value)
    for value in (
        [],
        [["log", 251, 777, 1, True]],
        [["log", 250, 777, 1, 1]],
        [["log", 250, 777, 1 << 32, True]],
        [["../x", 250, 777, 1, True]],
        [["log", 250, 777, 1, True], ["log", 250, 777, 1, True]],
        [["log", 250, 777, 1, True], ["txnindex", 0, 34, 1, True]],
        [["log", 250, 777, 1, True], ["snapshot", 0, 34, 1, True]],
        [["log", 250, 777, 1]],
        7,
    ):
        yield change((*log, "parts"), value)
    for column in backup_list.encode([FULL])["logs"][0]["sealed"]:
        for value in ([1], [1, 2, 3], [0, 1 << 63], [0, "1"], [0, -(1 << 62)], [0, None], 7):
            yield change((*log, "sealed", column), value)
    for key, values in {
        "end": (None, [250, 260], [250, 240, 0], [250, 260, 1 << 31], [240, 260, 777], [250, 260, 778], "end"),
        "epochs": ([[0, 0], [0, 5]], [[-1, 0]], [[0, 0], [1, 300]], [[0]], [["a", "b"]], 7),
        "stored": ([[0, 3]], [[2, 1]], [[-1, 1]], [[0]], [["a", 1]], [[0, 1 << 70]], 7),
        "continued": ([250, 778, 4], [100, 700, 4], [180, 4001, 4], [250, 0, 4], [250, 700, 1 << 32], [250, 700], [250, "700", 4], 7, {}),
    }.items():
        for value in values:
            yield change((*log, key), value)
    for document in (None, [], {}, {"topics": []}, {"logs": []}, 7, "list"):
        yield pytest.param(document, id=f"document={document}")


@pytest.mark.parametrize("document", list(spoiled()))
def test_a_list_that_says_what_cannot_be(document):
    with pytest.raises(ValueError, match=r"\S"):
        backup_list.decode(document)


def test_a_list_of_more_partitions_than_logs_takes_no_memory_for_them():
    topics = [[f"t{number}", f"id-{number}", 100_000, {}] for number in range(1000)]
    with pytest.raises(ValueError, match="0 logs of topics with 100000000 partitions"):
        backup_list.decode({"topics": topics, "logs": []})
