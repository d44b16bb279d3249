"""The first connect of ``logdb.open(url)``: a server that is not there is told of at once, and not waited for by ``timeout_ms``."""

import contextlib
import logging
import re
import socket
import threading
import time
import traceback

import pytest

import logdb
from logdb.errors import ServerUnavailable
from logdb_http_api.remote import connection
from support.ports import free_port
from support.serving import served

LOGGER = "logdb_http_api.remote.connections"


@contextlib.contextmanager
def told(action=lambda: None):
    """Warnings of the client; ``action`` is called with the first."""
    said = []

    class Handler(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())
            if len(said) == 1:
                action()

    logger, handler = logging.getLogger(LOGGER), Handler(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


@contextlib.contextmanager
def speaking(answer):
    """What listens, answers whatever comes with these bytes, and hangs up; its URL."""

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_refused_connection_is_told_at_once_and_not_waited_for():
    url, began = f"http://127.0.0.1:{free_port()}", time.monotonic()
    with told() as said, pytest.raises(ServerUnavailable, match="Connection refused") as raised:
        logdb.open(url, connect_timeout_ms=100)
    assert time.monotonic() - began < 15, "timeout_ms is 30 s"
    assert (raised.value.urls, len(said)) == ((url,), 1)
    assert url in said[0] and "Connection refused" in said[0]


def test_the_traceback_ends_at_the_call():
    with pytest.raises(ServerUnavailable) as raised:
        logdb.open(f"http://127.0.0.1:{free_port()}", connect_timeout_ms=1)
    shown = "".join(traceback.format_exception(raised.value))
    assert "Connection refused" in shown
    assert "logdb_http_api" not in shown


def test_without_any_word_it_is_three_seconds():
    began = time.monotonic()
    with pytest.raises(ServerUnavailable):
        logdb.open(f"http://127.0.0.1:{free_port()}")
    assert time.monotonic() - began < 15


def test_it_is_told_before_anything_is_waited_for_and_the_server_may_still_come(tmp_path):
    """Also behind ``timeout_ms``, which is how long a server may take to answer."""
    port = free_port()
    with contextlib.ExitStack() as stack:

        def start():
            db = stack.enter_context(logdb.open(tmp_path / "db"))
            db.create_topic("t")
            stack.enter_context(logdb.serve(db, http=f"127.0.0.1:{port}"))

        with told(start) as said, logdb.open(f"http://127.0.0.1:{port}", connect_timeout_ms=60_000, timeout_ms=5_000) as db:
            assert [topic.name for topic in db.topics()] == ["t"]
        assert len(said) == 1


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_what_hangs_up_or_is_no_http_is_no_server(answer):
    """As a container's proxy does where nothing listens behind it."""
    began = time.monotonic()
    with speaking(answer) as url, told() as said, pytest.raises(ServerUnavailable):
        logdb.open(url, connect_timeout_ms=100)
    assert time.monotonic() - began < 15
    assert len(said) == 1 and url in said[0]


def test_a_server_that_is_there_is_enough(tmp_path):
    with served(tmp_path / "db") as server, told() as said:
        with logdb.open([f"http://127.0.0.1:{free_port()}", server.url]) as db:
            assert db.topics() == []
        assert said == []


def test_each_of_several_servers_gets_its_part_of_the_time(tmp_path, monkeypatch):
    """One that swallows what is sent to it does not use up the time of the next."""
    create, asked = socket.create_connection, []
    with served(tmp_path / "db") as server:

        def connect(address, timeout):
            asked.append(timeout)
            if address[0] == "192.0.2.1":
                raise TimeoutError("timed out")
            return create(address, timeout)

        monkeypatch.setattr(connection.socket, "create_connection", connect)
        with logdb.open(["http://192.0.2.1:8080", server.url], connect_timeout_ms=20_000):
            pass
    assert len(asked) == 2 and 5 < asked[0] <= 10


def test_an_established_session_goes_on_trying(tmp_path):
    port = free_port()
    address = f"127.0.0.1:{port}"
    with logdb.open(tmp_path / "db") as served_db, contextlib.ExitStack() as stack:
        first = logdb.serve(served_db, http=address)
        db = stack.enter_context(logdb.open(f"http://{address}", connect_timeout_ms=1_000))
        first.close()

        def start():
            stack.enter_context(logdb.serve(served_db, http=address))

        with told(start) as said:
            assert db.topics() == []
        assert len(said) == 1, "it is told of, too"
        assert float(re.search(r"again for (\S+) s", said[0])[1]) > 20, "by timeout_ms, 30 s"


def test_tls_where_there_is_none_is_final_and_said(tmp_path):
    with served(tmp_path / "db") as server, told() as said, pytest.raises(ServerUnavailable, match="http:// asks without"):
        logdb.open(server.url.replace("http:", "https:"), connect_timeout_ms=600_000)
    assert said == []


@pytest.mark.parametrize("value", [0, -1])
def test_what_cannot_be(value):
    with pytest.raises(ValueError, match=f"connect_timeout_ms={value}: must be 1 or more"):
        logdb.open("http://127.0.0.1:1", connect_timeout_ms=value)
