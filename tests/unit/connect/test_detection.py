"""What answers at an address: told by its first bytes, and never guessed."""

import contextlib
import socket
import struct
import threading

import pytest

from logdb.errors import ServerUnavailable
from logdb_connect.client import connected
from logdb_connect.detection import kind_at
from logdb_connect.errors import ConfigError
from support.ports import free_port


@contextlib.contextmanager
def answering(answer):
    """A server that gives ``answer(request)`` on each connection, then ends it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(answer(connection.recv(4096)))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def of_kafka(request):
    """ApiVersions without an API; nothing for what is not Kafka's protocol."""
    if request.startswith(b"GET"):
        return b""
    (correlation_id,) = struct.unpack(">i", request[8:12])
    return struct.pack(">iihi", 10, correlation_id, 0, 0)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda _: b"HTTP/1.1 401 Unauthorized\r\n\r\n", "logdb"),
        (of_kafka, "kafka"),
    ],
)
def test_what_answers_is_known(answer, kind):
    with answering(answer) as address:
        assert kind_at(address, {}) == kind
        assert kind_at(f"127.0.0.1:{free_port()},{address}", {}) == kind


@pytest.mark.parametrize("answer", [lambda _: b"", lambda _: b"220 mail ready\r\n", lambda request: request])
def test_a_stranger_is_no_kafka(answer):
    with answering(answer) as address, pytest.raises(ConfigError, match=r"logdb\.client"):
        kind_at(address, {})


def test_nothing_that_answers_can_be_tried_again():
    with pytest.raises(ServerUnavailable) as error:
        kind_at(f"127.0.0.1:{free_port()}", {}, 0)
    assert error.value.retriable


def test_a_server_that_starts_is_waited_for(monkeypatch):
    """The first attempt is refused; the server begins in the pause after it."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        thread = threading.Thread(target=serve)

        def pause(_seconds):
            if thread.ident is None:
                server.listen()
                thread.start()

        monkeypatch.setattr("logdb_connect.detection.time.sleep", pause)
        assert kind_at(f"127.0.0.1:{server.getsockname()[1]}", {}) == "logdb"
        thread.join()


@pytest.mark.parametrize("named", ["./db", "/data/db", "http://example.org:8080"])
def test_a_directory_and_a_url_are_logdbs(named):
    assert kind_at(named, {}) == "logdb"


def test_bootstrap_servers_is_needed():
    with pytest.raises(ConfigError, match="Missing required configuration"):
        connected({"bootstrap.servers": " "})
