"""The routes of the page's tab Connect: what a worker says, who may change it, and workers that are hostile or away."""

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import logdb
from logdb.requests.acls import Acl
from logdb.requests.principals import Principal
from logdb_http_api.door import connect_worker
from logdb_http_api.door.connect_worker import ConnectWorker
from support.certificates import Authority
from support.connect_plugins import Scripted
from support.connect_workers import standalone, written
from support.ports import free_port
from support.serving import served
from support.waiting import until

PATH = "/logdb/v1/connect/connectors"
PLUGINS = "support.connect_plugins:"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
COUNTER = {"connector.class": f"{PLUGINS}CounterConnector", "topic": "numbers", "limit": "10"}


def listed(server):
    status, document = server.call(PATH)
    assert status == 200, document
    return {one["name"]: one for one in document["connectors"]}


def states(server, name):
    one = listed(server).get(name)
    return one and [one["state"], *(task["state"] for task in one["tasks"])]


def test_states_traces_and_changes(tmp_path):
    Scripted.kept.clear(), Scripted.calls.clear()
    Scripted.failures[:] = [ValueError("<b>poison</b>")]
    name = "a/b?c#d %2e"
    sink = {"name": "sink", "connector.class": f"{PLUGINS}ScriptedConnector", "topics": "numbers", "password": "hush-hush"}
    url = f"http://127.0.0.1:{free_port()}"
    with served(tmp_path / "db", connect_url=url) as server, standalone(server.url, tmp_path, sink, listeners=url) as rest:
        rest.port = int(url.rpartition(":")[2])
        assert rest.call("POST", "/connectors", {"name": name, "config": COUNTER})[0] == 201
        until(lambda: states(server, "sink") == ["RUNNING", "FAILED"])
        failed = listed(server)["sink"]
        assert failed["type"] == "sink" and "<b>poison</b>" in failed["tasks"][0]["trace"]
        assert "hush-hush" not in json.dumps(listed(server)), "configs are the worker's"
        assert server.call(f"{PATH}/sink/tasks/0/restart", method="POST")[0] == 204
        until(lambda: states(server, "sink") == ["RUNNING", "RUNNING"])
        quoted = "a%2Fb%3Fc%23d%20%252e"
        for action, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("restart", "RUNNING")):
            assert server.call(f"{PATH}/{quoted}/{action}", method="POST")[0] == 204
            until(lambda state=state: states(server, name) == [state, state])
        for path, status in (
            (f"{PATH}/nobody/pause", 404), (f"{PATH}/sink/tasks/7/restart", 404), (f"{PATH}/sink/delete", 422),
            (f"{PATH}/sink/tasks/x/restart", 422), (f"{PATH}/%2e%2e/restart", 404), (f"{PATH}/..%2f..%2fadmin/pause", 404),
        ):  # fmt: skip
            assert server.call(path, method="POST")[0] == status, path
        assert states(server, "sink") == ["RUNNING", "RUNNING"]


def test_a_server_that_knows_no_worker(tmp_path):
    with served(tmp_path / "db") as server:
        assert server.call(PATH) == (200, {"worker": None, "connectors": []})
        status, answer = server.call(f"{PATH}/x/pause", method="POST")
        assert status == 404 and "--connect-url" in answer["message"]


def test_a_worker_behind_tls_is_trusted_by_its_authority_alone(tmp_path):
    authority, port = Authority(tmp_path / "ca"), free_port()
    files = authority.server()
    (tmp_path / "credentials").write_text("ann:secret")
    worker = {
        "listeners": f"https://127.0.0.1:{port}",
        "rest_ssl_certfile": str(files.cert),
        "rest_ssl_keyfile": str(files.key),
        "rest_users_file": written(tmp_path / "users", {"ann": "secret"}),
    }
    options = {"connect_url": f"https://127.0.0.1:{port}/", "connect_credentials": str(tmp_path / "credentials")}
    with (
        served(tmp_path / "db", connect_ca=str(authority.file), **options) as server,
        standalone(server.url, tmp_path, {**COUNTER, "name": "one"}, **worker),
        logdb.serve(server.database, http="127.0.0.1:0", **options) as careful,
    ):
        until(lambda: states(server, "one") == ["RUNNING", "RUNNING"])
        status, answer = server._replace(url=careful.addresses[0]).call(PATH)
        assert status == 502 and "CERTIFICATE_VERIFY_FAILED" in answer["message"]


def test_reading_and_changing_need_rights_and_the_page_itself(tmp_path):
    (tmp_path / "credentials").write_text("server:hush-hush\n")
    config = {**COUNTER, "name": "one"}
    with served(tmp_path / "db") as server:
        server.database.security.add_user("admin", "correct horse", super_user=True)
        for user in ("alice", "bob"):
            server.database.security.add_user(user, "battery staple")
        server.database.security.add_acls(Acl(Principal("User", "bob"), "*", "Describe", "Allow", "Cluster", "Literal", "kafka-cluster"))
        port = free_port()
        worker = {
            "listeners": f"http://127.0.0.1:{port}",
            "rest_users_file": written(tmp_path / "users", {"server": "hush-hush"}),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_jaas_config": f'{PLAIN} required username="admin" password="correct horse";',
        }
        options = {"connect_url": f"http://127.0.0.1:{port}", "connect_credentials": str(tmp_path / "credentials")}
        with (
            standalone(server.url, tmp_path, config, **worker),
            logdb.serve(server.database, http="127.0.0.1:0", **options) as asking,
        ):
            there = server._replace(url=asking.addresses[0])
            admin = there.by("admin", "correct horse")
            alice, bob = (there.by(name, "battery staple") for name in ("alice", "bob"))
            until(lambda: states(admin, "one") == ["RUNNING", "RUNNING"])
            for asked, reads, changes in ((there, 401, 401), (alice, 403, 403), (bob, 200, 403), (admin, 200, 204)):
                assert asked.call(PATH)[0] == reads
                assert asked.call(f"{PATH}/one/pause", method="POST")[0] == changes
                assert asked.call(f"{PATH}/one/tasks/0/restart", method="POST")[0] == changes
            assert admin.call(f"{PATH}/one/pause", method="POST", headers={"Origin": "http://evil.example"})[0] == 403
            (tmp_path / "credentials").write_text("server:wrong\n")
            with logdb.serve(server.database, http="127.0.0.1:0", **options) as refused:
                status, answer = admin._replace(url=refused.addresses[0]).call(PATH)
                assert status == 502 and "refuses this server (401)" in answer["message"]


@contextlib.contextmanager
def answering(status, headers, body):
    """A worker that answers anything in one way; the paths that it was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        do_POST = do_PUT = do_GET  # noqa: N815 -- names of http.server

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


FINE = {"connector": {"state": "RUNNING", "worker_id": "w"}, "tasks": [], "type": "source"}


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (200, {}, b"<html>"),
        (200, {}, b"[" * 100_000),
        (200, {}, b"[]"),
        (200, {}, b'{"a": {"status": {"connector": 7}}}'),
        (200, {}, json.dumps({"a": {"status": {**FINE, "tasks": [{"id": "x", "state": "RUNNING"}]}}}).encode()),
        (200, {}, json.dumps({"a": {"status": {**FINE, "tasks": [{"id": float("inf"), "state": "RUNNING"}]}}}).encode()),
        (200, {}, b'"' + b"x" * (5 << 20) + b'"'),
        (200, {"Content-Length": "1000"}, b"{"),
        (500, {}, b'{"message": ["not text"]}'),
        (403, {}, b"{}"),
        (302, {"Location": "/elsewhere"}, b""),
    ],
)
def test_what_is_no_answer_of_a_worker_is_an_error(tmp_path, status, headers, body):
    with answering(status, headers, body) as (url, asked), served(tmp_path / "db", connect_url=url) as server:
        for _ in range(6):  # what was taken for an answer is given back
            found, answer = server.call(PATH)
            assert found == 502 and url in answer["message"]
        assert set(asked) == {"/connectors?expand=status"}, "nothing else is asked, and no redirect is followed"


def test_long_texts_of_a_worker_are_cut(tmp_path):
    trace = {"state": "FAILED", "worker_id": "w", "trace": "x" * 100_000 + "the end"}
    body = json.dumps({"a": {"status": {**FINE, "connector": trace}}}).encode()
    with answering(200, {}, body) as (url, _), served(tmp_path / "db", connect_url=url) as server:
        shown = listed(server)["a"]["trace"]
        assert shown.endswith("the end") and len(shown) == 20_000
    with answering(409, {}, json.dumps({"message": "y" * 100_000}).encode()) as (url, _), served(tmp_path / "c", connect_url=url) as server:
        status, answer = server.call(f"{PATH}/a/pause", method="POST")
        assert status == 409 and len(answer["message"]) == 2_000


def test_a_worker_that_is_away_or_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(connect_worker, "_TIMEOUT_S", 0.5)
    with served(tmp_path / "db", connect_url=f"http://127.0.0.1:{free_port()}") as server:
        assert server.call(PATH)[0] == 502
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        served(tmp_path / "silent", connect_url=f"http://127.0.0.1:{silent.getsockname()[1]}") as server,
    ):
        assert server.call(PATH)[0] == 504
        status, answer = server.call(f"{PATH}/a/pause", method="POST")
        assert status == 504 and "may have done this" in answer["message"]
        assert server.call("/health/ready")[0] == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("ftp://127.0.0.1:8083",), "must be http://HOST:PORT"),
        (("127.0.0.1:8083",), "must be http://HOST:PORT"),
        (("http://127.0.0.1:99999",), "must be http://HOST:PORT"),
        (("http://127.0.0.1:8083/?x=1",), "must be http://HOST:PORT"),
        (("http://user:hush-hush@127.0.0.1:8083",), "connect_credentials"),
        (("http://worker.example:8083", "{file}"), "needs https"),
        (("http://127.0.0.1:8083", "{empty}"), "must be USER:PASSWORD"),
        (("http://127.0.0.1:8083", None, "{file}"), "needs https"),
        (("http://127.0.0.1:8083", "/no/such"), "connect_credentials=/no/such: No such file"),
        (("https://127.0.0.1:8083", None, "/no/such"), "connect_ca=/no/such: No such file"),
        (("https://127.0.0.1:8083", None, "{file}"), "connect_ca=.*certificate"),
    ],
)
def test_wrong_options(tmp_path, options, message):
    (tmp_path / "file").write_text("a:hush-hush")
    (tmp_path / "empty").write_text("")
    given = [one and one.format(file=tmp_path / "file", empty=tmp_path / "empty") for one in options]
    with pytest.raises(ValueError, match=message) as error:
        ConnectWorker(*given)
    assert "hush-hush" not in str(error.value)
