from logdb.cli.topics.top import Seen, rows


def test_looks_at_all_topics(filled):
    found = filled.json_lines("top", "-n", "2", "--interval", "100ms")
    assert [row["topic"] for row in found] == ["one", "three"] * 2
    assert [row["records"] for row in found] == [100, 30] * 2
    assert all(row["records_per_s"] == 0 and row["size_bytes"] for row in found)
    shown = filled.out("top", "-n", "1").splitlines()
    assert shown[0].split() == ["TOPIC", "PARTITIONS", "RECORDS", "RECORDS/S", "SIZE", "BYTES/S"]
    assert shown[1].split()[:3] == ["one", "1", "100"]


def test_rates_are_those_between_two_looks():
    before = {"a": Seen(1, 10, 10, 1000), "b": Seen(1, 5, 5, 500)}
    now = {"a": Seen(1, 12, 20, 900), "b": Seen(1, 105, 105, 10_500), "new": Seen(2, 7, 7, 70)}
    found = {row["topic"]: (row["records"], row["records_per_s"], row["bytes_per_s"]) for row in rows(before, now, 2.0)}
    assert list(found) == ["b", "a", "new"]
    assert found == {"a": (12, 5.0, 0.0), "b": (105, 50.0, 5000.0), "new": (7, 0.0, 0.0)}
