"""memory_return.py: freed memory goes back to the system, when a server is idle again."""

import asyncio
import ctypes
import re
import subprocess
import sys
import textwrap

import pytest

from logdb.serving import memory_return
from logdb.serving.memory_return import DELAY_MAX_S, LOOK_S, MemoryReturn


def looks(*shares: float) -> list[bool]:
    """What each look says, by how much of a processor was used before it."""
    used = [0.0]
    memory = MemoryReturn(processor_s=lambda: used[0])
    said = []
    for share in shares:
        used[0] += share * LOOK_S
        said.append(memory.is_due())
    return said


def test_it_is_given_back_once_after_a_busy_time() -> None:
    assert looks(0, 0, 0.5, 0.9, 0.01, 0, 0.5, 0) == [False, False, False, False, True, False, False, True]


def test_a_server_that_is_never_idle_gives_it_back_from_time_to_time() -> None:
    count = int(DELAY_MAX_S / LOOK_S)
    assert looks(*[1] * 2 * count) == ([False] * (count - 1) + [True]) * 2


def test_a_loop_looks_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_return, "LOOK_S", 0.001)
    used = [0.0]

    async def main() -> None:
        given = asyncio.Event()
        loop = asyncio.get_running_loop()
        memory = MemoryReturn(processor_s=lambda: used[0], give_back=lambda: loop.call_soon_threadsafe(given.set))
        used[0] = 1.0
        memory.begin()
        async with asyncio.timeout(30):
            await given.wait()
        memory.end()

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_freed_memory_leaves_the_process() -> None:
    """Every second of many buffers is freed, so that none of it lies at the end of an arena."""
    code = """
        from logdb.serving.memory_return import trim

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4

        kept = [bytearray(b"x" * 20_000) for _ in range(6_000)]
        del kept[::2], kept[::2]
        before = resident()
        trim()
        print(before, resident())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    before, after = map(int, re.findall(r"\d+", done.stdout))
    assert after < before - 40_000
