"""``logdb serve`` as a shell sees it: what it prints, what it reads, how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb.cli.serving import serve
from support.server_process import ServerProcess, server_process
from support.wire import wire

LOGDB = (sys.executable, "-m", "logdb.cli")
JSON = {"Content-Type": "application/json"}


def run(*args, cwd=None, **variables):
    return subprocess.run([*LOGDB, "serve", *args], cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"])
def test_an_open_address_is_refused_before_anything_is_made(tmp_path, address):
    done = run(str(tmp_path / "db"), "--http", address)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--insecure" in done.stderr
    assert address in done.stderr
    assert not (tmp_path / "db").exists()


def test_what_an_open_address_lacks_is_said(tmp_path):
    certificate = trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem
    certificate.write_to_path(str(tmp_path / "cert.pem"))
    with_neither = run(str(tmp_path / "db"), "--http", "0.0.0.0:0")
    with_tls = run(str(tmp_path / "db"), "--http", "0.0.0.0:0", "--tls-cert", str(tmp_path / "cert.pem"))
    assert (with_neither.returncode, with_tls.returncode) == (2, 2)
    assert "lacks TLS (--tls-cert) and authentication" in with_neither.stderr
    assert "lacks authentication (on once there is a user: logdb users add" in with_tls.stderr


def test_a_directory_that_is_open_names_its_process(tmp_path):
    with logdb.open(tmp_path / "db"):
        done = run(str(tmp_path / "db"), "--http", "127.0.0.1:0")
    assert done.returncode == 2
    assert f"is open for writing in process {os.getpid()}" in done.stderr
    assert "; stop that process, or if it is a server use its address\n" in done.stderr


def test_it_prints_where_it_listens(tmp_path):
    process = subprocess.Popen(
        [*LOGDB, "--json", "serve", str(tmp_path / "db"), "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    said = json.loads(process.stdout.readline())
    assert said["pid"] == process.pid
    with wire(said["addresses"][0]) as line:
        assert line.ask("GET", "/health/ready").status == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert process.stdout.read() == ""
    process.stdout.close()


def test_it_raises_the_limit_of_open_files(tmp_path):
    """A shell's soft limit is often smaller than the number of connections and files."""
    command = [*LOGDB, "serve", str(tmp_path / "db"), "--http", "127.0.0.1:0"]
    with subprocess.Popen(["sh", "-c", 'ulimit -Sn 256 && exec "$@"', "sh", *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().startswith("http://")
            limits = Path(f"/proc/{process.pid}/limits").read_text(encoding="ascii")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    soft, hard = re.search(r"Max open files +(\S+) +(\S+)", limits).groups()
    assert int(soft) == (1 << 20 if hard == "unlimited" else min(int(hard), 1 << 20))


def test_a_flag_goes_before_a_variable_before_the_file(tmp_path, monkeypatch):
    (tmp_path / "logdb.toml").write_text(
        'body_bytes_max = 10\njson_bytes_max = 10\n[topic]\n"retention.ms" = 1\n"flush.ms" = 2\n', encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGDB_JSON_BYTES_MAX", "1000")
    monkeypatch.setenv("LOGDB_BODY_BYTES_MAX", "20")
    monkeypatch.setenv("LOGDB_TOPIC_CONFIG", "flush.ms=3,segment.bytes=4000")
    with (
        server_process(tmp_path / "db", "--body-bytes-max", "30", "--topic-config", "segment.bytes=5000") as server,
        wire(server.url) as line,
    ):
        said = line.ask("POST", "/logdb/v1/calls/create_topic", b'{"name":"t"}', JSON)
        assert dict(said.json["config"]) == {"retention.ms": 1, "flush.ms": 3, "segment.bytes": 5000}
        said = line.ask("POST", "/logdb/v1/topics/t/partitions/0/batches", bytes(31), {"Content-Type": "application/vnd.logdb.batches"})
        assert said.json["message"] == "the body has 31 bytes: must be at most 30"


@pytest.mark.parametrize(
    ("args", "variables", "said"),
    [
        ((), {}, "name a database"),
        (("db", "--http", "127.0.0.1"), {}, "must be host:port"),
        (("db", "--http", "http://localhost:8082"), {}, "localhost:8082 is one"),
        (("db", "--http", "https://localhost:8082/"), {}, "localhost:8082 is one"),
        (("db", "--http", ":8081"), {}, "127.0.0.1:8081, for this machine alone, is one; 0.0.0.0:8081, for all, is one"),
        (("db", "--http", "8081"), {}, "127.0.0.1:8081"),
        (("db", "--http", "localhost"), {}, "localhost:8080 is one"),
        (("db", "--kafka", "localhost"), {}, "localhost:9092 is one"),
        (("db", "--http", "::1:8081"), {}, "[::1]:8081 is one"),
        (("db", "--kafka", "nosuch.invalid:9092"), {}, "address 'nosuch.invalid:9092': the name nosuch.invalid does not resolve: "),
        (("db", "--http", "localhost:99999"), {}, "the port in [0, 65535]\n"),
        (("db", "--http", "localhost:http"), {}, "must be host:port"),
        (("db",), {"LOGDB_HTTP": ":8081"}, "127.0.0.1:8081"),
        (("db", "--port", "8081"), {}, "--http 127.0.0.1:8081"),
        (("db", "--host", "0.0.0.0"), {}, "--http 0.0.0.0:8080"),
        (("db", "--host", "0.0.0.0"), {}, "or --kafka 0.0.0.0:9092"),
        (("db", "--listen", "localhost:9"), {}, "--http localhost:9"),
        (("db", "--drain-ms", "x"), {}, "drain-ms"),
        (("db", "--body-bytes-max", "0"), {}, "body_bytes_max=0"),
        (("db", "--topic-config", "no.such=1"), {}, "no.such"),
        (("db", "--config", "nosuch.toml"), {}, "nosuch.toml"),
        (("db",), {"LOGDB_DURABILITY": "maybe"}, "LOGDB_DURABILITY"),
    ],
)
def test_a_wrong_call(tmp_path, monkeypatch, args, variables, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(serve, "take_descriptors", lambda: None)  # this process keeps its limit
    done = CliRunner().invoke(cli, ["serve", *args], env=variables, catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_what_kafka_s_file_says_in_vain_is_told(tmp_path):
    (tmp_path / "server.properties").write_text("log.dirs=db\nnum.io.threads=8\nadvertised.listeners=PLAINTEXT://x:1\n", encoding="utf-8")
    done = run("--config", "server.properties", "--http", "0.0.0.0:1", cwd=tmp_path)
    assert "server.properties: no effect here: num.io.threads" in done.stderr


LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 (\w+) ([\w.]+): (.*)")


@pytest.mark.parametrize("as_json", [False, True])
def test_all_that_it_logs_has_time_and_level(tmp_path, as_json):
    """What recovery found, too, and once."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"x"])
    (log,) = (tmp_path / "db").glob("t-0/*.log")
    server = ServerProcess(tmp_path / "db")
    with logdb.open(server.url) as db:
        db.log("t").append_many([b"y" * 1000])
    server.kill()
    os.truncate(log, log.stat().st_size - 1)
    process = subprocess.Popen(
        [*LOGDB, "serve", str(tmp_path / "db"), "--http", "127.0.0.1:0", *(["--json"] if as_json else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    address = process.stdout.readline()
    url = json.loads(address)["addresses"][0] if as_json else address.strip()
    with logdb.open(url) as db:
        assert db.log("t").end_offset == 1
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    if as_json:
        found = [tuple(json.loads(line)[name] for name in ("level", "logger", "message")) for line in err.splitlines()]
    else:
        found = [LINE.fullmatch(line).groups() for line in err.splitlines()]
    assert sum(level == "WARNING" and "ends at offset 1" in message for level, _, message in found) == 1, found


def test_an_idle_server_is_small(tmp_path, record_property):
    with server_process(tmp_path / "db") as server, wire(server.url) as line:
        assert line.ask("GET", "/health/ready").status == 200
        record_property("told", f"an idle server: {server.rss_bytes >> 20} MiB")
        assert server.rss_bytes < 64_000_000
