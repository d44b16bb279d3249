"""Spark reads Iceberg tables of topics through the REST catalogue: each row is that of the log."""

import base64
import datetime
import json
import os
import subprocess
from pathlib import Path

import pytest

import logdb
from benches.peers.kafka.jars import ICEBERG
from benches.peers.spark import environment
from support.iceberg import killed_commits, logged
from support.security import secure
from support.serving import served

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(900)]
pytest.importorskip("pyiceberg")

CONFIG = {"segment.bytes": 2_000, "logdb.iceberg.mode": "key_value", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 1}
PASSWORD = "correct horse"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Spark:
    """One Spark, that answers questions line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        jars = ",".join(map(str, ICEBERG.directory.glob("*.jar")))
        self._send({"jars": jars})

    def _send(self, request) -> None:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def ask(self, url, table="t", **more):
        self._send({"uri": f"{url}/iceberg", "table": table} | more)
        return json.loads(self._process.stdout.readline())

    def rows(self, url, **more):
        """As ``logged`` gives them."""
        found = {}
        for row in self.ask(url, **more)["rows"]:
            place = row["partition"], row["offset"]
            assert place not in found, place
            headers = [(one["key"], decoded(one["value"])) for one in row["headers"] or ()] or None
            time = EPOCH + datetime.timedelta(microseconds=row["micros"])
            found[place] = row["topic"], decoded(row["key"]), decoded(row["value"]), time, row["timestampType"], headers
        return found


def decoded(text):
    return None if text is None else base64.b64decode(text)


@pytest.fixture(scope="module")
def spark():
    for reason in (ICEBERG.missing(), environment.missing(environment.ICEBERG)):
        if reason is not None:
            pytest.skip(reason)
    python = environment.python(environment.ICEBERG)
    program = str(Path(__file__).with_name("spark_iceberg.py"))
    own = os.environ | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen([python, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own) as process:
        yield Spark(process)
        process.stdin.close()


def fill(db, count=60):
    for partition in (0, 1):
        first = db.log("t", partition).end_offset
        numbers = range(first, first + count)
        db.log("t", partition).append_many(
            [None if n % 9 == 0 else b"value %d" % n for n in numbers],
            [b"key %d" % (n % 25) for n in numbers],
            headers=[[("h", b"1"), ("i", None)][: n % 3] for n in numbers],
        )


@pytest.mark.parametrize("users", [False, True])
def test_the_rows_are_those_of_the_log(tmp_path, spark, users):
    with logdb.open(tmp_path / "db", batch_size=300) as db:
        db.create_topic("t", partitions=2, config=CONFIG)
        db.create_topic("secret", config=CONFIG)
    if users:
        secure(tmp_path / "db", "Allow reader@* Read Topic t", users={"reader": PASSWORD, "root": PASSWORD}, super_users=["root"])
    with served(tmp_path / "db", opened={"batch_size": 300}) as s:
        db = s.database
        token = db.security.create_token("for Spark", "reader")[0] if users else None
        if users:
            assert "NotAuthorized" in spark.ask(s.url, token="wrong")["error"]
            assert "Forbidden" in spark.ask(s.url, "secret", token=token)["error"]
        for change in (
            lambda: fill(db),
            lambda: fill(db),
            lambda: db.compact("t"),
            lambda: (fill(db), db.delete_records("t", 0, 130)),
            lambda: (db.compact("t"), db.delete_records("t", 1, 170)),
        ):
            change()
            db.update_iceberg("t")
            expected = logged(db)
            assert len(expected) > 25
            assert spark.rows(s.url, token=token) == expected
        chosen = spark.rows(s.url, token=token, where="partition = 1 and offset >= 175")
        assert chosen == {place: row for place, row in expected.items() if place[0] == 1 and place[1] >= 175} != {}


@pytest.mark.timeout(3600)
def test_a_kill_at_each_step_of_a_commit(tmp_path, spark):
    path, step, goes_on, before = tmp_path / "db", 0, True, None
    with logdb.open(path, batch_size=300) as db:
        db.create_topic("t", partitions=2, config=CONFIG)
        fill(db, 10)
    with killed_commits() as killed:
        while goes_on:
            with served(path, opened={"batch_size": 300}) as s:
                if before is not None:
                    found = spark.rows(s.url)
                    ends = {partition: 1 + max(offset for number, offset in found if number == partition) for partition in (0, 1)}
                    assert found in (before, logged(s.database, ends=ends)), step
                    assert max(found) >= max(before), step
                s.database.update_iceberg("t")
                before = logged(s.database)
                fill(s.database, 20)
                s.database.compact("t")
            step += 1
            goes_on = killed(str(path), step)
    assert step > 25
