import os
import threading

import pytest

import logdb
from logdb.cli.records import produce as module
from logdb.cli.records.produce import read_chunks, tail


def values(command, topic="one", partition=0):
    with logdb.open(command.data_dir, mode="r") as db:
        log = db.log(topic, partition)
        return [(record.key, record.value, record.headers) for record in log.read(log.start_offset)]


@pytest.fixture
def empty(logdb_command):
    logdb_command("topics", "create", "one")
    logdb_command("topics", "create", "three", "-p", "3")
    return logdb_command


def test_lines_of_stdin(empty):
    result = empty("produce", "one", stdin=b"a\n\nlast \xff")
    assert values(empty) == [(None, b"a", ()), (None, b"", ()), (None, b"last \xff", ())]
    assert (result.stdout, "appended 3 records (7 B) to one" in result.stderr) == ("", True)


def test_files_and_their_order(empty, tmp_path):
    (tmp_path / "f").write_bytes(b"f1\nf2")
    (tmp_path / "g").write_bytes(b"g1\n")
    empty("produce", "one", str(tmp_path / "f"), "-", str(tmp_path / "g"), stdin="s\n")
    assert [value for _, value, _ in values(empty)] == [b"f1", b"f2", b"s", b"g1"]


def test_whole_files(empty, tmp_path):
    (tmp_path / "f").write_bytes(b"1\n2\n")
    (tmp_path / "g").write_bytes(b"")
    empty("produce", "-t", "one", "--whole", str(tmp_path / "f"), str(tmp_path / "g"))
    assert [value for _, value, _ in values(empty)] == [b"1\n2\n", b""]


def test_a_file_larger_than_a_chunk(empty, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_SIZE", 7)
    (tmp_path / "f").write_bytes(b"".join(b"%d\n" % n for n in range(50)))
    empty("produce", "one", str(tmp_path / "f"))
    assert [value for _, value, _ in values(empty)] == [b"%d" % n for n in range(50)]


def test_keys_headers_nulls_and_delimiters(empty):
    empty("produce", "one", "-K", r"\t", "-H", "h=1", "-D", ";", "--null-marker", "NUL", stdin="k\tv;NUL\tNUL")
    empty("produce", "one", "-k", "fixed", "-Z", stdin="\n")
    assert values(empty) == [(b"k", b"v", (("h", b"1"),)), (None, None, (("h", b"1"),)), (b"fixed", None, ())]


def test_the_key_decides_on_the_partition_and_headers_go_along(empty):
    result = empty.json("produce", "three", "-K", ":", "-H", "h=1", stdin="".join(f"k{n % 5}:{n}\n" for n in range(50)))
    assert (result["records"], sum(p["last_offset"] - p["first_offset"] + 1 for p in result["partitions"])) == (50, 50)
    places = {key: partition for partition in range(3) for key, _, _ in values(empty, "three", partition)}
    assert len(places) == 5
    for partition in range(3):
        records = values(empty, "three", partition)
        assert all(places[key] == partition for key, _, _ in records)
        assert all(headers == (("h", b"1"),) for _, _, headers in records)


def test_one_partition(empty):
    empty("produce", "three", "-p", "2", "--durability", "fsync", stdin="a\nb\n")
    assert [value for _, value, _ in values(empty, "three", 2)] == [b"a", b"b"]
    assert "no partition 3" in empty("produce", "three", "-p", "3", stdin="a\n", code=2).stderr


def test_line_without_separator_fails_and_says_what_was_done(empty):
    lines = "a:1\n" * 10 + "oops\n" + "b:2\n"
    result = empty("produce", "one", "-K", ":", stdin=lines, code=1)
    assert "line 11 has no key separator ':'; 10 records appended before it" in result.stderr
    assert len(values(empty)) == 10
    empty("produce", "one", "-K", ":", "--property", "ignore.error=true", stdin=lines)
    assert len(values(empty)) == 22


def test_kafka_s_reader_names_the_line_and_the_separator(empty):
    result = empty("produce", "--topic", "one", "--property", "parse.key=true", stdin="k\tv\nbad\nk2\tv2\n", kafka=True, code=1)
    assert r"line 2 has no key separator '\t'" in result.stderr
    assert values(empty) == [(b"k", b"v", ())]


def test_kafka_s_reader_takes_the_line_ends_of_windows(empty):
    empty("produce", "--topic", "one", "--property", "parse.key=true", stdin=b"k\tv\r\n\t\r\nk\tw\r\r\nk\tlast\r", kafka=True)
    empty("produce", "one", stdin=b"own\r\n")
    assert [value for _, value, _ in values(empty)] == [b"v", b"", b"w\r", b"last", b"own\r"]


def test_a_record_without_a_key_that_the_topic_needs(empty):
    empty("topics", "create", "table", "-c", "cleanup.policy=compact")
    told = empty("produce", "table", stdin="v\n", code=2).stderr
    assert "topic table is compacted: every record needs a key (config cleanup.policy)" in told


def test_line_too_large_is_named_with_its_topic(empty):
    empty("topics", "create", "short", "-c", "max.message.bytes=1200")
    result = empty("produce", "short", stdin="a\nb\n" + "c" * 1200 + "\nd\n", code=2)
    assert "max.message.bytes=1200; record 3 of the input, to topic short; 2 records appended before it" in result.stderr
    assert [value for _, value, _ in values(empty, "short")] == [b"a", b"b"]


def test_record_too_large_says_what_was_done(empty, tmp_path):
    (tmp_path / "large").write_bytes(bytes(2_000_000))
    (tmp_path / "small").write_bytes(b"ok\n")
    result = empty("produce", "one", str(tmp_path / "small"), str(tmp_path / "large"), code=2)
    assert "max.message.bytes=1048588; record 2 of the input, to topic one; 1 record appended before it" in result.stderr
    assert len(values(empty)) == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "name a topic"),
        (["nosuch"], "create it: logdb topics create nosuch"),
        (["one", "/no/file"], "no file '/no/file'"),
        (["one", "f", "--follow", "g"], "give no other"),
        (["one", "--property", "parse.keys=true"], "property 'parse.keys': must be parse.key, key.separator"),
        (["one", "-H", "novalue"], "KEY=VALUE"),
        (["one", "--durability", "never"], "fsync"),
    ],
)
def test_refused(empty, args, words):
    assert words in empty("produce", *args, stdin="x\n", code=2).stderr


def test_as_kafka_console_producer(empty):
    properties = ("parse.key=true", "key.separator=,", "parse.headers=true", "null.marker=-")
    args = [arg for one in properties for arg in ("--property", one)]
    result = empty("produce", "--topic", "one", *args, "--request-required-acks", "all", "--sync", kafka=True, stdin="h:1\tk,v\n-\tk,-\n")
    assert result.output == ""
    assert values(empty) == [(b"k", b"v", (("h", b"1"),)), (b"k", None, ())]


# ---------------------------------------------------------------- following a file


@pytest.fixture
def fast(monkeypatch):
    """What is tried again is tried at once."""
    monkeypatch.setattr(module, "POLL_INTERVAL_S", 0)


def test_tail_goes_on_through_rotation_and_truncation(tmp_path, fast, capsys):
    path = tmp_path / "app.log"
    ended = threading.Event()
    chunks = tail(str(path), ended)
    path.write_bytes(b"one\ntw")
    assert next(chunks) == b"one\ntw"
    with path.open("ab") as file:
        file.write(b"o\n")
    assert next(chunks) == b"o\n"
    with path.open("ab") as file:
        file.write(b"last of the old file")
    os.rename(path, tmp_path / "app.log.1")
    path.write_bytes(b"new\n")
    assert [next(chunks), next(chunks), next(chunks)] == [b"last of the old file", None, b"new\n"]
    path.write_bytes(b"x")
    assert [next(chunks), next(chunks)] == [None, b"x"]
    assert "was truncated" in capsys.readouterr().err
    ended.set()
    assert list(chunks) == [None]


def test_tail_waits_for_a_file_that_is_not_there(tmp_path, fast):
    path, ended = tmp_path / "late", threading.Event()
    got = []
    reader = threading.Thread(target=lambda: got.extend(tail(str(path), ended)))
    reader.start()
    path.write_bytes(b"here\n")
    while not got:
        assert reader.is_alive()
    ended.set()
    reader.join(10)
    assert got == [b"here\n", None]


def test_read_chunks_of_a_file(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert list(read_chunks(str(tmp_path / "f"))) == [b"abc"]


def test_nobody_writes_to_internal_topics(filled):
    filled("produce", "one", "--transactional-id", "id", stdin="a\n")
    for more in ([], ["-p", "0"], ["--transactional-id", "id"]):
        assert "logdb alone writes to it" in filled("produce", "__transaction_state", "-K", ":", *more, stdin="k:v\n", code=2).stderr
    assert [info["transactional_id"] for info in filled.json("transactions", "list")] == ["id"]


# ---------------------------------------------------------------- as one transaction


def committed(command, topic):
    with logdb.open(command.data_dir, mode="r") as db:
        return [record.value for record in db.log(topic).read(0, isolation_level="read_committed")][100:]


def test_as_one_transaction(filled):
    result = filled("produce", "one", "--transactional-id", "id", stdin="a\nb\n")
    assert "appended 2 records" in result.stderr
    assert committed(filled, "one") == [b"a", b"b"]
    done = filled.json("produce", "three", "--transactional-id", "id", "-K", ":", stdin="k:v\n")
    assert (done["records"], len(done["partitions"])) == (1, 1)


def test_a_bad_line_aborts_the_transaction(filled):
    result = filled("produce", "one", "--transactional-id", "id", "-K", ":", stdin="a:1\nb\n" + "c:1\n" * 5, code=1)
    assert "the transaction was aborted" in result.stderr
    assert committed(filled, "one") == []


@pytest.mark.parametrize("more", [["--follow", "x"], ["--durability", "os"]])
def test_a_transaction_has_an_end(filled, more):
    assert "excludes" in filled("produce", "one", "--transactional-id", "id", *more, code=2).stderr


def test_it_reads_what_consume_prints(filled):
    with filled.open() as db:
        db.append("three", b"\xff", b"\xfe", headers=[("h", b"1"), ("n", None)], timestamp_ms=1_700_000_000_000)
        db.append("three", None, b"k")
    lines = filled.out("consume", "three", "--json")
    for number, options in enumerate(([], ["--transactional-id", "tx"])):
        filled("topics", "create", f"copy{number}", "-p", "2")
        assert filled.json("produce", f"copy{number}", "-J", *options, stdin=lines)["records"] == 32
        with filled.open() as db:
            read = [
                sorted((r.key or b"", r.value or b"", r.headers, r.timestamp_ms) for r in db.read(name))
                for name in ("three", f"copy{number}")
            ]
        assert read[0] == read[1]


def test_a_line_of_consume_json_that_becomes_a_value_is_reported(filled):
    hint = "-J appends its record"
    lines = filled.out("consume", "one", "-c", "2", "--json")
    assert filled("produce", "three", stdin=lines).stderr.count(hint) == 1
    assert hint not in filled("produce", "three", "-J", stdin=lines).stderr
    assert hint not in filled("produce", "three", stdin='{"topic": 1}').stderr


def test_a_line_that_consume_does_not_print(filled):
    bad = '{"payload": "a"}\n{"value": 1}\n'
    said = filled("produce", "one", "-J", stdin=bad, code=1).stderr
    assert "line 2: it is no record of consume --json" in said and "1 record appended before it" in said
    assert "give no option that does" in filled("produce", "one", "-J", "-K", ":", stdin="x", code=2).stderr
