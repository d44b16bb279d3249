import json
import sys

import pytest

from logdb_connect.connectors import limits
from logdb_connect.connectors.singer import SingerSourceConnector
from logdb_connect.errors import ConnectError
from support.connect_tasks import Source

TAP = f"""#!{sys.executable}
import argparse, json, sys
parser = argparse.ArgumentParser()
for name in ("--config", "--state", "--catalog"):
    parser.add_argument(name, type=lambda path: json.load(open(path)), default={{}})
given = parser.parse_args()
first = given.state.get("next", 0)
def say(**message):
    print(json.dumps(message), flush=True)
say(type="SCHEMA", stream="users", schema={{}}, key_properties=["id"])
for n in range(first, given.config["until"]):
    say(type="RECORD", stream="users", record={{"id": n, "name": "u\\u00e9"}})
    if n % 2:
        say(type="STATE", value={{"next": n + 1}})
say(type="RECORD", stream="plain", record={{"x": first}})
if "fail" in given.config:
    sys.exit("no such account")
if "odd" in given.config:
    print("not JSON")
"""


@pytest.fixture
def tap(tmp_path):
    path = tmp_path / "tap-test"
    path.write_text(TAP)
    path.chmod(0o755)
    limits.configure(commands=[str(path)])
    yield str(path)
    limits.configure()


def source(tap, offsets=None, *, config, **more):
    given = {"tap.command": tap, "tap.config": json.dumps(config), "topic.prefix": "in.", "tap.interval.ms": "0"}
    return Source(SingerSourceConnector, given | {key.replace("_", "."): value for key, value in more.items()}, offsets)


def run(one):
    """All records of one run of the tap."""
    records = []
    while True:
        records += one.poll()
        if records and one.task._process is None:
            return records


def test_streams_become_topics_and_states_become_offsets(tap):
    one = source(tap, config={"until": 5})
    records = run(one)
    assert [(each.topic, each.key, each.value) for each in records] == [
        *(("in.users", {"id": n}, {"id": n, "name": "u\xe9"}) for n in range(5)),
        ("in.plain", None, {"x": 0}),
    ]
    assert [each.source_offset["state"] for each in records] == [{"next": 2}] * 2 + [{"next": 4}] * 4
    assert records[0].source_partition == {"tap": "tap-test"}
    two = source(tap, [(records[3].source_partition, records[3].source_offset)], config={"until": 6})
    assert [each.value.get("id") for each in run(two)] == [4, 5, None]
    assert [each.value for each in run(two)] == [{"x": 6}]  # and again, from its state on


def test_a_tap_that_fails_says_why(tap):
    one = source(tap, config={"until": 2, "fail": 1})
    with pytest.raises(ConnectError, match="exit code 1: no such account"):
        run(one)
    with pytest.raises(ConnectError, match="no Singer message: b'not JSON'"):
        run(one := source(tap, config={"until": 2, "odd": 1}))
    one.stop()
    with pytest.raises(ConnectError, match="exit code"):
        run(source(tap, config={}))


def test_stop_ends_the_tap(tap):
    one = source(tap, config={"until": 1 << 40})
    one.poll()
    process = one.task._process
    one.stop()
    assert process.poll() is not None


def test_commands_run_only_where_the_worker_names_them(tap):
    validate = SingerSourceConnector().validate
    assert validate({"tap.command": f"{tap} --x"}) == {}
    assert list(validate({"tap.command": tap, "tap.config": "{"})) == ["tap.config"]
    for command in ("/bin/sh -c true", "tap-test", '"', " "):
        assert list(validate({"tap.command": command})) == ["tap.command"]
    limits.configure()
    with pytest.raises(ConnectError, match=r"connector\.commands\.allowed is empty"):
        source(tap, config={})
