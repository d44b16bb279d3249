"""The selector of a server that is a process of its own: when it polls, and when it sleeps."""

import asyncio
import selectors
import socket
from types import SimpleNamespace

import pytest

from logdb.serving import polling
from logdb.serving.polling import PollingSelector, polling_loop


class Clock:
    """Stands but for what sleeps and looks take."""

    def __init__(self, patch):
        self.s, self.asked, self.wait_s, self.ready_at_s = 100.0, [], 0.0, None
        patch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: self.s))
        patch.setattr(selectors.DefaultSelector, "select", self.select)

    def select(self, timeout=None):
        self.asked.append(timeout)
        if timeout == 0:
            self.s += 1e-6
            return ["ready"] if self.ready_at_s is not None and self.s >= self.ready_at_s else []
        self.s += self.wait_s if timeout is None else min(self.wait_s, timeout)
        return ["ready"]


@pytest.fixture
def clock(monkeypatch):
    with monkeypatch.context() as patch:
        yield Clock(patch)


@pytest.fixture
def polls(clock):
    """A selector whose last waits were short."""
    selector, clock.wait_s = PollingSelector(), 50e-6
    for _ in range(4):
        selector.select(None)
    assert clock.asked == [None] * 4
    clock.asked.clear()
    yield selector
    selector.close()


def test_what_comes_soon_is_found_without_sleep(clock, polls):
    for _ in range(100):
        clock.ready_at_s = clock.s + 100e-6
        assert polls.select(None) == ["ready"]
    assert set(clock.asked) == {0}


@pytest.mark.parametrize("timeout", [None, 5])
def test_it_sleeps_when_nothing_comes_soon_and_polls_no_more_until_waits_are_short_again(clock, polls, timeout):
    clock.wait_s = 1.0
    began_s = clock.s
    assert polls.select(timeout) == ["ready"]
    assert clock.s - began_s == pytest.approx(1.0, abs=1e-3)
    assert 0 in clock.asked and clock.asked[-1] == (None if timeout is None else pytest.approx(timeout, abs=1e-3))
    clock.asked.clear()
    clock.wait_s = 50e-6
    for _ in range(4):
        polls.select(None)
    assert clock.asked == [None] * 4
    clock.ready_at_s = clock.s
    polls.select(None)
    assert clock.asked[-1] == 0


def test_a_timer_that_is_due_before_is_not_late(clock, polls):
    began_s = clock.s
    polls.select(30e-6)
    assert clock.s - began_s < 40e-6


def test_what_waits_for_nothing_does_not_count(clock, polls):
    clock.wait_s = 1.0
    polls.select(None)
    for _ in range(10):
        polls.select(0)
    clock.asked.clear()
    polls.select(None)
    assert clock.asked == [None]


def test_a_loop_answers_a_client_that_waits_for_each_answer():
    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            return await asyncio.to_thread(ask, server.sockets[0].getsockname())

    async def echo(reader, writer):
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    def ask(address):
        answers = []
        with socket.create_connection(address, 5) as client:
            for number in range(200):
                client.sendall(b"%d" % number)
                answers.append(client.recv(100))
        return answers

    with asyncio.Runner(loop_factory=polling_loop) as runner:
        assert runner.run(main()) == [b"%d" % number for number in range(200)]


@pytest.mark.parametrize(("processors", "polls"), [({0}, False), ({0, 1}, True)])
def test_one_processor_is_left_to_the_client(monkeypatch, processors, polls):
    made = []
    monkeypatch.setattr(polling.os, "sched_getaffinity", lambda _: processors)
    monkeypatch.setattr(polling, "PollingSelector", lambda: made.append(PollingSelector()) or made[0])
    polling_loop().close()
    assert bool(made) is polls
