"""A client that does what clients do while others do what they should not, and how long its answers take."""

import contextlib
import http.client
import ssl
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

_OWN = "127.0.0.99"


class Honest:
    """Asks again and again, over a new connection each time.

    Attributes:
        statuses: What it was answered; a name of an error where it was not.
        took_s: How long each answer took.
    """

    def __init__(self, url: str, context: ssl.SSLContext | None, path: str, headers: dict[str, str]) -> None:
        self._url, self._context, self._path, self._headers = urlsplit(url), context, path, headers
        self.statuses: list[int | str] = []
        self.took_s: list[float] = []

    def ask(self) -> None:
        """Ask once."""
        where, own = (self._url.hostname or "", self._url.port), (_OWN, 0)
        begun_s = time.monotonic()
        if self._context is None:
            connection = http.client.HTTPConnection(*where, timeout=10, source_address=own)
        else:
            connection = http.client.HTTPSConnection(*where, timeout=10, source_address=own, context=self._context)
        try:
            connection.request("GET", self._path, headers=self._headers)
            self.statuses.append(connection.getresponse().status)
        except OSError as error:
            self.statuses.append(type(error).__name__)
        finally:
            connection.close()
        self.took_s.append(time.monotonic() - begun_s)


@contextlib.contextmanager
def honest(
    url: str, *, context: ssl.SSLContext | None = None, path: str = "/health/live", headers: dict[str, str] | None = None
) -> Iterator[Honest]:
    """Have one ask from an address of its own, all the while; at the end each of its answers was 200, and came within a second."""
    client, stop = Honest(url, context, path, headers or {}), threading.Event()

    def ask() -> None:
        while not stop.is_set():
            client.ask()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield client
    finally:
        stop.set()
        thread.join()
    client.ask()
    assert set(client.statuses) == {200}, client.statuses
    assert max(client.took_s) < 1, client.took_s
