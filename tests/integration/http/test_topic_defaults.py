"""The same ``create_topic`` means the same on a path and behind a URL; what a server adds, it says."""

import json
import subprocess
import sys

import pytest

import logdb
from support.serving import served

SEVEN_DAYS = 604_800_000
CREATE = "/logdb/v1/calls/create_topic"


def created(url: str, name: str, **given: object) -> dict[str, object]:
    with logdb.open(url) as db:
        info = db.create_topic(name, **given)
        assert db.describe_topic(name).config == info.config
        return dict(info.config)


def v3(server, name: str, config: list[dict[str, object]]) -> None:
    cluster = server.call("/v3/clusters")[1]["data"][0]["cluster_id"]
    status, body = server.call(f"/v3/clusters/{cluster}/topics", {"topic_name": name, "configs": config})
    assert status == 201, body


def test_the_client_s_call_is_that_on_a_path(tmp_path):
    with served(tmp_path / "db") as server:
        assert created(server.url, "a") == dict(server.database.create_topic("b").config) == {}
        assert created(server.url, "c", config={"retention.ms": 5}) == {"retention.ms": 5}
        assert created(server.url, "d", config={"retention.ms": None, "segment.bytes": 5000}) == {"segment.bytes": 5000}
        assert dict(server.database.create_topic("e", config={"retention.ms": None}).config) == {}
        with pytest.raises(logdb.errors.InvalidConfig, match=r"no\.such"):
            created(server.url, "f", config={"no.such": None})


def test_others_get_what_kafka_s_users_expect(tmp_path):
    with served(tmp_path / "db") as server:
        assert dict(server.call(CREATE, {"name": "a"})[1]["config"]) == {"retention.ms": SEVEN_DAYS}
        assert dict(server.call(CREATE, {"name": "b", "config": [["retention.ms", None]]})[1]["config"]) == {}
        v3(server, "c", [])
        assert server.database.describe_topic("c").config == {"retention.ms": SEVEN_DAYS}


@pytest.mark.parametrize("told", [{"retention.ms": 1000}, {"retention.ms": -1}, {"retention.ms": 1000, "segment.bytes": 5000}], ids=str)
def test_what_a_server_was_told_holds_for_all_who_do_not_say(told, tmp_path):
    with served(tmp_path / "db", topic_config=told) as server:
        assert created(server.url, "a") == dict(server.call(CREATE, {"name": "b"})[1]["config"]) == told
        v3(server, "c", [])
        assert server.database.describe_topic("c").config == told
        assert created(server.url, "d", config={"retention.ms": 7})["retention.ms"] == 7
        assert created(server.url, "e", config={"retention.ms": None}) == told
        assert dict(server.database.create_topic("of the owner".replace(" ", "-")).config) == {}


def logdb_command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "logdb.cli", *words], capture_output=True, text=True, timeout=60, check=True)


def test_the_command_tells_what_was_not_asked_for(tmp_path):
    with served(tmp_path / "db", topic_config={"retention.ms": 1000}) as server:
        told = logdb_command("topics", "create", "a", "-b", server.url).stderr
        assert told == "created topic a, with other configs: retention.ms=1000\n"
        assert logdb_command("topics", "create", "b", "-b", server.url, "-c", "retention.ms=5").stderr == "created topic b\n"
        said = json.loads(logdb_command("topics", "create", "c", "-b", server.url, "--json").stdout)
        assert said == {"topic": "c", "config": {"retention.ms": 1000}}
        assert "retention.ms=1000" in logdb_command("topics", "describe", "a", "-b", server.url).stdout
