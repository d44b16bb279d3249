"""Groups and transactions on three nodes in processes of their own, which then end in any order."""

import pytest

import logdb
from support.cluster_process import cluster_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]  # three processes start, and end


def test_groups_and_transactions_and_then_all_nodes_end(tmp_path):
    with cluster_process(tmp_path) as cluster, logdb.open(cluster.urls) as db:
        db.create_topic("t", partitions=3)
        with db.producer() as producer:
            for number in range(300):
                producer.send("t", b"%d" % number)
        found = []
        with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            while len(found) < 300:
                found += [int(record.value) for records in consumer.poll(timeout_ms=10_000).values() for record in records]
            with db.transaction("tx") as transaction:
                for number in range(30):
                    transaction.send("t", b"%d" % number, partition=number % 3)
                transaction.send_offsets(consumer)
        assert sorted(found) == list(range(300))
        committed = [record for number in range(3) for record in db.log("t", number).read(0, isolation_level="read_committed")]
        assert len(committed) == 330
