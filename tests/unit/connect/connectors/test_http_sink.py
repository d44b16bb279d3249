import http.server
import threading

import pytest

from logdb import TopicPartition
from logdb_connect.config import ConfigError
from logdb_connect.connectors import limits
from logdb_connect.connectors.http import HttpSinkConnector
from logdb_connect.errors import ConnectError, RetriableError
from support.connect_tasks import Sink, sink_record
from support.ports import free_port

A = TopicPartition("t", 0)


class Api(http.server.ThreadingHTTPServer):
    """Keeps requests; answers with what is in ``answers``, then 200."""

    def __init__(self):
        self.seen, self.answers, self.connections = [], [], 0
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def setup(self):
        super().setup()
        self.server.connections += 1

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, body.decode(), dict(self.headers)))
        status, text = self.server.answers.pop(0) if self.server.answers else (200, "")
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(text.encode())

    do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815 http.server's names

    def log_message(self, *arguments):
        pass


@pytest.fixture
def api():
    server = Api()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def sink(api):
    opened = []

    def make(path="/hook", **more):
        given = {"http.api.url": f"http://127.0.0.1:{api.server_port}{path}", "retry.backoff.ms": "100"}
        one = Sink(HttpSinkConnector, given | {key.replace("_", "."): value for key, value in more.items()}, {})
        one.open(A)
        opened.append(one)
        return one

    yield make
    for one in opened:
        one.stop()


def log(*values, **more):
    return [sink_record(offset, value, **more) for offset, value in enumerate(values)]


def test_each_record_is_a_request(api, sink):
    one = sink(headers="X-One: 1|Accept:text/plain")
    one.put(log("a", {"b": 1}, None, "\xe9"))
    assert [each[:3] for each in api.seen] == [("POST", "/hook", "a"), ("POST", "/hook", "{b=1}"), ("POST", "/hook", "\xe9")]
    headers = api.seen[0][3]
    assert (headers["X-One"], headers["Accept"], headers["Content-Type"]) == ("1", "text/plain", "text/plain; charset=utf-8")
    assert api.connections == 1
    one.commit()
    assert one.store[A].offset == 4


def test_batches(api, sink):
    sink(request_body_format="json", batch_max_size="2", batch_json_as_array="true", request_method="PUT").put(log({"a": 1}, [2], "x"))
    assert [each[:3] for each in api.seen] == [("PUT", "/hook", '[{"a":1},[2]]'), ("PUT", "/hook", '["x"]')]
    assert api.seen[0][3]["Content-Type"] == "application/json"
    sink(batch_max_size="3", batch_prefix="<", batch_suffix=">", batch_separator=";").put(log("a", "b", "c", "d"))
    assert [each[2] for each in api.seen[2:]] == ["<a;b;c>", "<d>"]


def test_topic_and_key_in_the_url(api, sink):
    one = sink("/${topic}/${key}?k=${key}", behavior_on_null_values="delete", batch_max_size="10")
    one.put([sink_record(0, "v", key="a/b ?&\u20ac"), sink_record(1, None, key=7), sink_record(2, "v")])
    assert [each[:3] for each in api.seen] == [
        ("POST", "/t/a%2Fb%20%3F%26%E2%82%AC?k=a%2Fb%20%3F%26%E2%82%AC", "v"),
        ("DELETE", "/t/7?k=7", ""),
    ]
    assert [record.offset for record, _ in one.reported] == [2]


def test_authentication(api, sink):
    sink(auth_type="BASIC", connection_user="me", connection_password="s3cret").put(log("a"))
    sink(auth_type="BEARER", connection_password="token").put(log("a"))
    assert [each[3]["Authorization"] for each in api.seen] == ["Basic bWU6czNjcmV0", "Bearer token"]


def test_bad_records_are_reported_and_the_others_sent(api, sink):
    api.answers = [(200, ""), (400, "no good"), (302, ""), (200, "")]
    one = sink()
    one.put(log("a", "b", "c", "d"))
    assert [(record.value, str(error).partition("answered by ")[2]) for record, error in one.reported] == [
        ("b", "400 'no good'"),
        ("c", "302 ''; redirects are not followed"),
    ]
    assert [each[1:3] for each in api.seen] == [("/hook", value) for value in "abcd"]
    assert one.waited == []


@pytest.mark.parametrize("status", [500, 503, 429, 408, 0])
def test_a_request_is_repeated_and_no_other_is(api, sink, status):
    api.answers = [(200, ""), (status, "later"), (status, "later")]
    one = sink(retry_backoff_ms="100")
    for _ in range(2):
        with pytest.raises(RetriableError):
            one.put(log("a", "b", "c"))
    one.put(log("a", "b", "c"))
    assert [each[2] for each in api.seen] == ["a", "b", "b", "b", "c"]
    assert one.waited == [0.1, 0.2]
    assert one.reported == []


def test_repetitions_end(api, sink):
    api.answers = [(500, "")] * 9
    one = sink(max_retries="2")
    for _ in range(2):
        with pytest.raises(RetriableError):
            one.put(log("a"))
    with pytest.raises(ConnectError, match=r"max\.retries=2 is exhausted"):
        one.put(log("a"))
    assert len(api.seen) == 3


def test_an_api_that_is_away():
    one = Sink(HttpSinkConnector, {"http.api.url": f"http://127.0.0.1:{free_port()}/"}, {})
    one.open(A)
    with pytest.raises(RetriableError, match="refused"):
        one.put(log("a"))
    assert one.waited == [3.0]


def test_a_partition_that_comes_back_is_sent_from_its_offset_on(api, sink):
    one = sink()
    one.put(log("a", "b"))
    one.task.open([A])
    one.put(log("a", "b"))
    assert [each[2] for each in api.seen] == ["a", "b", "a", "b"]


def test_hosts_can_be_limited(api, sink):
    try:
        limits.configure(hosts=["*.example.com", "10.0.0.0/8"])
        with pytest.raises(ConnectError, match=r"may not connect to 127\.0\.0\.1: connector\.hosts\.allowed has only \*\.example\.com"):
            sink().put(log("a"))
        limits.configure(hosts=["127.0.0.0/8"])
        sink().put(log("b"))
        limits.configure(hosts=["127.0.0.1"])
        sink().put(log("c"))
    finally:
        limits.configure()
    assert [each[2] for each in api.seen] == ["b", "c"]


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"http.api.url": "ftp://x/"}, "http.api.url"),
        ({"http.api.url": "http://${topic}.example.com/"}, "http.api.url"),
        ({"http.api.url": "http://u:p@x/"}, "http.api.url"),
        ({"http.api.url": "http://x:99999/"}, "http.api.url"),
        ({"http.api.url": "http://x/\r\nEvil: 1"}, "http.api.url"),
        ({"headers": "X"}, "headers"),
        ({"headers": "X:a\nY: b"}, "headers"),
        ({"retry.on.status.codes": "5xx"}, "retry.on.status.codes"),
        ({"auth.type": "BEARER", "connection.password": "a\nb"}, "connection.password"),
    ],
)
def test_validation_names_the_property(properties, name):
    good = {"http.api.url": "http://x/"}
    assert HttpSinkConnector().validate(good) == {}
    assert list(HttpSinkConnector().validate(good | properties)) == [name]
    with pytest.raises(ConfigError):
        Sink(HttpSinkConnector, good | properties, {})
