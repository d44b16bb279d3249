"""Answers that no server of logdb gives: each is a named error, and none makes the client wait, or believe it."""

import contextlib
import json
import socket
import threading

import pytest

import logdb
from logdb.errors import AuthenticationFailed, InvalidAnswer, LogdbError, ServerUnavailable, UnknownTopic
from logdb_http_api.remote.batch_requests import FetchRequest
from logdb_http_api.remote.connection import Security
from logdb_http_api.remote.connections import Connections
from support.batches import encode_log

TOPIC = {"name": "t", "topic_id": "i", "partition_count": 1, "config": [], "internal": False, "partitions": []}


def plain(body, status="200 OK", **headers):
    named = (f"{name.replace('_', '-')}: {value}" for name, value in headers.items())
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *named]).encode() + b"\r\n\r\n" + body


def said(value, status="200 OK"):
    return plain(json.dumps(value).encode(), status)


class Liar:
    """Answers each request with what it was told to say for that path; ``None``: cuts the connection."""

    def __init__(self):
        refused = said({"error_code": 426, "message": "no"}, "426 Upgrade Required")  # so that batches are HTTP, too
        self.answers = {"/logdb/v1/kafka": refused, "/logdb/v1/partitions": said([]), "describe_topic": said(TOPIC)}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, client.makefile("rb") as lines:
                    while request := lines.readline():
                        length = 0
                        while (line := lines.readline().strip()) != b"":
                            if line.lower().startswith(b"content-length:"):
                                length = int(line.split(b":")[1])
                        lines.read(length)
                        answer = next(answer for path, answer in self.answers.items() if path.encode() in request.split(b"?")[0].rstrip())
                        if answer is None:
                            break
                        client.sendall(answer)
                        if b"Content-Length" not in answer:
                            break

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def liar():
    liar = Liar()
    yield liar
    liar.close()


@pytest.fixture
def db(liar):
    with logdb.open(liar.url, timeout_ms=600) as db:
        yield db


BATCH = encode_log([[b"a", b"b", b"c"]])
FETCH = {"Logdb_Next_Offset": 3, "Logdb_Readable_End_Offset": 3}


@pytest.mark.parametrize(
    "answer",
    [
        plain(b"<html>it works</html>"),
        said([{"name": "t"}]),
        said([TOPIC | {"partition_count": "three"}]),
        said({"topics": []}),
        said(None),
        plain(b"[" * 100_000),
        plain(b"\xff\xfe"),
        plain(b"<html>gone</html>", "502 Bad Gateway"),
        plain(b"[]", "404 Not Found"),
    ],
    ids=lambda answer: repr(answer[-30:]),
)
def test_no_list_of_topics(liar, db, answer):
    liar.answers["topics"] = answer
    with pytest.raises(InvalidAnswer, match=liar.url):
        db.topics()


def test_a_server_of_a_later_version_may_say_more(liar, db):
    liar.answers["topics"] = said([TOPIC | {"surprise": {"of": 1}}])
    assert [topic.name for topic in db.topics()] == ["t"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
    ],
    ids=lambda answer: repr(answer)[:30],
)
def test_no_answer_at_all(liar, db, answer):
    liar.answers["topics"] = answer
    with pytest.raises(ServerUnavailable, match=liar.url):
        db.topics()


def test_an_answer_without_end(liar, db):
    liar.answers["topics"] = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"
    with pytest.raises(InvalidAnswer, match="99999999999 bytes"):
        db.topics()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"message": "gone", "error": "UnknownTopic", "fields": {"topic": "t", "retriable": True, "__class__": 1}}, UnknownTopic),
        ({"error_code": 40401, "message": "gone", "error": "SystemExit", "fields": {}}, InvalidAnswer),
        ({"error_code": 40401, "message": "gone", "error": "LogdbError", "fields": 7}, LogdbError),
        ({"message": "who are you"}, InvalidAnswer),
        ({}, InvalidAnswer),
    ],
)
def test_refusals(liar, db, body, error):
    liar.answers["topics"] = said(body, "404 Not Found")
    with pytest.raises(error) as raised:
        db.topics()
    assert type(raised.value) is error
    assert raised.value.retriable is False


def test_a_refusal_that_does_not_say_why(liar, db):
    liar.answers["topics"] = said({"error_code": 40101, "message": "no"}, "401 Unauthorized")
    with pytest.raises(AuthenticationFailed):
        db.topics()


@pytest.mark.parametrize(
    "answer",
    [
        plain(BATCH),
        plain(BATCH, **FETCH | {"Logdb_Next_Offset": -3}),
        plain(BATCH, **FETCH | {"Logdb_Next_Offset": "9" * 40}),
        plain(BATCH, **FETCH | {"Logdb_Next_Offset": 2}),
        plain(BATCH, **FETCH | {"Logdb_Next_Offset": 0}),
        plain(BATCH[:-1], **FETCH),
        plain(BATCH[:-1] + b"x", **FETCH),
        plain(BATCH + b"more", **FETCH),
        plain(b"", **FETCH),
        plain(b"", Logdb_Next_Offset=0, Logdb_Readable_End_Offset=3),
        plain(b"x" * 200, **FETCH),
        plain(encode_log([[b"a", b"b", b"c"]], base_offset=7), Logdb_Next_Offset=10, Logdb_Readable_End_Offset=10),
    ],
    ids=range(12),
)
def test_no_batches(liar, db, answer):
    liar.answers["/batches"] = answer
    with pytest.raises(InvalidAnswer, match=liar.url):
        list(db.log("t").read(0))


def test_batches_that_are_good(liar, db):
    liar.answers["/batches"] = plain(BATCH, **FETCH)
    assert [record.value for record in db.log("t").read(0)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "answer",
    [
        said({"base_offset": 0, "next_offset": 5}),
        said({"base_offset": 0}),
        said([0, 1]),
        said({"base_offset": 0.5, "next_offset": 1}),
    ],
)
def test_offsets_that_cannot_be(liar, db, answer):
    liar.answers |= {"init_producer_id": said({"producer_id": 1, "producer_epoch": 0}), "/batches": answer}
    with pytest.raises(InvalidAnswer):
        db.log("t").append(b"x")


def test_a_record_whose_fate_is_not_known_is_not_taken_for_another(liar, db):
    """After an append that may be in the log or not, the next one has another producer: it is no duplicate of the first."""
    liar.answers |= {"init_producer_id": said({"producer_id": 1, "producer_epoch": 0}), "/batches": None}
    log = db.log("t")
    with pytest.raises(ServerUnavailable):
        log.append(b"x")
    assert log._identity._producer is None


@pytest.mark.parametrize(
    "named", ["a b:1", "[::1", "x:99999999", "x/?y=1:1", "x/y:1", "u:p@h:1", "\ud800:1", "a" * 80 + ":1", ":1", "a..b:9", "a\0b:9"]
)
def test_a_place_that_is_no_server_is_none(named):
    connections = Connections(["http://127.0.0.1:1"], Security(), timeout_ms=600, connect_timeout_ms=600, rack="r")
    connections.learn("t", "b:9")
    assert connections.follower(named) is None
    assert (connections.learn("t", named), connections.leaders) == (None, {})


@pytest.mark.parametrize("how", ["place", "upgrade", "answer"])
def test_a_reader_whose_leader_names_no_follower_reads_at_the_leader(liar, tmp_path, monkeypatch, how):
    """An invalid place, a server that answers the upgrade of its connection with garbage, or answers fetches so."""
    place = "a..b:9" if how == "place" else liar.url.removeprefix("http://")
    if how == "upgrade":
        liar.answers["/logdb/v1/kafka"] = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"
    liar.answers["batches"] = plain(b"", **FETCH | {"Logdb_Next_Offset": "x"})
    of_frame = FetchRequest.of_frame
    monkeypatch.setattr(FetchRequest, "of_frame", lambda *args: of_frame(*args)._replace(nearest=place))
    values = [b"%d" % number * 100_000 for number in range(10)]
    with logdb.open(tmp_path / "db") as served, logdb.serve(served, http="127.0.0.1:0") as server:
        served.create_topic("t", config={"max.message.bytes": 200_000})
        for value in values:
            served.log("t").append(value)
        with logdb.open(server.addresses[0], rack="r") as db:
            assert [record.value for record in db.log("t").read(0)] == values
