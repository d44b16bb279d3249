"""HTTP by hand, for what no client library would send: bytes to a server, and what comes back."""

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Said(NamedTuple):
    """What a server said; ``status`` is 0 where it only closed the connection."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """One connection."""

    def __init__(self, url: str, timeout_s: float = 30) -> None:
        where = urlsplit(url)
        self.socket = socket.create_connection((where.hostname, where.port), timeout_s)
        self._read = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Said:
        """A whole request, and its answer."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in (headers or {}).items())]
        if body and not {"Content-Length", "Transfer-Encoding"} & (headers or {}).keys():
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join([*lines, "", ""]).encode() + body)
        return self.read_head() if method == "HEAD" else self.read()

    def read(self) -> Said:
        said = self.read_head()
        return said._replace(body=self._read.read(int(said.headers.get("content-length", 0))))

    def read_head(self) -> Said:
        """Status and headers, behind which comes nothing where HEAD was asked."""
        line = self._read.readline()
        if not line:
            return Said(0, {}, b"")
        status, headers = int(line.split()[1]), {}
        while line := self._read.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        return Said(status, headers, b"")

    def is_closed(self) -> bool:
        """Whether the server has closed the connection; waits for it."""
        try:
            return self._read.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._read.close()
        self.socket.close()


@contextlib.contextmanager
def wire(url: str, timeout_s: float = 30) -> Iterator[Wire]:
    connection = Wire(url, timeout_s)
    try:
        yield connection
    finally:
        connection.close()
