import pytest

import logdb
from support.power_cut import quiet


def starts(command, topic):
    return [found["start_offset"] for found in command.json("offsets", topic)]


@pytest.fixture
def overdue(filled):
    """Topic ``one`` is too large, and the database was closed by one that did not care."""
    with logdb.open(filled.data_dir) as db:
        quiet(db).alter_topic("one", config={"segment.bytes": 2_000, "retention.bytes": 3_000})
        log = db.log("one")
        for _ in range(8):
            log.append_many([bytes(900)])
            log.append_many([bytes(900)])
    return filled


@pytest.mark.local
def test_shows_first_and_deletes_when_told(overdue):
    shown = overdue("enforce-retention")
    topic, partition, start, new_start, segments, _ = shown.stdout.splitlines()[1].split()[:6]
    assert (topic, partition, start) == ("one", "0", "0")
    assert int(new_start) > 100
    assert "--execute" in shown.stderr
    planned = overdue.json("enforce-retention", "one")
    assert planned["executed"] is False
    (row,) = planned["partitions"]
    assert (row["new_start_offset"], row["segment_count"]) == (int(new_start), int(segments))
    assert starts(overdue, "one") == [0]
    assert overdue.json("enforce-retention", "three", "--execute") == {"executed": True, "partitions": []}


@pytest.mark.local
@pytest.mark.parametrize("names", [[], ["one"], ["three", "one"]])
def test_what_the_opening_let_go_is_shown_too(overdue, names):
    (row,) = overdue.json("enforce-retention")["partitions"]
    assert overdue.json("enforce-retention", *names, "--yes") == {"executed": True, "partitions": [row]}
    assert starts(overdue, "one") == [row["new_start_offset"]]
    assert overdue("verify").exit_code == 0


def test_where_nothing_is_to_go(filled):
    assert "no segment is over a limit" in filled("enforce-retention", "--execute").stderr
    for named in (["one"], ["--topic", "one"]):
        assert filled.json("enforce-retention", *named) == {"executed": False, "partitions": []}
    assert "none" in filled("enforce-retention", "none", code=2).output


@pytest.mark.parametrize(
    ("verb", "option"),
    [(("topics", "alter", "one"), "-c"), (("configs", "alter", "one"), "-s"), (("topics", "--alter", "--topic", "one"), "--config")],
)
def test_a_lower_limit_is_shown_before_it_deletes(filled, verb, option):
    """The shown offsets are those that go; without them nothing is altered."""
    unlimited = filled.json("offsets", "one")
    told = filled(*verb, option, "retention.ms=1")
    assert "nothing was altered, because the change would delete records; --execute makes the change" in told.stderr
    assert filled.json("offsets", "one") == unlimited
    assert "retention.ms" not in filled.out("configs", "describe", "one")
    filled(*verb, option, "retention.ms=1", "--execute")
    assert "retention.ms" in filled.out("configs", "describe", "one")


def test_a_limit_that_deletes_nothing_is_set_at_once(filled):
    filled("topics", "alter", "one", "-c", "retention.ms=31536000000000")
    filled("topics", "alter", "one", "-c", "segment.bytes=2048")
    assert "31536000000000" in filled.out("configs", "describe", "one")


def test_a_topic_that_becomes_compacted_loses_records(filled):
    told = filled("topics", "alter", "one", "-c", "cleanup.policy=compact")
    assert "compaction of one deletes all but the latest record of each key, and records without a key" in told.stderr
    assert "compact" not in filled.out("configs", "describe", "one")
    assert filled.json("configs", "alter", "one", "-s", "cleanup.policy=compact") == {
        "executed": False,
        "partitions": [],
        "compacted": ["one"],
    }
    filled("topics", "alter", "one", "-c", "cleanup.policy=compact", "--yes")
    assert "compact" in filled.out("configs", "describe", "one")
