"""The files of a table through the server's HTTP listener: the FileIO of a pyiceberg on another machine.

A location such as ``file:///srv/market/iceberg/trades/data/x.parquet`` becomes a request of the server that the catalogue is at.

Threading: any number of threads; ``requests.Session`` has a connection for each.
"""

import io
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import requests
from pyiceberg.catalog.rest.auth import AUTH_MANAGER, AuthManagerAdapter
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.typedef import EMPTY_DICT, Properties

_BUFFER_BYTES = 1 << 20
_TIMEOUT_S = 60.0
_NAMESPACE = "logdb"


class HttpFileIO(FileIO):
    """Give its name to the catalogue: ``RestCatalog("logdb", uri=…, **{"py-io-impl": "logdb_iceberg.remote.HttpFileIO"})``.

    Properties: ``uri`` and ``token`` of the catalogue, ``auth``, ``header.*`` and ``ssl`` as pyiceberg's REST catalogue has them.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._session: requests.Session | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"properties": self.properties}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["properties"])  # type: ignore[misc]  # a connection stays in its process

    @property
    def session(self) -> requests.Session:
        if self._session is None:
            self._session = _session(self.properties)
        return self._session

    def url(self, location: str) -> str:
        """The address of a file; raises ValueError if it is no file of a table of logdb."""
        parts = location.split("/")
        if not location.startswith("file://") or len(parts) < 6 or parts[-4] != "iceberg" or parts[-2] not in {"data", "metadata"}:
            raise ValueError(f"location {location!r}: must be a file of a table of logdb, as its catalogue names it")
        table, part, name = map(quote, parts[-3:])
        return f"{self.properties['uri'].rstrip('/')}/v1/namespaces/{_NAMESPACE}/tables/{table}/files/{part}/{name}"

    def new_input(self, location: str) -> InputFile:
        return _Input(self, location)

    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"location {location!r}: tables of logdb are read-only for their readers")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"location {location!r}: tables of logdb are read-only for their readers")


def _session(properties: Mapping[str, Any]) -> requests.Session:
    session = requests.Session()
    if manager := properties.get(AUTH_MANAGER):  # the catalogue's: of a password or a token
        session.auth = AuthManagerAdapter(manager)
    elif token := properties.get("token"):
        session.headers["Authorization"] = f"Bearer {token}"
    session.headers.update({name.removeprefix("header."): value for name, value in properties.items() if name.startswith("header.")})
    tls = properties.get("ssl") or {}
    tls = json.loads(tls) if isinstance(tls, str) else tls
    session.verify = tls.get("cabundle", True)
    if client := tls.get("client"):
        session.cert = (client["cert"], client["key"]) if "key" in client else client["cert"]
    return session


class _Input(InputFile):
    def __init__(self, files: HttpFileIO, location: str) -> None:
        super().__init__(location)
        self._files, self._url = files, files.url(location)

    def __len__(self) -> int:
        with self._head() as answer:
            return int(answer.headers["Content-Length"])

    def exists(self) -> bool:
        try:
            self._head().close()
        except FileNotFoundError:
            return False
        return True

    def _head(self) -> requests.Response:
        """The headers of the file; an answer to HEAD does not say why it is refused, one to GET does."""
        session = self._files.session
        answer = session.head(self._url, timeout=_TIMEOUT_S)
        if answer.ok:
            return answer
        answer = session.get(self._url, timeout=_TIMEOUT_S, stream=True)  # its body may be the whole file
        try:
            return _checked(answer, self.location)
        except OSError:
            answer.close()
            raise

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 -- as pyiceberg calls it
        return io.BufferedReader(_RangeFile(self._files.session, self._url, self.location, len(self)), _BUFFER_BYTES)


class _RangeFile(io.RawIOBase):
    """Each read is a request of a range."""

    def __init__(self, session: requests.Session, url: str, location: str, size_bytes: int) -> None:
        self._session, self._url, self._location, self._size_bytes, self._at = session, url, location, size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._size_bytes)
        if stop <= self._at:
            return 0
        wanted = {"Range": f"bytes={self._at}-{stop - 1}", "Accept-Encoding": "identity"}
        with self._session.get(self._url, headers=wanted, timeout=_TIMEOUT_S) as answer:
            data = _checked(answer, self._location).content
        if answer.status_code != requests.codes.partial_content or len(data) != stop - self._at:
            raise OSError(
                f"{self._location}: the server sent {len(data)} bytes with status {answer.status_code}, {stop - self._at} were asked"
            )
        buffer[: len(data)] = data
        self._at = stop
        return len(data)


def _checked(answer: requests.Response, location: str) -> requests.Response:
    """Raises FileNotFoundError, PermissionError or OSError with what the server says."""
    if answer.ok:
        return answer
    try:
        message = answer.json()["message"]
    except (ValueError, LookupError, TypeError):
        message = answer.reason
    kind = {401: PermissionError, 403: PermissionError, 404: FileNotFoundError}.get(answer.status_code, OSError)
    raise kind(f"{location}: {message} (status {answer.status_code})")
