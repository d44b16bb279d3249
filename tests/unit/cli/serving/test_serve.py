"""serve.py: signals."""

import asyncio
import os
import signal

from logdb.cli.serving import serve


def test_a_signal_is_not_lost_while_threads_call_the_loop():
    """What wakes the loop is full of calls from threads when it comes."""

    async def run():
        loop, came = asyncio.get_running_loop(), []
        serve._on_signal(loop, signal.SIGUSR1, came.append, 1)
        for _ in range(10_000):
            loop.call_soon_threadsafe(int)
        os.kill(os.getpid(), signal.SIGUSR1)
        async with asyncio.timeout(10):
            while not came:
                await asyncio.sleep(0)
        for _ in range(1_000):
            await asyncio.sleep(0)
        return came

    assert asyncio.run(run()) == [1]


def test_a_signal_wakes_a_loop_that_waits():
    async def run():
        loop, came = asyncio.get_running_loop(), asyncio.Queue()
        serve._on_signal(loop, signal.SIGUSR1, came.put_nowait, 1)
        async with asyncio.timeout(10):
            loop.run_in_executor(None, os.kill, os.getpid(), signal.SIGUSR1)
            return await came.get()

    assert asyncio.run(run()) == 1
