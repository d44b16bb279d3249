"""Our side behind a URL: ``logdb serve`` in a process of its own, the client in this one, over the loopback."""

import contextlib
import http.client
import json
import os
import socket
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
    from logdb import Database, Log

_USER, _PASSWORD = "bench", "a long password"
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


def _served(work: Work, *flags: str) -> "contextlib.AbstractContextManager[tuple[str, int]]":
    return _process("-m", "logdb.cli", "serve", str(work.directory / "db"), "--durability", "os", "--http", "127.0.0.1:0", *flags)


@contextlib.contextmanager
def _opened(work: Work, *, secured: bool) -> "Iterator[Database]":
    """The database behind a URL; ``secured``: over TLS, by a password."""
    import logdb

    if not secured:
        with _served(work) as (url, _), logdb.open(url) as db:
            yield db
        return
    import trustme

    authority = trustme.CA()
    files = {name: str(work.directory / f"{name}.pem") for name in ("ca", "server")}
    authority.cert_pem.write_to_path(files["ca"])
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(files["server"])
    with logdb.open(work.directory / "db") as local:
        local.security.add_user(_USER, _PASSWORD, super_user=True)
    with (
        _served(work, "--tls-cert", files["server"]) as (url, _),
        logdb.open(url, user=_USER, password=_PASSWORD, ca_file=files["ca"]) as db,
    ):
        yield db


@contextlib.contextmanager
def _log(work: Work, *, secured: bool = False) -> "Iterator[Log]":
    """The one partition of a new database; on leaving, everything appended is read back and counted."""
    with _opened(work, secured=secured) as db:
        db.create_topic("t")
        log = db.log("t")
        yield log
        work.check(scan_records(log))


@contextlib.contextmanager
def _filled(work: Work, *, secured: bool = False) -> "Iterator[Log]":
    """A log with all records, written by the library beforehand: the same files as those that are read in the process."""
    fill(work, str(work.directory / "db"))
    with _opened(work, secured=secured) as db:
        yield db.log("t")


def append_many(work: Work, *, secured: bool = False) -> Measure:
    """In calls of 64,000 records."""
    batches = list(work.batches(LARGE_BATCH_COUNT))
    with _log(work, secured=secured) as log:
        began = work.start()
        for keys, values in batches:
            log.append_many(values, keys=keys)
        return rate(work.count, time.perf_counter() - began)


def append_many_secured(work: Work) -> Measure:
    return append_many(work, secured=True)


def scan_values(work: Work, *, secured: bool = False) -> Measure:
    with _filled(work, secured=secured) as log:
        return work.passes(lambda: scan_records(log))


def scan_values_secured(work: Work) -> Measure:
    return scan_values(work, secured=True)


def arrow_value(work: Work, *, secured: bool = False) -> Measure:
    with _filled(work, secured=secured) as log:
        return work.passes(lambda: scan_arrow(log, ["value"]))


def arrow_value_secured(work: Work) -> Measure:
    return arrow_value(work, secured=True)


def append(work: Work, *, secured: bool = False) -> Measure:
    """One record a call, acknowledged: ms."""
    with _log(work, secured=secured) as log:
        value = bytes(work.value_size)
        log.append(value)
        began = work.start()
        for _ in range(work.count - 1):
            log.append(value)
        return Measure((time.perf_counter() - began) / (work.count - 1) * 1e3, "ms")


def append_secured(work: Work) -> Measure:
    return append(work, secured=True)


def empty_handler(work: Work) -> Measure:
    """A client that does no more than send the same bytes, and a handler that reads the body and does nothing: ms."""
    body = bytes(work.value_size + 80)
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/vnd.logdb.batches\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with _process("-c", _EMPTY) as (url, _):
        host, _, port = url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), 30) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            began = work.start()
            for _ in range(work.count):
                client.sendall(request)
                answer = b""
                while not answer.endswith(b"\r\n\r\n{}"):
                    if not (piece := client.recv(4096)):
                        raise Wrong("the handler has closed the connection")
                    answer += piece
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


_ALL = (
    append_many,
    append_many_secured,
    scan_values,
    scan_values_secured,
    arrow_value,
    arrow_value_secured,
    append,
    append_secured,
    empty_handler,
    stream_json,
    idle,
)
OPERATIONS = {operation.__name__: operation for operation in _ALL}
