"""kafkajs and franz-go from their packages, on a broker for tests: what applications do with them, program and answers beside this file.

Skipped, with the reason, where Node or Go are missing.
"""

import json
import subprocess

import pytest

import logdb.testing
from logdb.codec import convert
from logdb.codec.batch import CODEC_MASK
from logdb.model import COMPRESSION_TYPES
from support.franz_go import franz_go
from support.kafkajs import kafkajs

pytestmark = pytest.mark.foreign
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = [
    {"key": "k", "value": "value", "headers": [["h", "1"], ["i", ""]], "timestamp": 1_700_000_000_000},
    {"key": None, "value": "no key", "headers": [], "timestamp": 1_700_000_000_001},
    {"key": "k", "value": None, "headers": [], "timestamp": 1_700_000_000_002},  # a tombstone
    *({"key": str(i), "value": "x" * 100, "headers": [], "timestamp": 1_700_000_000_003 + i} for i in range(200)),
]


@pytest.fixture(scope="module", params=[kafkajs, franz_go], ids=lambda client: client.__name__)
def command(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def broker():
    with logdb.testing.broker() as running:
        yield running


@pytest.fixture
def run(broker, command, topic):
    """Run a task of the program; what it has seen."""

    def run(task, *arguments, **options):
        call = [*command, broker.bootstrap_servers, task, topic, *arguments]
        done = subprocess.run(call, capture_output=True, text=True, timeout=60, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize("codec", CODECS)
def test_records(broker, topic, run, codec):
    assert run("records", codec, input=json.dumps(RECORDS)) == RECORDS
    log = broker.database.log(topic)
    assert [(one.key, one.value, one.timestamp_ms) for one in log.read(0)] == [
        (*(text and text.encode() for text in (one["key"], one["value"])), one["timestamp"]) for one in RECORDS
    ]
    batches, _ = log.read_batches(0)
    assert {COMPRESSION_TYPES[header.attributes & CODEC_MASK] for _, header in convert.headers(batches)} == {codec}


def test_a_member_leaves_its_group(broker, topic, run):
    broker.database.create_topic(topic, partitions=4)
    for partition in range(4):
        broker.database.log(topic, partition).append_many([b"%d" % number for number in range(partition, 40, 4)])
    seen = run("group")
    assert seen["values"] == sorted([*map(str, range(40)), *(f"late {partition}" for partition in range(4))])
    ((state, protocol, members),) = seen["groups"]
    assert (state, members) == ("Stable", 1)
    assert protocol
    assert sum(offset.offset for offset in broker.database._session.fetch_offsets("g").values()) == 44
    broker.database.delete_group("g")


def test_transactions(broker, topic, run):
    for name in (topic, f"{topic}-through"):
        broker.database.create_topic(name)
    seen = run("transactions")
    assert seen["committed"] == ["0", "2", "idempotent"]
    assert seen["uncommitted"] == ["0", "1", "2", "idempotent"]


def test_administration(broker, run, command):
    seen = run("admin")
    wanted = {"partitions": 3, "retention": ["5000", "6000"], "end": 3, "at": 1, "groups": ["read"], "committed": 3, "begin": 1}
    if command[0] == "node":
        wanted |= {"created": True, "again": False, "deleted": 0}
    else:
        wanted |= {"again": "TOPIC_ALREADY_EXISTS", "latest": 2, "left offsets": 1, "deleted": "<nil>"}
        assert seen.pop("size") > 0
    assert seen == wanted | {
        "left": False,
        "cluster": [sorted(broker.bootstrap_servers.split(",")), True, broker.database._session.metadata.database_id],
    }
