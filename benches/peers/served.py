"""Our side behind a URL: ``logdb serve`` in a process of its own, the client in this one, over the loopback."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.request import urlopen

from benches.peers import not_importable
from benches.peers.logdb import fill, scan_arrow, scan_records
from benches.workload import LARGE_BATCH_COUNT, Measure, Work, Wrong, rate

if TYPE_CHECKING:
    from logdb import Log

_EMPTY = """
import asyncio, sys
from aiohttp import web
async def empty(request):
    await request.read()
    return web.Response(body=b"{}", content_type="application/json")
async def main():
    app = web.Application()
    app.router.add_post("/", empty)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print("http://127.0.0.1:%d" % runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def missing() -> str | None:
    return not_importable("logdb") or not_importable("aiohttp")


@contextlib.contextmanager
def _process(*command: str) -> "Iterator[tuple[str, int]]":
    """A server; yields the URL that it prints, and its pid."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


def _served(work: Work) -> "contextlib.AbstractContextManager[tuple[str, int]]":
    return _process("-m", "logdb.cli", "serve", str(work.directory / "db"), "--durability", "os", "--http", "127.0.0.1:0")


@contextlib.contextmanager
def _log(work: Work) -> "Iterator[Log]":
    """The one partition of a new database; on leaving, everything appended is read back and counted."""
    import logdb

    with _served(work) as (url, _), logdb.open(url) as db:
        db.create_topic("t")
        log = db.log("t")
        yield log
        work.check(scan_records(log))


@contextlib.contextmanager
def _filled(work: Work) -> "Iterator[Log]":
    """A log with all records, written by the library beforehand: the same files as those that are read in the process."""
    import logdb

    fill(work, str(work.directory / "db"))
    with _served(work) as (url, _), logdb.open(url) as db:
        yield db.log("t")


def append_many(work: Work) -> Measure:
    """In calls of 64,000 records."""
    batches = list(work.batches(LARGE_BATCH_COUNT))
    with _log(work) as log:
        began = work.start()
        for keys, values in batches:
            log.append_many(values, keys=keys)
        return rate(work.count, time.perf_counter() - began)


def scan_values(work: Work) -> Measure:
    with _filled(work) as log:
        return work.passes(lambda: scan_records(log))


def arrow_value(work: Work) -> Measure:
    with _filled(work) as log:
        return work.passes(lambda: scan_arrow(log, ["value"]))


def append(work: Work) -> Measure:
    """One record a call, acknowledged: ms."""
    with _log(work) as log:
        value = bytes(work.value_size)
        log.append(value)
        began = work.start()
        for _ in range(work.count - 1):
            log.append(value)
        return Measure((time.perf_counter() - began) / (work.count - 1) * 1e3, "ms")


def empty_handler(work: Work) -> Measure:
    """The same client with a handler that reads the body and does nothing: ms."""
    from logdb_http_api.remote.connection import Connections, Security

    with _process("-c", _EMPTY) as (url, _):
        connections = Connections((url,), Security(), timeout_ms=30_000, connect_timeout_ms=3_000)
        body, headers = bytes(work.value_size + 80), {"Content-Type": "application/vnd.logdb.batches"}
        connections.request("POST", "/", body, headers)
        began = work.start()
        for _ in range(work.count):
            connections.request("POST", "/", body, headers)
        return Measure((time.perf_counter() - began) / work.count * 1e3, "ms")


def stream_json(work: Work) -> Measure:
    """REST v3, one request of concatenated records with values of JSON, one report for each."""
    import logdb

    _, values = work.records()
    with _served(work) as (url, _), logdb.open(url) as db:
        db.create_topic("t")
        with urlopen(f"{url}/v3/clusters", timeout=30) as answer:
            cluster = json.load(answer)["data"][0]["cluster_id"]
        body = b"".join(b'{"value":{"type":"JSON","data":%s}}\n' % value for value in values)
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
        connection.putrequest("POST", f"/v3/clusters/{cluster}/topics/t/records")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        sender = threading.Thread(target=connection.send, args=(body,))  # reports have to be read meanwhile
        began = work.start()
        connection.endheaders()
        sender.start()
        reports = connection.getresponse().read()
        seconds = time.perf_counter() - began
        sender.join()
        connection.close()
        good = reports.count(b'"error_code":200')
        if good != work.count:
            raise Wrong(f"{good} reports of success for {work.count} records")
        work.check(scan_records(db.log("t")))
        return rate(work.count, seconds)


def idle(work: Work) -> Measure:
    """Resident memory of a server that has nothing to do."""
    with _served(work) as (url, pid):
        with urlopen(f"{url}/health/ready", timeout=30) as answer:
            answer.read()
        with open(f"/proc/{pid}/statm") as file:
            return Measure(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6, "MB")


_ALL = (append_many, scan_values, arrow_value, append, empty_handler, stream_json, idle)
OPERATIONS = {operation.__name__: operation for operation in _ALL}
