"""What Kafka's own tool prints beside it: tests/integration/kafka/test_tools_beside_kafkas.py."""

import pytest

from logdb.broker.runner import transactional_batches
from logdb.model import MIRROR_OF, ProducerIdAndEpoch
from support.clustered import clustered

TOOL = "kafka-transactions"
HANGING = "Topic\tPartition\tProducerId\tProducerEpoch\tCoordinatorEpoch\tStartOffset\tLastTimestamp\tDuration(min)"


def rows(command, *args):
    """The cells of each line, after the header's."""
    lines = command.out(TOOL, *args, kafka=True).splitlines()
    assert all(line.endswith("\t") and len(line) == len(lines[0]) for line in lines)
    return [[cell.rstrip() for cell in line[:-1].split("\t")] for line in lines[1:]]


def test_too_few_arguments(filled):
    said = filled(TOOL, kafka=True, code=1)
    assert (said.stdout, said.stderr.splitlines()[-1]) == ("", "kafka-transactions.sh: error: too few arguments")
    assert filled.out(TOOL, "-v", kafka=True).startswith("logdb ")


def test_list(transacted):
    left = transacted.json("transactions", "describe", "left")[0]["producer_id"]
    assert transacted.out(TOOL, "list", kafka=True).startswith("TransactionalId\tCoordinator\tProducerId")
    assert [row[::3] for row in rows(transacted, "list")] == [["done", "CompleteCommit"], ["left", "Ongoing"]]
    assert rows(transacted, "list", "--transactional-id-pattern", "l.*t") == [["left", "0", str(left), "Ongoing"]]
    assert rows(transacted, "list", "--transactional-id-pattern", "lef") == []
    assert len(rows(transacted, "list", "--transactional-id-pattern", "", "--duration-filter", "-1")) == 2
    assert rows(transacted, "list", "--duration-filter", "600000") == []
    assert "regular expression" in transacted(TOOL, "list", "--transactional-id-pattern", "(", kafka=True, code=1).stderr
    assert transacted.json(TOOL, "list", kafka=True)[1]["TransactionState"] == "Ongoing"


def test_describe(transacted):
    ((coordinator, name, _, epoch, state, timeout, start, duration, partitions),) = rows(
        transacted, "describe", "--transactional-id", "left"
    )
    assert (coordinator, name, epoch, state, timeout, partitions) == ("0", "left", "0", "Ongoing", "60000", "three-1")
    assert int(start) > 1_700_000_000_000 and 0 <= int(duration) < 600_000
    assert "unknown transactional id" in transacted(TOOL, "describe", "--transactional-id", "x", kafka=True, code=2).stderr


def test_describe_of_an_id_without_a_transaction(filled):
    with filled.open() as db:
        db._session.init_producer_id("new")
    assert rows(filled, "describe", "--transactional-id", "new")[0][4:] == ["Empty", "60000", "None", "None", ""]


def test_describe_producers(transacted):
    with transacted.open() as db:
        producer_id = db.describe_transaction("done").producer.producer_id
    ((*who, _, start),) = rows(transacted, "describe-producers", "--topic", "one", "--partition", "0")
    assert who == [str(producer_id), "1", "0", "-1"] and start == "None"
    of_three = ("describe-producers", "--topic", "three", "--partition", "1")
    assert len(rows(transacted, *of_three)) == 1 == len(rows(transacted, *of_three, "--broker-id", "0"))
    assert "does not lead three-1" in transacted(TOOL, *of_three, "--broker-id", "1", kafka=True, code=1).stderr
    assert "three" in transacted(TOOL, *of_three[:-1], "7", kafka=True, code=2).stderr


def test_a_transaction_that_has_a_coordinator_does_not_hang(transacted):
    assert rows(transacted, "find-hanging", "--topic", "three", "--max-transaction-timeout", "-1") == []
    assert rows(transacted, "find-hanging", "--broker-id", "0", "--max-transaction-timeout", "-1") == []
    assert "requires either --topic or --broker-id" in transacted(TOOL, "find-hanging", kafka=True, code=1).stderr
    assert "requires --topic" in transacted(TOOL, "find-hanging", "--broker-id", "0", "--partition", "1", kafka=True, code=1).stderr


def test_an_abort_on_one_partition_is_refused(transacted):
    where = ("abort", "--topic", "three", "--partition", "1")

    def said(*flags):
        return transacted(TOOL, *where, *flags, kafka=True, code=1).stderr

    with transacted.open() as db:
        start, end = db.log("three", 1).last_stable_offset, db.log("three", 1).end_offset
        producer_id, epoch = db.describe_transaction("left").producer
    if transacted.url is None:  # opening it has aborted the transaction
        assert "Could not find any open transactions" in said("--start-offset", str(start))
        return
    assert "'forceTerminateTransaction --transactionalId left'" in said("--start-offset", str(start))
    of_producer = ("--producer-id", str(producer_id), "--producer-epoch", str(epoch))
    assert "transactional id 'left' has it" in said(*of_producer, "--coordinator-epoch", "0")
    assert "Missing required argument --coordinator-epoch" in said(*of_producer)
    assert "Missing required argument --producer-epoch" in said("--producer-id", "7")
    assert "must be identified either with --start-offset" in said()
    assert f"starting at offset {end} on partition three-1" in said("--start-offset", str(end))


@pytest.mark.local
def test_a_transaction_that_hangs(filled):
    with filled.open() as db:
        producer = ProducerIdAndEpoch(db._session.init_producer_id("lost").producer_id, 0)
        db.log("one").append_batches(transactional_batches([b"x"], [b"k"], producer, 1_700_000_000_000), internal=True)
        db.flush()
    found = ["one", "0", str(producer.producer_id), "0", "-1", "100"]
    assert [row[:6] for row in rows(filled, "find-hanging", "--topic", "one", "--max-transaction-timeout", "-1")] == [found]
    assert rows(filled, "find-hanging", "--topic", "one") == []
    assert rows(filled, "find-hanging", "--broker-id", "9", "--max-transaction-timeout", "-1") == []
    named = ("find-hanging", "--topic", "one", "--partition", "0", "--max-transaction-timeout", "-1")
    assert [row[:6] for row in rows(filled, *named)] == [found]
    assert filled.out(TOOL, "abort", "--topic", "one", "--partition", "0", "--start-offset", "100", kafka=True) == ""
    assert rows(filled, *named) == []
    with filled.open() as db:
        assert [record.value for record in db.log("one").read(100, isolation_level="read_committed")] == []


@pytest.mark.local
def test_a_transaction_of_a_mirror_hangs_until_its_source_ends_it(filled):
    with filled.open() as db:
        db.create_topic("copy", config={MIRROR_OF: db.describe_topic("one").topic_id})
        producer = ProducerIdAndEpoch(7, 0)
        batches = transactional_batches([b"x"], [b"k"], producer, 1_700_000_000_000)
        db._session.produce("copy", 0, batches, mirrored=True)
        db.flush()
    said = filled(TOOL, "abort", "--topic", "copy", "--partition", "0", "--start-offset", "0", kafka=True, code=1).stderr
    assert "ends by its source's marker" in said


def test_force_terminate(transacted):
    assert transacted.out(TOOL, "forceTerminateTransaction", "--transactionalId", "left", kafka=True) == ""
    with transacted.open() as db:
        assert db.describe_transaction("left").partitions == ()
        assert db.describe_transaction("left").producer.producer_epoch > 0
        log = db.log("three", 1)
        assert log.last_stable_offset == log.end_offset


@pytest.mark.local
def test_a_transaction_that_hangs_in_a_cluster(logdb_command, tmp_path):
    with clustered(tmp_path / "cluster") as three:
        command = type(logdb_command)(str(tmp_path), three.urls[0])
        with command.open() as db:
            db.create_topic("t", partitions=2)
            producer = ProducerIdAndEpoch(db._session.init_producer_id("lost").producer_id, 0)
            leaders = [one.leader for one in db.describe_topic("t").partitions]
        for partition, leader in enumerate(leaders):
            batches = transactional_batches([b"x"], [b"k"], producer, 1_700_000_000_000)
            three.nodes[leader].broker.served_log("t", partition).append_batches(batches, internal=True)
        asked = ("find-hanging", "--topic", "t", "--max-transaction-timeout", "-1")
        assert [row[:2] for row in rows(command, *asked)] == [["t", "0"], ["t", "1"]]
        of_one = ("describe-producers", "--topic", "t", "--partition", "1", "--broker-id")
        assert rows(command, *of_one, str(leaders[1]))[0][-1] == "0"
        assert "does not lead t-1" in command(TOOL, *of_one, "9", kafka=True, code=1).stderr
