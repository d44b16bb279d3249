"""ListOffsets of logs with records that have no timestamp (-1), or one from before 1970: the answers of logdb and of a Kafka.

The rules are in docs/reference/kafka.md.
"""

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import logdb.testing
from benches.peers.kafka import broker as kafka
from logdb_kafka_api.errors import Code
from support.batches import Rec, encode_batch
from support.kafka_wire import Wire, produce
from support.waiting import until

YEAR_1 = -62_135_596_800_000
NONE = (-1, -1)
ASKED = (-3, 0, 5, 6)
LOGS = [  # the times of each batch; the answers to ``ASKED``: offset and timestamp; the first one of Kafka
    ([], (NONE, NONE, NONE, NONE), NONE),
    ([[-1]], (NONE, NONE, NONE, NONE), (0, -1)),
    ([[-2, -1], [-1]], (NONE, NONE, NONE, NONE), (1, -1)),
    ([[YEAR_1]], (NONE, NONE, NONE, NONE), NONE),
    ([[-(2**62), -2]], (NONE, NONE, NONE, NONE), NONE),
    ([[0]], ((0, 0), (0, 0), NONE, NONE), (0, 0)),
    ([[-1, 0]], ((1, 0), (1, 0), NONE, NONE), (1, 0)),
    ([[0, -1], [YEAR_1]], ((0, 0), (0, 0), NONE, NONE), (0, 0)),
    ([[-1], [YEAR_1, 5], [-1, 5]], ((2, 5), (2, 5), (2, 5), NONE), (2, 5)),
    ([[5, -1, 9, -1], [9]], ((2, 9), (0, 5), (0, 5), (2, 9)), (2, 9)),
]


def test_logdb_answers_as_the_table_says():
    with logdb.testing.broker() as broker:
        assert answers(broker.bootstrap_servers) == [ends(batches) + list(found) for batches, found, _ in LOGS]


@pytest.mark.foreign
def test_kafka_answers_as_the_table_says(tmp_path):
    if reason := kafka.missing():
        pytest.skip(reason)
    with kafka.broker(tmp_path / "kafka", heap=kafka.SMALL_HEAP) as address:
        assert answers(address) == [[*ends(batches), latest, *found[1:]] for batches, found, latest in LOGS]


def ends(batches):
    """The answers to -1, -2 and -4."""
    return [(sum(map(len, batches)), -1), (0, -1), (0, -1)]


def answers(address):
    """Of each log: the answers to -1, -2, -4 and ``ASKED``."""
    found = []
    with Wire(address) as wire:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("t", len(LOGS), 1)])["t"].result(30)
        for partition, (batches, *_) in enumerate(LOGS):
            until(lambda at=partition: not asked(wire, at, -1)["error_code"])  # it leads the partition
            for times in batches:
                records = [Rec(b"k", b"v", timestamp_ms=at) for at in times]
                data = encode_batch(records, base_timestamp=times[0], max_timestamp=max(times))
                assert produce(wire, data, partition=partition)["error_code"] == Code.NONE
            told = [asked(wire, partition, at) for at in (-1, -2, -4, *ASKED)]
            assert {one["error_code"] for one in told} == {Code.NONE}
            found.append([(one["offset"], one["timestamp"]) for one in told])
    return found


def asked(wire, partition, at):
    ask = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": at}
    values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": [ask]}]}
    (found,) = wire.ask("ListOffsets", 8, **values)["topics"][0]["partitions"]
    return found
