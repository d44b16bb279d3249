import contextlib
import socket

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


@pytest.mark.parametrize("number", sorted(silence._SILENT))
def test_no_way_to_a_host_is_silence(monkeypatch, number):
    def connect(*_):
        raise OSError(number, "no way")

    monkeypatch.setattr(socket, "create_connection", connect)
    assert not silence._answers(("192.0.2.1", 9092))


def test_what_this_process_cannot_tell_is_no_silence(monkeypatch):
    def connect(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", connect)
    assert silence._answers(("nowhere.invalid", 9092))
