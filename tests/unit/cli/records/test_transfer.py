"""Files in and out: what ``export`` writes, ``import`` reads; other people's tables become JSON values."""

import json

import pytest

RECORDS = [
    (b'{"n": 1}', b"ann", (), 1_700_000_000_000),
    (None, b"bob", (("h", b"1"), ("n", None)), 1_700_000_000_001),
    ('ü, "quoted"\nline'.encode(), None, (), 1_700_000_000_002),
    (b"", b"", (("ü", b""),), 1_700_000_000_003),
]


def fill(command, records=RECORDS):
    command("topics", "create", "from", "-p", "2")
    with command.open() as db:
        for value, key, headers, at in records:
            db.append("from", value, key, headers=headers, timestamp_ms=at)


def content(command, topic):
    with command.open() as db:
        return sorted((r.value or b"", r.key or b"", r.headers, r.timestamp_ms, r.value is None, r.key is None) for r in db.read(topic))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_an_import_of_an_export_has_the_same_records(logdb_command, tmp_path, kind):
    fill(logdb_command)
    path = str(tmp_path / f"out.{kind}")
    assert logdb_command.json("export", "from", path) == {"topic": "from", "records": 4, "path": path}
    assert logdb_command.json("import", "to", path, "--partitions", "3") == {"topic": "to", "records": 4}
    assert content(logdb_command, "to") == content(logdb_command, "from")
    with logdb_command.open() as db:
        assert db.describe_topic("to").partition_count == 3


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_bytes_of_any_kind_go_through(logdb_command, tmp_path, kind):
    fill(logdb_command, [(b"\xff\x00", b"\xfe", (("h", b"\xfd"),), 1_700_000_000_000)])
    path = str(tmp_path / f"out.{kind}")
    logdb_command("export", "from", path)
    logdb_command("import", "to", path)
    assert content(logdb_command, "to") == content(logdb_command, "from")


YEARS_1_TO_9999 = [-62_135_596_800_000, 253_402_300_799_999]
EXTREME = [-1, -2, 0, 1_700_000_000_000, *YEARS_1_TO_9999, YEARS_1_TO_9999[0] - 1, YEARS_1_TO_9999[1] + 1, -(2**63), 2**63 - 1]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_file_keeps_each_timestamp(logdb_command, tmp_path, kind):
    for topic in ("from", "to"):
        logdb_command("topics", "create", topic, "-c", f"message.timestamp.after.max.ms={2**63 - 1}")
    with logdb_command.open() as db:
        db.append_many("from", [b"%d" % at for at in EXTREME], timestamps_ms=EXTREME)
    path = str(tmp_path / f"out.{kind}")
    logdb_command("export", "from", path)
    logdb_command("import", "to", path)
    with logdb_command.open() as db:
        assert [(int(r.value), r.timestamp_ms) for r in db.read("to")] == [(at, at) for at in EXTREME]


@pytest.mark.parametrize(
    ("since", "count"),
    [("-62135596800001", 9), ("1969-12-31T23:59:59.999", 8), ("-1", 8), ("253402300800000", 5), (str(-(2**63)), 10), (str(2**63 - 1), 1)],
)
def test_an_export_begins_at_any_time(logdb_command, tmp_path, since, count):
    logdb_command("topics", "create", "from", "-c", f"message.timestamp.after.max.ms={2**63 - 1}")
    times = [-(2**63), -62_135_596_800_001, -1, 5, 1_700_000_000_000, 253_402_300_800_000, -2, 0, -(2**63), 2**63 - 1]
    with logdb_command.open() as db:
        db.append_many("from", [b"x"] * 10, timestamps_ms=times)
    for kind in ("csv", "jsonl", "parquet"):
        assert logdb_command.json("export", "from", str(tmp_path / f"o.{kind}"), f"--since={since}")["records"] == count


def test_csv_refuses_what_it_cannot_hold_and_leaves_no_file(logdb_command, tmp_path):
    for value in (b"\xff", rb"\N"):
        fill(logdb_command, [(value, None, (), 1_700_000_000_000)])
        assert "use jsonl or parquet" in logdb_command("export", "from", str(tmp_path / "o.csv"), code=1).stderr
        assert not [*tmp_path.glob("o.csv*")]
        logdb_command("topics", "delete", "from", "--yes")


def test_the_rows_of_a_table_become_values(logdb_command, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('\ufeffuser,amount,zip,at\nann,1.50,007,2024-01-01\n"b ""o""",-2,\\N,1700000000000\n', encoding="utf-8")
    logdb_command("import", "orders", str(path), "--key", "user", "--timestamp", "at")
    with logdb_command.open() as db:
        first, second = db.read("orders")
    assert first.value == b'{"user":"ann","amount":1.50,"zip":"007","at":"2024-01-01"}'
    assert (first.key, first.timestamp_ms) == (b"ann", 1_704_067_200_000)
    assert json.loads(second.value) == {"user": 'b "o"', "amount": -2, "zip": None, "at": 1_700_000_000_000}


def test_cells_with_a_given_text_are_null(logdb_command, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('a,b,at\n1,"",\n,NA,2024-01-01\n\\N,3,\\N\n')
    for topic, options in (("as_is", []), ("empty", ["--null", "", "--key", "a", "--timestamp", "at"]), ("na", ["--null", "NA"])):
        logdb_command("import", topic, str(path), *options)
    with logdb_command.open() as db:
        found = {topic: [tuple(json.loads(r.value).values())[:2] for r in db.read(topic)] for topic in ("as_is", "empty", "na")}
        assert [r.key for r in db.read("empty")] == [b"1", None, None]
        assert [r.timestamp_ms == 1_704_067_200_000 for r in db.read("empty")] == [False, True, False]
    assert found["as_is"] == [(1, ""), ("", "NA"), (None, 3)]
    assert found["empty"] == [(1, None), (None, "NA"), (None, 3)]
    assert found["na"] == [(1, ""), ("", None), (None, 3)]


def test_the_null_of_csv_is_refused_for_the_columns_of_records(logdb_command, tmp_path):
    """An empty value would become a tombstone, which deletes its key in a compacted topic."""
    (tmp_path / "in.csv").write_text("timestamp,key,value,headers\n,,x,\n5,k,,\n")
    assert "--null is for rows" in logdb_command("import", "t", str(tmp_path / "in.csv"), "--null", "", code=1).stderr


def test_only_csv_takes_a_text_for_null(logdb_command, tmp_path):
    (tmp_path / "in.jsonl").write_text("{}\n")
    assert "--null is for CSV" in logdb_command("import", "t", str(tmp_path / "in.jsonl"), "--null", "", code=2).stderr


def test_empty_cells_become_null_in_typed_columns(logdb_command, tmp_path):
    pa = pytest.importorskip("pyarrow")
    (tmp_path / "e.csv").write_text("a,b\n1,\n,3\n")
    logdb_command("import", "e", str(tmp_path / "e.csv"), "--null", "")
    with logdb_command.open() as db:
        table = db.read_arrow("e", schema=pa.schema([("a", pa.int64()), ("b", pa.int64())])).read_all()
    assert table.select(["a", "b"]).to_pydict() == {"a": [1, None], "b": [None, 3]}


def test_a_full_disk_names_the_file(logdb_command, tmp_path):
    fill(logdb_command)
    for kind in ("csv", "jsonl"):
        path = tmp_path / f"o.{kind}"
        (tmp_path / f"o.{kind}.part").symlink_to("/dev/full")
        assert f"No space left on device: {path}" in logdb_command("export", "from", str(path), code=1).stderr
        assert not [*tmp_path.glob(f"o.{kind}*")]


def test_json_lines_of_other_people_stay_as_they_are(logdb_command, tmp_path):
    path = tmp_path / "in.ndjson"
    path.write_text('{"id": 7, "x": [1]}\n\n  {"id": "a", "payload": 1}\n')
    logdb_command("import", "t", str(path), "--key", "id")
    with logdb_command.open() as db:
        assert [(r.key, r.value) for r in db.read("t")] == [(b"7", b'{"id": 7, "x": [1]}'), (b"a", b'{"id": "a", "payload": 1}')]


def test_times_in_the_parquet_of_other_people(logdb_command, tmp_path):
    """A time that Python lacks is a number of ms in the JSON of a row."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    numbers = [-62_135_596_800_000_001, 1_700_000_000_000_001]
    pq.write_table(pa.table({"at": pa.array(numbers).cast(pa.timestamp("us", "UTC"))}), tmp_path / "in.parquet")
    logdb_command("import", "t", str(tmp_path / "in.parquet"), "--timestamp", "at")
    with logdb_command.open() as db:
        found = [(r.timestamp_ms, json.loads(r.value)["at"]) for r in db.read("t")]
    assert found == [(-62_135_596_800_001, -62_135_596_800_001), (1_700_000_000_000, "2023-11-14T22:13:20.000001+00:00")]
    pq.write_table(pa.table({"day": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())}), tmp_path / "in.parquet")
    told = logdb_command("import", "t", str(tmp_path / "in.parquet"), code=1).stderr
    assert "in.parquet: day: Python cannot hold a value of it: " in told
    assert told.endswith("; 0 records appended before it\n")


def test_parquet_of_other_people(logdb_command, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [1, 2], "name": ["a", None], "raw": [b"\xff", b"x"]}), tmp_path / "in.parquet")
    logdb_command("import", "t", str(tmp_path / "in.parquet"), "--key", "id")
    with logdb_command.open() as db:
        found = [(r.key, json.loads(r.value)) for r in db.read("t")]
    assert found == [(b"1", {"id": 1, "name": "a", "raw": {"base64": "/w=="}}), (b"2", {"id": 2, "name": None, "raw": "x"})]


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("a.csv", "x,y\n1,2\n1\n", [], "line 3: 1 cells, the header has 2; 0 records appended before it"),
        ("a.csv", "x,x\n1,2\n", [], "names a column twice"),
        ("a.csv", "x\n1\n", ["--key", "y"], "no column 'y'; there are x"),
        ("a.csv", "x,t\n1,soon\n", ["--timestamp", "t"], "line 2: t='soon': must be a whole number of ms since 1970, or a time like 2013-"),
        ("a.csv", "x,t\n1,30\n1,\n", ["--timestamp", "t"], "line 3: t='': must be a whole number of ms since 1970"),
        ("a.jsonl", '{"t": "\\\\N"}\n', ["--timestamp", "t"], "line 1: t='\\\\N': must be"),
        ("a.jsonl", '{"payload": "a"}\n{"x": 1}\n', [], "line 2: it is no record of consume --json"),
        ("a.jsonl", '{"payload": 1}\n', [], "line 1: 1: must be a string, null"),
        ("a.jsonl", '{"payload": "a", "ts": 9223372036854775808}\n', [], "ts=9223372036854775808: must be milliseconds since 1970, in 6"),
        ("a.csv", "timestamp,value\n-9223372036854775809,x\n", [], "line 2: timestamp='-9223372036854775809': must be a whole number"),
        ("a.jsonl", '{"x": 1\n', [], "line 1: "),
        ("a.jsonl", '{"x": NaN}\n', [], "line 1: NaN is not JSON"),
        ("a.jsonl", '{"x": 1}\n', ["--key", "y"], "line 1: no field 'y'"),
    ],
)
def test_a_bad_row_is_named(logdb_command, tmp_path, name, text, options, message):
    (tmp_path / name).write_text(text)
    assert message in logdb_command("import", "t", str(tmp_path / name), *options, code=1).stderr


def test_a_file_is_replaced_only_when_told(logdb_command, tmp_path):
    fill(logdb_command)
    path = tmp_path / "o.jsonl"
    path.write_text("precious")
    assert "give --overwrite" in logdb_command("export", "from", str(path), code=2).stderr
    assert path.read_text() == "precious"
    logdb_command("export", "from", str(path), "--overwrite")
    assert len(path.read_text().splitlines()) == 4
    assert "give --format" in logdb_command("export", "from", "out.dat", code=2).stderr


def test_a_pipe(logdb_command):
    fill(logdb_command)
    lines = logdb_command.out("export", "from", "-", "--format", "jsonl", "--since", "2023-11-14T22:13:20.002")
    assert [json.loads(line)["ts"] % 10 for line in lines.splitlines()] == [2, 3]
    logdb_command("import", "to", "-", "--format", "jsonl", stdin=lines)
    assert [r[3] % 10 for r in content(logdb_command, "to")] == [3, 2]
