"""``logdb serve --temporary``: a Kafka for tests of any language.  It leaves nothing behind, whatever ends it."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer

from support.waiting import until

COMMAND = [sys.executable, "-m", "logdb.cli", "serve", "--temporary", "--json"]


@contextmanager
def temporary(tmp_path, *flags, **variables):
    environment = {**os.environ, "TMPDIR": str(tmp_path), **variables}
    process = subprocess.Popen([*COMMAND, *flags], stdout=subprocess.PIPE, env=environment, cwd=tmp_path)
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()


def left(tmp_path):
    return [*tmp_path.glob("logdb-*")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_topics_come_on_demand_and_nothing_stays(tmp_path, number):
    with temporary(tmp_path, "--kafka", "127.0.0.1:0") as (process, said):
        assert said["addresses"] == [said["kafka"]]
        assert len(left(tmp_path)) == 1
        producer = Producer({"bootstrap.servers": said["kafka"]})
        producer.produce("orders", b"one")
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": said["kafka"], "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        assert consumer.poll(30).value() == b"one"
        consumer.close()
        process.send_signal(number)
        process.wait(30)
        assert process.stdout.read() == b""  # the watching shell holds no pipe of ours
    until(lambda: left(tmp_path) == [], "the directory is there")


def test_both_protocols_without_a_flag(tmp_path):
    with temporary(tmp_path) as (_process, said):
        assert said["http"].startswith("http://127.0.0.1:")
        assert said["kafka"].startswith("127.0.0.1:")


def test_it_serves_no_directory_of_anybody(tmp_path):
    (tmp_path / "logdb.toml").write_text(f'data_dir = "{tmp_path}/mine"\nhttp = "127.0.0.1:1"\n')
    with temporary(tmp_path, LOGDB_DATA_DIR=str(tmp_path / "mine")) as (_process, said):
        assert not said["http"].endswith(":1")
    assert not (tmp_path / "mine").exists()
    for flags in (["mine"], ["--data-dir", "mine"], ["--cluster", "c.toml"]):
        run = subprocess.run([*COMMAND, *flags], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert run.returncode == 2 and "--temporary makes a directory of its own" in run.stderr
