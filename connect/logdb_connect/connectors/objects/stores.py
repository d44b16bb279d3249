"""Where objects lie: S3, GCS, Azure, a directory or memory by obstore, HDFS by fsspec.

``put`` returns when the object is there as a whole, durably; until then readers see none, or the former one of the same name.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from logdb_connect.config import revealed
from logdb_connect.connectors import limits
from logdb_connect.errors import ConfigError, ConnectError, RetriableError

_FSSPEC_SCHEMES = {"webhdfs", "swebhdfs", "hdfs"}
_ENDPOINT_SCHEMES = {"http", "https"}
_CLOUD_HOSTS = {
    "gs": "storage.googleapis.com",
    **dict.fromkeys(("az", "azure", "abfs", "abfss", "adl"), "blob.core.windows.net"),
}


class NoSuchObject(RetriableError):
    """An object was removed after it was listed."""

    def __init__(self, name: str, store: str) -> None:
        super().__init__(f"Cannot read {name} from {store}: it was removed after it was listed; the task lists the objects again")


class Store(Protocol):
    """Objects by name.

    Attributes:
        name: For messages and source partitions; without secrets.
    """

    name: str

    def put(self, name: str, data: bytes, content_type: str) -> None:
        """Store an object, in place of one that has the name."""

    def get(self, name: str) -> bytes:
        """The content of an object; raises NoSuchObject."""

    def names(self, prefix: str) -> Iterator[str]:
        """The names of all objects below a directory, in no order."""


class ObjectStore:
    """A store of obstore."""

    def __init__(self, name: str, store: Any, *, directory: str | None = None, part_size: int = 26_214_400) -> None:
        """``directory`` is where a local store keeps its files."""
        self.name, self._store, self._directory, self._part_size = name, store, directory, part_size

    def put(self, name: str, data: bytes, content_type: str) -> None:
        import obstore

        if self._directory is not None:
            _write(Path(self._directory), name, data, self.name)
            return
        with self._errors(f"write {name} to"):
            obstore.put(self._store, name, data, attributes={"Content-Type": content_type}, chunk_size=self._part_size)

    def get(self, name: str) -> bytes:
        import obstore
        from obstore import exceptions

        with self._errors(f"read {name} from"):
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except (exceptions.NotFoundError, FileNotFoundError):  # obstore raises the second one
                raise NoSuchObject(name, self.name) from None

    def names(self, prefix: str) -> Iterator[str]:
        import obstore

        with self._errors(f"list {prefix}/ of"):
            for page in obstore.list(self._store, prefix):
                for each in page:
                    yield each["path"]

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        from obstore import exceptions

        final = (
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
            exceptions.InvalidPathError,
            exceptions.UnknownConfigurationKeyError,
        )
        try:
            yield
        except NoSuchObject:
            raise
        except (exceptions.NotFoundError, FileNotFoundError) as error:  # obstore raises the second one
            raise ConnectError(
                f"Cannot {what} {self.name}: it does not exist. Create it, then restart the task. {_first(error)}"
            ) from error
        except final as error:
            raise ConnectError(
                f"Cannot {what} {self.name}: it refuses. Check the credentials, then restart the task. {_first(error)}"
            ) from error
        except (exceptions.BaseError, OSError) as error:
            text = str(error)
            if "InvalidAccessKeyId" in text or "SignatureDoesNotMatch" in text or "status: 403" in text or "403 Forbidden" in text:
                raise ConnectError(
                    f"Cannot {what} {self.name}: it refuses. Check the credentials, then restart the task. {_first(error)}"
                ) from error
            raise RetriableError(f"Cannot {what} {self.name} now; the task tries again. {_first(error)}") from error


class FileSystem:
    """A file system of fsspec.  An object is written beside its place and then renamed."""

    def __init__(self, name: str, files: Any, root: str) -> None:
        self.name, self._files, self._root = name, files, root.rstrip("/")

    def put(self, name: str, data: bytes, content_type: str) -> None:
        path = f"{self._root}/{name}"
        directory, _, last = path.rpartition("/")
        unfinished = f"{directory}/_tmp.{last}"
        with self._errors(f"write {name} to"):
            self._files.makedirs(directory, exist_ok=True)
            self._files.pipe_file(unfinished, data)
            if self._files.exists(path):
                self._files.rm_file(path)
            self._files.mv(unfinished, path)
            self._files.invalidate_cache()
            if self._files.info(path)["size"] != len(data):
                raise OSError(f"{path} has another size than what was written")

    def get(self, name: str) -> bytes:
        with self._errors(f"read {name} from"):
            try:
                return bytes(self._files.cat_file(f"{self._root}/{name}"))
            except FileNotFoundError:
                raise NoSuchObject(name, self.name) from None

    def names(self, prefix: str) -> Iterator[str]:
        with self._errors(f"list {prefix}/ of"):
            self._files.invalidate_cache()
            for path in self._files.find(f"{self._root}/{prefix}"):
                if not path.rpartition("/")[2].startswith("_tmp."):
                    yield path[path.index(f"{self._root}/") + len(self._root) + 1 :]

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except NoSuchObject:
            raise
        except PermissionError as error:
            raise ConnectError(
                f"Cannot {what} {self.name}: it refuses. Check the permissions, then restart the task. {_first(error)}"
            ) from error
        except Exception as error:
            raise RetriableError(f"Cannot {what} {self.name} now; the task tries again. {_first(error)}") from error


def open_store(config: Mapping[str, Any]) -> Store:
    """The store that the properties name: the bucket of S3, or what ``store.url`` has.

    Raises:
        ConfigError: Neither names one, or the package that it needs is missing.
    """
    url = config["store.url"]
    scheme = urlsplit(url).scheme if url else ""
    _check_limits(config, url, scheme)
    if scheme in _FSSPEC_SCHEMES:
        return _file_system(url)
    try:
        import obstore  # noqa: F401
    except ImportError:
        raise ConfigError("store.url", "Object stores need the package obstore: pip install obstore pyarrow fastavro") from None
    if not url or scheme in _ENDPOINT_SCHEMES:
        return _s3(config, url)
    return _by_url(url)


def _check_limits(config: Mapping[str, Any], url: str | None, scheme: str) -> None:
    parts = urlsplit(url or "")
    if scheme == "file":
        limits.check_path(unquote(parts.path))
    elif scheme in _FSSPEC_SCHEMES | _ENDPOINT_SCHEMES:
        limits.check_host(parts.hostname or "")
    elif scheme != "memory":
        limits.check_host(_CLOUD_HOSTS.get(scheme, f"s3.{config['s3.region']}.amazonaws.com"))


def _s3(config: Mapping[str, Any], endpoint: str | None) -> Store:
    from obstore.store import S3Store

    bucket = config["s3.bucket.name"]
    if not bucket:
        raise ConfigError("s3.bucket.name", 'Missing required configuration "s3.bucket.name" which has no default value.')
    options: dict[str, Any] = {
        "region": config["s3.region"],
        "virtual_hosted_style_request": not config["s3.path.style.access.enabled"],
        "retry_config": {
            "max_retries": config["s3.part.retries"],
            "backoff": {"init_backoff": timedelta(milliseconds=config["s3.retry.backoff.ms"])},
        },
    }
    if endpoint:
        options |= {"endpoint": endpoint, "client_options": {"allow_http": endpoint.startswith("http:")}}
    key_id, secret = config["aws.access.key.id"], revealed(config["aws.secret.access.key"])
    if bool(key_id) != bool(secret):
        missing, given = ("aws.secret.access.key", "aws.access.key.id") if key_id else ("aws.access.key.id", "aws.secret.access.key")
        raise ConfigError(missing, f'Missing required configuration "{missing}": {given} needs it. Set both, or neither.')
    if key_id:
        options |= {"access_key_id": key_id, "secret_access_key": secret}
    return ObjectStore(f"s3://{bucket}", S3Store(bucket, **options), part_size=config["s3.part.size"])


def _by_url(url: str) -> Store:
    from obstore import exceptions
    from obstore.store import LocalStore, MemoryStore, from_url

    parts = urlsplit(url)
    if not parts.scheme or (parts.scheme == "file" and (parts.netloc or parts.path in ("", "/"))):
        raise ConfigError(
            "store.url", f"Invalid value {_without_secrets(url)} for configuration store.url: a directory is file:///directory"
        )
    if parts.scheme == "file":
        directory = unquote(parts.path)
        return ObjectStore(url, LocalStore(directory, mkdir=True), directory=directory)
    if parts.scheme == "memory":
        return ObjectStore(url, _memory.setdefault(url, MemoryStore()))
    try:
        return ObjectStore(_without_secrets(url), from_url(url))
    except (exceptions.BaseError, ValueError) as error:
        raise ConfigError("store.url", f"Invalid value {_without_secrets(url)} for configuration store.url: {_first(error)}") from error


_memory: dict[str, Any] = {}
"""Stores of ``memory:`` by URL: the tasks of a process share them."""


def _file_system(url: str) -> Store:
    try:
        import fsspec
    except ImportError:
        raise ConfigError("store.url", "HDFS needs the package fsspec: pip install fsspec requests") from None
    make: Callable[..., Any] = fsspec.core.url_to_fs
    files, root = make(url)
    return FileSystem(_without_secrets(url), files, root)


def _write(directory: Path, name: str, data: bytes, store: str) -> None:
    """Store a file.  It is durable before it has its name: from then on, others may move it.

    obstore lists no name that ends in # and digits, so the unfinished file is no object.
    """
    if any(part in {"", ".", ".."} or "\0" in part for part in name.split("/")):
        raise ConnectError(f"Cannot write {name!r} to {store}: a part of the name must be neither empty nor '.' nor '..'")
    place = directory / name
    unfinished = place.with_name(f"{place.name}#{os.getpid()}{threading.get_ident()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(unfinished, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(place)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        for parent in place.parents:
            if parent == directory or directory in parent.parents:
                _sync_directory(parent)
    except PermissionError as error:
        raise ConnectError(f"Cannot write {name} to {store}: it refuses. Check the permissions, then restart the task. {error}") from error
    except OSError as error:
        raise RetriableError(f"Cannot write {name} to {store} now; the task tries again. {error}") from error


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _first(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__
