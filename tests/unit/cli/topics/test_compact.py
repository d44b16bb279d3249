import pytest


@pytest.fixture
def keyed(filled):
    """A topic of 2 partitions with three records of each of 10 keys."""
    filled("topics", "create", "kv", "-p", "2", "-c", "cleanup.policy=compact")
    filled("produce", "kv", "-K", ":", stdin="".join(f"k{n % 10}:v{n} {'x' * 100}\n" for n in range(30)))
    return filled


def test_only_the_latest_are_left(keyed):
    found = keyed.json("compact", "kv")
    assert [row["partition"] for row in found] == [0, 1]
    assert all(row["size_bytes"] < row["size_bytes_before"] and row["segment_count"] == 2 for row in found)
    assert sum(row["end_offset"] for row in found) == 30
    values = [record["payload"].split()[0] for record in keyed.json_lines("consume", "kv", "--from-beginning", "-e")]
    assert sorted(values) == sorted(f"v{n}" for n in range(20, 30))
    assert keyed("verify").exit_code == 0


def test_one_partition_and_what_came_back(keyed):
    shown = keyed("compact", "kv", "-p", "1")
    assert shown.stdout.splitlines()[0].split() == ["TOPIC", "PARTITION", "BEFORE", "NOW", "SEGMENTS"]
    assert shown.stdout.splitlines()[1].split()[:2] == ["kv", "1"]
    assert "1 partition compacted" in shown.stderr


@pytest.mark.parametrize(
    ("args", "words"), [(["one"], "'compact'"), (["none"], "none"), (["kv", "-p", "2"], "no partition 2"), ([], "TOPIC")]
)
def test_what_is_refused(keyed, args, words):
    assert words in keyed("compact", *args, code=2).stderr
