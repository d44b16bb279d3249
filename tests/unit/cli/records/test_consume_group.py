import pytest

import logdb
from logdb.cli.app import arguments
from logdb.model import TopicPartition

ONE = TopicPartition("one", 0)


def numbers(first, beyond):
    return [str(number) for number in range(first, beyond)]


def committed(command, group="g"):
    with command.open() as db, db.consumer(group_id=group) as consumer:
        found = consumer.committed(ONE)
        return None if found is None else found.offset


def test_a_group_goes_on_where_it_has_come_to(filled):
    assert filled.out("consume", "one", "--group", "g", "-c", "30").splitlines() == numbers(0, 30)
    assert committed(filled) == 30, "what was printed, not what was read"
    assert filled.out("consume", "one", "-g", "g").splitlines() == numbers(30, 100)
    assert filled.out("consume", "one", "--group", "g") == ""
    assert filled.out("consume", "one", "--group", "other", "-c", "1").splitlines() == ["0"]
    filled("produce", "one", stdin="100\n")
    assert [record["payload"] for record in filled.json_lines("consume", "one", "--group", "g", "--timeout-ms", "60")] == ["100"]
    assert (committed(filled), committed(filled, "other")) == (101, 1)


def test_several_topics_and_partitions(filled):
    lines = filled.out("consume", "--include", "one|three", "--group", "g").splitlines()
    assert sorted(lines) == sorted([*numbers(0, 100), *(f"v{number}" for number in range(30))])


def test_a_new_group_of_kafkas_tool_begins_at_the_end(filled):
    assert filled.out("consume", "--topic", "one", "--group", "g", "--timeout-ms", "60", kafka=True) == ""
    lines = filled.out("consume", "--topic", "one", "--group", "h", "--from-beginning", "--max-messages", "2", kafka=True)
    assert lines.splitlines() == ["0", "1"]


@pytest.mark.parametrize("args", [["-p", "0"], ["-o", "5"], ["--timestamp", "5"]])
def test_a_group_does_not_begin_elsewhere(filled, args):
    assert "--group begins at its committed offsets" in filled("consume", "one", "--group", "g", *args, code=2).output
    assert committed(filled) is None


@pytest.mark.local
def test_a_group_needs_the_directory_for_itself(filled):
    with logdb.open(filled.data_dir):
        refusal = filled("consume", "one", "--group", "g", code=2).output
        assert "open for writing" in refusal
        assert "stop that process, or if it is a server use -b URL" in refusal


def test_kcats_mode():
    assert arguments(["logdb", "-G", "g", "one"]) == (["consume", "--follow", "--group", "g", "one"], False)


def test_isolation_level(filled):
    with filled.open() as db:
        producer = db.producer(transactional_id="x")
        producer.begin_transaction()
        producer.send("one", b"aborted")
        producer.flush()
        producer.abort_transaction()
        producer.close()
    for args in ([], ["--group", "g"], ["--timeout-ms", "60"]):
        assert filled.out("consume", "one", *args).splitlines() == [*numbers(0, 100), "aborted"]
        assert filled.out("consume", "one", "--isolation-level", "read_committed", *args).splitlines() == (
            [] if "g" in args else numbers(0, 100)
        )
