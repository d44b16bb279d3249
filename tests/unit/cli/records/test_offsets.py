import pytest


def test_both_ends(filled):
    assert filled.json("offsets", "one") == [{"topic": "one", "partition": 0, "start_offset": 0, "end_offset": 100}]
    assert filled.out("offsets", "one").splitlines()[1].split() == ["one", "0", "0", "100"]
    assert len(filled.json("offsets")) == 4


def test_as_kafka_get_offsets(filled):
    assert filled.out("offsets", "--topic", "one", kafka=True) == "one:0:100\n"
    assert filled.out("offsets", "--topic", "o.*", "--time", "-2", kafka=True) == "one:0:0\n"
    some = ("--topic-partitions", "three:0-2,one:0", "--time", "earliest")
    assert filled.out("offsets", *some, kafka=True) == "one:0:0\nthree:0:0\nthree:1:0\n"
    assert filled.out("offsets", "--topic", "three", "--partitions", "2", "--time", "-2", kafka=True) == "three:2:0\n"
    assert len(filled.out("offsets", kafka=True).splitlines()) == 4
    assert filled.out("offsets", "--topic-partitions", "three:1-", "--time", "-4", kafka=True) == "three:1:0\nthree:2:0\n"
    assert filled.out("offsets", "--topic-partitions", ":1", "--time", "-2", kafka=True) == "three:1:0\n"
    assert filled.out("offsets", "--time", "latest-tiered", kafka=True) == filled.out("offsets", "--time", "-6", kafka=True) == ""


def test_at_a_time(logdb_command):
    logdb_command("topics", "create", "t")
    with logdb_command.open() as db:
        db.log("t").append_many([b"a", b"b"], timestamps_ms=[1_000, 2_000])
    assert logdb_command.out("offsets", "t", "--time", "1001") == "t:0:1\n"
    assert logdb_command.out("offsets", "t", "--time", "1970-01-01T00:00:01") == "t:0:0\n"
    assert logdb_command.out("offsets", "t", "--time", "2001") == "t:0:\n"
    assert logdb_command.out("offsets", "--topic", "t", "--time", "2001", kafka=True) == ""
    for wrong in ("foo", "-7"):
        told = logdb_command("offsets", "--topic", "t", "--time", wrong, kafka=True, code=2).stderr
        assert "is none of latest (-1), earliest (-2), earliest-local (-4), max-timestamp (-3), latest-tiered (-5), earliest-pen" in told
    assert logdb_command.json("offsets", "t", "--time", "2001") == [{"topic": "t", "partition": 0, "offset": None}]
    assert logdb_command.out("offsets", "-t", "t:0:1001") == "t:0:1\n", "kcat's query"
    assert logdb_command.out("offsets", "-t", "t:0:-1", "-t", "t:0:-2") == "t:0:0\n", "the last question about a partition counts"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nosuch"], "nosuch"),
        (["one:1"], "no partition 1"),
        (["one:x"], "TOPIC:0"),
        (["one", "--partitions", "x"], "0,2"),
        (["one", "--time", "-7"], "latest (-1)"),
        (["one", "--time", "x"], "1970"),
        (["one", "--time", "-86400000"], "before 1970: like 1969-12-31T23:59:59"),
        (["one", "--time", "9223372036854775808"], "no time"),
        (["-t", "["], "regular expression"),
    ],
)
def test_refused(filled, args, words):
    assert words in filled("offsets", *args, code=2).stderr


def test_at_a_time_before_1970(logdb_command):
    """A negative number is one of Kafka's names, so such a time is written as a date."""
    logdb_command("topics", "create", "t")
    with logdb_command.open() as db:
        db.log("t").append_many([b"a", b"b", b"c", b"d"], timestamps_ms=[-(2**63), -2, -1, 1])
    for at, offset in [("1969-12-31T23:59:59.999", 2), ("1969-12-31T23:59:59.998", 1), ("0001-01-01", 1), ("1970-01-01", 3)]:
        assert logdb_command.out("offsets", "t", "--time", at) == f"t:0:{offset}\n"
    for at, offset in [("1969-12-31", 1), ("1969-12-31T23:59:59.999", 2), ("1970-01-01T00:59:59.999+01:00", 2)]:
        assert logdb_command.out("offsets", "-t", f"t:0:{at}") == f"t:0:{offset}\n", "kcat's query"
    assert logdb_command.out("offsets", "t", "--time", "-1") == "t:0:4\n"


def test_the_latest_timestamp(logdb_command):
    logdb_command("topics", "create", "t")
    with logdb_command.open() as db:
        db.log("t").append_many([b"a", b"b", b"c"], timestamps_ms=[1, 3, 2])
    assert logdb_command.out("offsets", "t", "--time", "max-timestamp") == "t:0:1\n"
    assert logdb_command.out("offsets", "--topic", "t", "--time", "-3", kafka=True) == "t:0:1\n"
    logdb_command("topics", "create", "empty")
    assert logdb_command.out("offsets", "--topic", "empty", "--time", "-3", kafka=True) == ""
