import contextlib
import socket
from errno import EAFNOSUPPORT, ECONNREFUSED, EMFILE, ENETUNREACH

import pytest

from logdb_kafka_api import silence
from logdb_kafka_api.silence import Silence
from support.waiting import until


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(silence, "LOOK_S", 0.05)
    monkeypatch.setattr(silence, "SILENT_S", 0.3)
    monkeypatch.setattr(silence, "_CONNECT_S", 0.1)


@pytest.fixture
def full():
    """An address that takes no connection and refuses none: the queue of its listener is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        with contextlib.suppress(TimeoutError):
            while True:
                stack.enter_context(socket.create_connection(listener.getsockname(), timeout=0.2))
        yield listener, listener.getsockname()


def looked(given, address):
    """The answer of a look that began after this call."""
    seen = given._looks.get(address)
    before = seen.until_s if seen else 0.0

    def is_over():
        given.is_silent(address)
        look = given._looks[address]
        return not look.is_under_way and look.until_s > before

    until(is_over, "a look ends")
    return given.is_silent(address)


def test_a_process_that_is_down_is_not_silent():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        assert not looked(Silence(), address)
    assert not looked(Silence(), address), "it refuses"


def test_a_machine_that_is_off_is_silent_and_comes_back(full):
    listener, address = full
    given = Silence()
    assert not given.is_silent(address), "nothing is known yet"
    assert looked(given, address)
    listener.close()  # now it refuses
    until(lambda: not given.is_silent(address), "it answers again")


def test_a_broker_that_was_back_is_looked_at_anew(full):
    _, address = full
    given = Silence()
    assert looked(given, address)
    given.forget(address)
    assert not given.is_silent(address)
    until(lambda: given.is_silent(address), "it is silent")


REFUSED, UNREACHABLE, NO_IPV6 = ConnectionRefusedError(ECONNREFUSED, ""), OSError(ENETUNREACH, ""), OSError(EAFNOSUPPORT, "")


@pytest.mark.parametrize(
    ("errors", "answers"),
    [
        *(([OSError(number, "no way")], False) for number in sorted(silence._SILENT)),
        ([TimeoutError("timed out"), NO_IPV6], False),
        ([REFUSED, UNREACHABLE], True),
        ([UNREACHABLE, REFUSED], True),
        ([NO_IPV6], True),
        ([OSError(EMFILE, "too many")], True),
    ],
)
def test_one_address_of_a_name_is_enough(monkeypatch, errors, answers):
    def connect(*_, **__):
        raise ExceptionGroup("create_connection failed", errors)

    monkeypatch.setattr(socket, "create_connection", connect)
    assert silence._answers(("name", 9092)) == answers


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b"])
def test_what_this_process_cannot_tell_is_no_silence(host):
    assert silence._answers((host, 9092))
