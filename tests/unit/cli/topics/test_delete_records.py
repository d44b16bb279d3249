import json

import pytest


def described(*partitions):
    return json.dumps({"partitions": [{"topic": t, "partition": p, "offset": o} for t, p, o in partitions], "version": 1})


def starts(command, topic):
    return [found["start_offset"] for found in command.json("offsets", topic)]


def test_shows_first_and_deletes_when_told(filled):
    shown = filled("delete-records", "-t", "one", "-o", "40")
    assert shown.stdout.splitlines()[1].split() == ["one", "0", "0", "40", "100"]
    assert "--execute" in shown.stderr
    assert starts(filled, "one") == [0]
    assert "1 partition" in filled("delete-records", "-t", "one", "-o", "40", "--execute").stderr
    assert starts(filled, "one") == [40]
    assert filled("delete-records", "one", "-o", "50").stdout.splitlines()[1].split() == ["one", "0", "40", "50", "100"]
    deleted = filled.json("delete-records", "--topic", "one", "--partition", "0", "--offset", "-1", "--yes")
    assert deleted == {
        "executed": True,
        "partitions": [{"topic": "one", "partition": 0, "start_offset": 40, "new_start_offset": 100, "end_offset": 100}],
    }
    assert filled("verify").exit_code == 0


def test_a_file_of_offsets(filled, tmp_path):
    path = tmp_path / "offsets.json"
    path.write_text(described(("one", 0, 10), ("three", 1, -1)), encoding="utf-8")
    filled("delete-records", "--offset-json-file", str(path))
    assert starts(filled, "one") == [0]
    filled("delete-records", "--offset-json-file", str(path), "--execute")
    ends = [found["end_offset"] for found in filled.json("offsets", "three")]
    assert starts(filled, "one") == [10]
    assert starts(filled, "three") == [0, ends[1], 0]


def test_as_kafka_delete_records(filled):
    printed = filled.out("delete-records", "--offset-json-file", "-", kafka=True, stdin=described(("one", 0, 7)))
    assert printed.splitlines() == [
        "Executing records delete operation",
        "Records delete operation completed:",
        "partition: one-0\tlow_watermark: 7",
    ]
    assert starts(filled, "one") == [7]


def test_kafka_delete_records_goes_on_behind_a_bad_partition(filled):
    given = described(("one", 0, 101), ("none", 0, 1), ("three", 0, 1))
    told = filled("delete-records", "--offset-json-file", "-", kafka=True, stdin=given, code=1)
    assert [line.split(" ")[1:3] for line in told.stdout.splitlines()[2:]] == [
        ["one-0\terror:", "offset"],
        ["none-0\terror:", "unknown"],
        ["three-0\tlow_watermark:", "1"],
    ]
    assert (starts(filled, "one"), starts(filled, "three")) == ([0], [1, 0, 0])


@pytest.mark.parametrize(
    ("args", "stdin", "words"),
    [
        ([], "", "a topic and --offset"),
        (["one", "-t", "three", "-o", "1"], "", "not both 'one' and 'three'"),
        (["-t", "one"], "", "--offset"),
        (["-t", "one", "-o", "1", "--offset-json-file", "-"], "", "either"),
        (["-t", "one", "-o", "101"], "", "[0, 100)"),
        (["-t", "one", "-o", "-2"], "", "-2"),
        (["-t", "none", "-o", "1"], "", "none"),
        (["-t", "three", "-p", "3", "-o", "1"], "", "no partition 3"),
        (["--offset-json-file", "-"], "[]", '"partitions"'),
        (["--offset-json-file", "-"], "{", '"partitions"'),
        (["--offset-json-file", "-"], '{"partitions": [], "version": 2}', "version 2"),
        (["--offset-json-file", "-"], described(("one", 0, 1), ("one", 0, 2)), "named twice: one-0"),
        (["--offset-json-file", "-"], described(("three", 0, 1), ("one", 0, 200)), "[0, 100)"),
    ],
)
def test_refused(filled, args, stdin, words):
    for flags in ([], ["--execute"]):
        assert words in filled("delete-records", *args, *flags, code=2, stdin=stdin).stderr
    assert starts(filled, "one") == [0]
    assert starts(filled, "three") == [0, 0, 0]


def test_a_compacted_topic_is_refused(filled):
    filled("topics", "alter", "one", "-c", "cleanup.policy=compact", "--execute")
    assert "'compact'" in filled("delete-records", "-t", "one", "-o", "1", "--execute", code=2).stderr
