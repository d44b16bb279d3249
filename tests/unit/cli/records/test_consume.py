import json
import logging

import pytest
from click import UsageError

import logdb
from logdb.cli.records.consume import Source, begin_and_end, stream, stream_of_server, write
from logdb.cli.terminal.params import OffsetSpec
from support.serving import served


def lines(command, *args, **options):
    return command.out("consume", *args, **options).splitlines()


def numbers(first, beyond):
    return [str(number) for number in range(first, beyond)]


@pytest.fixture
def timed(logdb_command):
    """A topic with a record a second, 1 s to 100 s after 1970 began."""
    logdb_command("topics", "create", "timed")
    with logdb_command.open() as db:
        db.log("timed").append_many([b"%d" % n for n in range(1, 101)], timestamps_ms=[1000 * n for n in range(1, 101)])
    return logdb_command


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], (0, 100)),
        (["--from-beginning"], (0, 100)),
        (["-o", "beginning", "-e"], (0, 100)),
        (["-o", "end"], (0, 0)),
        (["--offset", "95"], (95, 100)),
        (["-o", "-3"], (97, 100)),
        (["-o", "-1000"], (0, 100)),
        (["-o", "100"], (0, 0)),
        (["-c", "5"], (0, 5)),
        (["-c", "0"], (0, 0)),
        (["-c", "-1"], (0, 100)),
        (["-o", "90", "--max-messages", "5", "-p", "0"], (90, 95)),
    ],
)
def test_where_to_begin_and_end(filled, args, expected):
    assert lines(filled, "one", *args) == numbers(*expected)
    assert lines(filled, "-t", "one", *args) == numbers(*expected)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--timestamp", "98000"], (98, 101)),
        (["--timestamp", "97001"], (98, 101)),
        (["--timestamp", "1970-01-01T00:01:38"], (98, 101)),
        (["-o", "s@98000"], (98, 101)),
        (["-o", "s@98000", "-o", "e@100000"], (98, 100)),
        (["-o", "e@3000"], (1, 3)),
        (["-o", "e@1970-01-02"], (1, 101)),
        (["--timestamp", "1970-01-02"], (0, 0)),
    ],
)
def test_times(timed, args, expected):
    assert lines(timed, "timed", *args) == numbers(*expected)


TIMES = [-(2**63), -62_135_596_800_001, -2, -1, 0, 5, 253_402_300_800_000, 2**63 - 1]


@pytest.fixture
def extreme(logdb_command):
    """Records whose values are their times."""
    logdb_command("topics", "create", "t", "-c", f"message.timestamp.after.max.ms={2**63 - 1}")
    with logdb_command.open() as db:
        db.log("t").append_many([b"%d" % at for at in TIMES], timestamps_ms=TIMES)
    return logdb_command


@pytest.mark.parametrize(
    ("begin", "first"),
    [
        (str(-(2**63)), 0),
        ("-62135596800001", 1),
        ("0001-01-01", 2),
        ("1969-12-31T23:59:59.998", 2),
        ("1969-12-31T23:59:59.999", 3),
        ("-1", 3),
        ("1970-01-01", 4),
        ("253402300800000", 6),
        (str(2**63 - 1), 7),
    ],
)
def test_times_that_no_calendar_has(extreme, begin, first):
    for args in (["--timestamp", begin], ["--offset", f"s@{begin}"], [f"--since={begin}"]):
        assert lines(extreme, "t", *args) == [str(at) for at in TIMES[first:]]
    assert lines(extreme, "t", "-o", f"e@{begin}") == [str(at) for at in TIMES[:first]]


def test_such_times_are_printed_as_they_are(extreme):
    assert [one["ts"] for one in extreme.json_lines("consume", "t")] == TIMES
    assert lines(extreme, "t", "-f", r"%T\n") == [str(at) for at in TIMES]
    assert lines(extreme, "t", "--property", "print.timestamp=true") == [f"CreateTime:{at}\t{at}" for at in TIMES]


def test_all_partitions_each_in_order(filled):
    rows = [line.split() for line in lines(filled, "three", "-f", r"%p %o %k %s\n")]
    assert len(rows) == 30
    assert rows == sorted(rows, key=lambda row: (int(row[0]), int(row[1])))
    assert {(key, value) for _, _, key, value in rows} == {(f"k{n}", f"v{n}") for n in range(30)}
    only = [row for row in rows if row[0] == "1"]
    assert [line.split() for line in lines(filled, "three", "-p", "1", "-f", r"%p %o %k %s\n")] == only


def test_formats(filled):
    document = json.loads(filled.out("consume", "one", "-c", "1", "--json"))
    assert (document["topic"], document["partition"], document["offset"], document["payload"]) == ("one", 0, 0, "0")
    assert json.loads(filled.out("consume", "one", "-c", "1", "-J")) == document
    assert filled.out("consume", "one", "-c", "2", "-D", ",") == "0,1,"
    assert filled.out("consume", "one", "-c", "1", "-K", ":") == "null:0\n"
    assert filled.out("consume", "one", "-c", "1", "-K", ":", "-Z") == "NULL:0\n"
    assert filled.out("consume", "one", "-c", "1", "-f", "%k", "-Z") == "NULL"
    assert filled.out("consume", "one", "-c", "1", "--property", "print.offset=true") == "Offset:0\t0\n"


def test_log_append_time_is_named(logdb_command):
    logdb_command("topics", "create", "t", "-c", "message.timestamp.type=LogAppendTime")
    logdb_command("produce", "t", stdin="x\n")
    assert logdb_command.json("consume", "t")["tstype"] == "logappend"
    assert logdb_command.out("consume", "t", "--property", "print.timestamp=true").startswith("LogAppendTime:")


def test_several_topics(filled):
    assert len(lines(filled, "--include", "o.*|three")) == 130
    assert len(lines(filled, "--include", "one,three")) == 130
    assert "unknown topic 'x.*'" in filled("consume", "--include", "x.*", code=2).stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "name a topic"),
        (["one", "-t", "three"], "name a topic"),
        (["nosuch"], "unknown topic 'nosuch'"),
        (["one", "-p", "1"], "no partition 1"),
        (["one", "-o", "101"], "it holds [0, 100)"),
        (["one", "-o", "soon"], "s@TIME"),
        (["one", "--timestamp", "soon"], "1970"),
        (["one", "--timestamp", "-9223372036854775809"], "1970"),
        (["one", "-o", "s@9223372036854775808"], "s@TIME"),
        (["one", "--since", "9223372036854775808"], "2013-07-04T12:00:00"),
        (["one", "-o", "1", "--from-beginning"], "give one"),
        (["one", "--follow", "-o", "e@5"], "e@TIME sets an end"),
        (["one", "-f", "%x"], "%x"),
        (["one", "--property", "print.all=true"], "print.all"),
        (["--include", "["], "regular expression"),
    ],
)
def test_refused(filled, args, words):
    assert words in filled("consume", *args, code=2).stderr


def test_timeout_ends_the_wait(filled):
    assert lines(filled, "one", "--follow", "--timeout-ms", "0", "-o", "99") == ["99"]
    assert lines(filled, "three", "--timeout-ms", "1", "-f", "%s\n") != []


def test_as_kafka_console_consumer(filled):
    result = filled("consume", "--topic", "one", "--from-beginning", "--max-messages", "3", kafka=True)
    assert (result.stdout, result.stderr) == ("0\n1\n2\n", "Processed a total of 3 messages\n")
    result = filled("consume", "--topic", "one", "--timeout-ms", "0", kafka=True)
    assert result.stdout == "", "without a place it begins at the end, as Kafka's does"


def test_an_offset_that_kafka_s_consumer_does_not_find_is_reset(filled):
    def told(*flags):
        return filled("consume", "--topic", "one", "--partition", "0", "--timeout-ms", "0", *flags, kafka=True)

    assert told("--offset", "101").output == "Processed a total of 0 messages\n"
    assert told("--offset", "101", "--max-messages", "2", "--command-property", "auto.offset.reset=earliest").stdout == "0\n1\n"
    filled("delete-records", "one", "-o", "50", "--yes")
    assert told("--offset", "49").stdout == ""
    assert told("--offset", "99").stdout == "99\n"


def test_two_groups_are_refused(filled):
    flags = ("consume", "--topic", "one", "--group", "g", "--command-property")
    assert "two groups are given, 'g' by --group and 'x'" in filled(*flags, "group.id=x", kafka=True, code=2).stderr
    filled(*flags, "group.id=g", "--from-beginning", "--max-messages", "1", kafka=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_was_read_before_a_signal_is_written_and_counted(capfdbinary, error):
    def records():
        yield from "ab"
        raise error

    with pytest.raises(error):
        write(records(), str.encode, None, counted=True)
    assert capfdbinary.readouterr() == (b"ab", b"Processed a total of 2 messages\n")


def test_begin_and_end():
    default = {"from_beginning": False, "timestamp_ms": None, "default": "end"}
    assert begin_and_end([], **default) == (OffsetSpec("end"), None)
    assert begin_and_end([OffsetSpec("to-time", 5)], **default) == (OffsetSpec("end"), OffsetSpec("to-time", 5))
    with pytest.raises(UsageError):
        begin_and_end([OffsetSpec("to-time", 5), OffsetSpec("to-time", 6)], **default)
    with pytest.raises(UsageError):
        begin_and_end([OffsetSpec("end")], from_beginning=False, timestamp_ms=3, default="end")


def test_stream_follows_several_partitions(tmp_path):
    with logdb.open(str(tmp_path)) as db:
        db.create_topic("t", partitions=2)
        logs = [db.log("t", 0), db.log("t", 1)]
        logs[0].append(b"a")
        records = stream([Source(log, 0, None) for log in logs], follow=True, timeout_ms=None)
        assert next(records).value == b"a"
        assert next(records) is None, "says that there is no more for now before it waits"
        logs[1].append(b"b")
        logs[0].append(b"c")
        assert {record.value for record in records_of(records, 2)} == {b"b", b"c"}
        records.close()


def test_who_follows_a_server_does_not_ask_all_the_time(tmp_path, caplog):
    caplog.set_level(logging.INFO, "logdb.access")
    with served(tmp_path / "db", access_log=True) as server, logdb.open(server.url) as db:
        db.create_topic("t", partitions=20)
        sources = [Source(db.log("t", partition), 0, None) for partition in range(20)]
        records = stream_of_server(sources, timeout_ms=1_000)
        assert next(records) is None
        before = len(caplog.records)
        server.database.log("t", 7).append(b"x")
        assert [record.value for record in records if record is not None] == [b"x"]
        assert len(caplog.records) - before < 3 * 2 * 20, "what each look takes, not twenty looks in a second"


def records_of(records, count):
    found = []
    while len(found) < count:
        record = next(records)
        found += [] if record is None else [record]
    return found


# ---------------------------------------------------------------- places under other names


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["-n", "1"], ["0"]),
        (["--tail", "2"], ["1", "2"]),
        (["--since", "2h"], ["2"]),
        (["--since", "2020-01-02"], ["1", "2"]),
        (["-o", "2020-01-02"], ["1", "2"]),
        (["-o", "2020-01-02T00:00:01"], ["2"]),
    ],
)
def test_a_place_is_a_time_or_a_number_of_records(logdb_command, options, values):
    day_ms = 86_400_000
    with logdb_command.open() as db:
        db.create_topic("t")
        second = 1_577_836_800_000 + day_ms  # 2020-01-02
        for value, timestamp_ms in ((b"0", second - 1), (b"1", second), (b"2", None)):
            db.append("t", value, timestamp_ms=timestamp_ms)
    assert logdb_command.out("consume", "t", *options).split() == values


def test_two_places_are_refused(filled):
    assert "give one of" in filled("consume", "one", "--tail", "1", "--since", "1h", code=2).stderr
