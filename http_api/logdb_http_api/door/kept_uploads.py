"""Uploads: record batches that a server keeps outside the logs until a request appends them to a partition.

    DATA/uploads/<id>.<owner>.<partition>     the batches, mode 0600
                 <the same>.part              not complete yet; a start removes it

An id is chosen by the client, 128 random bits; owner and partition are hashes.  Files are not synced: the client has their checksums.  They
outlive a restart of the server, and are removed when they are discarded or too old.

Threading: any thread; a lock guards the table, none is held while bytes are read or written.
"""

import contextlib
import hashlib
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from logdb.codec import crc32c
from logdb.disk import File, refuse_link, write_error
from logdb.errors import CorruptionError, DiskFull, ReadFailed
from logdb.io import IO
from logdb.model import Buffer, TopicPartition
from logdb.threads import renewed

DIRECTORY = "uploads"
ID = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{16})\.([0-9a-f]{16})")
_PART = ".part"
_BLOCK_BYTES = 4096


class _Upload:
    """An upload; ``credit_bytes``: counted against the quota already, so that its append is not."""

    __slots__ = ("credit_bytes", "name", "owner", "size_bytes", "touched_s")

    def __init__(self, name: str, owner: str, size_bytes: int, touched_s: float) -> None:
        self.name, self.owner, self.size_bytes, self.touched_s, self.credit_bytes = name, owner, size_bytes, touched_s, 0

    @property
    def disk_bytes(self) -> int:
        return _disk_bytes(self.size_bytes)


class KeptUploads:
    """All uploads of a door.

    field        meaning                                      changed by
    _uploads     by id and partition                          all methods, under the lock
    _sizes       bytes by owner, also of what is written now  the same
    _is_loaded   whether the directory was read               the first call
    """

    def __init__(self, parent: str, *, bytes_max: int, owner_bytes_max: int, idle_ms: int) -> None:
        self._directory = os.path.join(parent, DIRECTORY)
        self._bytes_max, self._owner_bytes_max, self._idle_s = bytes_max, owner_bytes_max, idle_ms / 1000
        self._uploads: dict[tuple[str, str], _Upload] = {}
        self._sizes: Counter[str] = Counter()
        self._lock = renewed(threading.Lock())
        self._is_loaded = False

    def keep(self, owner: object, where: TopicPartition, name: str, batches: Buffer) -> None:
        """Keep batches under an id; what it had before is replaced.

        Raises:
            DiskFull: The uploads of the owner, or of all, would be too many bytes; or the disk is full.
            WriteFailed: The disk refuses the bytes.
            ReadFailed: The directory is a symbolic link.
        """
        size_bytes, owned = len(memoryview(batches)), _hash(str(owner))
        key = name, _hash(f"{where.topic}\0{where.partition}")
        with self._reserved(owner, owned, _disk_bytes(size_bytes)):
            file_name = f"{name}.{owned}.{key[1]}"
            self._write(file_name, batches)
            with self._lock:
                former = self._forget(key)
                self._uploads[key] = upload = _Upload(file_name, owned, size_bytes, time.time())
                upload.credit_bytes = size_bytes
                self._sizes[owned] += upload.disk_bytes
        if former is not None and former.name != file_name:  # another principal's
            self._unlink([former])

    @contextlib.contextmanager
    def _reserved(self, owner: object, owned: str, size_bytes: int) -> Iterator[None]:
        """Count the bytes while they are written."""
        self._load()
        with self._lock:
            is_full = self._refusal(owner, owned, size_bytes) is not None
        if is_full:
            self.remove_old()
        with self._lock:
            if (refusal := self._refusal(owner, owned, size_bytes)) is not None:
                raise refusal
            self._sizes[owned] += size_bytes
        try:
            yield
        finally:
            with self._lock:
                self._release(owned, size_bytes)

    def _refusal(self, owner: object, owned: str, size_bytes: int) -> DiskFull | None:
        """Why there is no room for so many bytes; None: there is."""
        for taken, most, whose in (
            (self._sizes[owned], self._owner_bytes_max, f"of {owner} (uploads_per_principal_bytes_max)"),
            (self._sizes.total(), self._bytes_max, "of all clients (uploads_bytes_max)"),
        ):
            if taken + size_bytes > most:
                return DiskFull(self._directory, size_bytes, f"uploads {whose} have {taken} of at most {most} bytes")
        return None

    def _release(self, owned: str, size_bytes: int) -> None:
        self._sizes[owned] -= size_bytes
        if not self._sizes[owned]:
            del self._sizes[owned]

    def _write(self, file_name: str, batches: Buffer) -> None:
        path, rest = self._path(file_name), memoryview(batches)
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            fd = os.open(path + _PART, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                while rest:
                    rest = rest[os.write(fd, rest) :]
                os.rename(path + _PART, path)
            finally:
                os.close(fd)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(path + _PART)
            raise write_error(path, len(memoryview(batches)), error) from error

    def missing(self, where: TopicPartition, names: Sequence[str]) -> list[str]:
        """Those of some ids that have no upload for that partition."""
        self._load()
        place = _hash(f"{where.topic}\0{where.partition}")
        with self._lock:
            return [name for name in names if (name, place) not in self._uploads]

    def size_bytes(self, where: TopicPartition, names: Sequence[str]) -> int:
        """The bytes of those uploads that there are."""
        place = _hash(f"{where.topic}\0{where.partition}")
        with self._lock:
            return sum(upload.size_bytes for name in names if (upload := self._uploads.get((name, place))) is not None)

    @property
    def is_used(self) -> bool:
        """Whether there are uploads, of this process or an earlier one."""
        return bool(self._uploads) if self._is_loaded else os.path.isdir(self._directory)

    def read(self, where: TopicPartition, name: str) -> bytes | None:
        """The batches; None: there is no such upload."""
        self._load()
        with self._lock:
            upload = self._uploads.get((name, _hash(f"{where.topic}\0{where.partition}")))
        if upload is None:
            return None
        path = self._path(upload.name)
        try:
            with File(IO(), path, os.O_RDONLY) as file:
                return file.content(upload.size_bytes + 1)
        except FileNotFoundError:
            return None

    def gather(self, where: TopicPartition, uploads: Sequence[tuple[str, int]], size_bytes_max: int) -> bytearray | None:
        """The batches of uploads, one behind the other; each is an id and its CRC.  None: one is missing, or they are larger.

        Raises:
            CorruptionError: One has another CRC.
        """
        batches = bytearray()
        for name, crc in uploads:
            if (found := self.read(where, name)) is None:
                return None
            if len(batches) + len(found) > size_bytes_max:
                return None
            if (there := crc32c(found)) != crc:
                raise CorruptionError(
                    os.path.join(self._directory, name), 0, f"CRC of {len(found)} uploaded bytes {there:#010x}, it was {crc:#010x}"
                )
            batches += found
        return batches

    def take_credit(self, where: TopicPartition, names: Sequence[str]) -> int:
        """The bytes that were counted against a quota when they came, and were not appended yet; from now on they are."""
        place, credit_bytes = _hash(f"{where.topic}\0{where.partition}"), 0
        with self._lock:
            for name in names:
                if (upload := self._uploads.get((name, place))) is not None:
                    credit_bytes += upload.credit_bytes
                    upload.credit_bytes, upload.touched_s = 0, time.time()
        return credit_bytes

    def discard(self, where: TopicPartition, names: Sequence[str]) -> None:
        """Remove uploads."""
        self._load()
        place = _hash(f"{where.topic}\0{where.partition}")
        with self._lock:
            gone = [upload for name in names if (upload := self._forget((name, place))) is not None]
        self._unlink(gone)

    def remove_old(self) -> None:
        """Remove uploads that nobody has used for ``upload_idle_ms``."""
        self._load()
        until_s = time.time() - self._idle_s
        with self._lock:
            old = [key for key, upload in self._uploads.items() if upload.touched_s < until_s]
            gone = [upload for key in old if (upload := self._forget(key)) is not None]
        self._unlink(gone)

    def _forget(self, key: tuple[str, str]) -> _Upload | None:
        upload = self._uploads.pop(key, None)
        if upload is not None:
            self._release(upload.owner, upload.disk_bytes)
        return upload

    def _unlink(self, uploads: Sequence[_Upload]) -> None:
        for upload in uploads:
            with contextlib.suppress(OSError, ReadFailed):  # the next start removes it, once it is old
                os.unlink(self._path(upload.name))

    def _path(self, file_name: str) -> str:
        """The path of a file; raises ReadFailed if the directory is a link, which would lead elsewhere."""
        refuse_link(IO(), self._directory)
        return os.path.join(self._directory, file_name)

    def _load(self) -> None:
        """Know the uploads of an earlier process."""
        with self._lock:
            if self._is_loaded:
                return
            with contextlib.suppress(FileNotFoundError):
                for entry in os.scandir(self._path("")):
                    self._know(entry)
            self._is_loaded = True

    def _know(self, entry: "os.DirEntry[str]") -> None:
        found = _NAME.fullmatch(entry.name.removesuffix(_PART))
        if found is None or not entry.is_file(follow_symlinks=False):
            return
        if entry.name.endswith(_PART):
            os.unlink(entry.path)
            return
        status = entry.stat(follow_symlinks=False)
        name, owned, place = found.groups()
        self._uploads[name, place] = upload = _Upload(entry.name, owned, status.st_size, status.st_mtime)
        self._sizes[owned] += upload.disk_bytes


def _disk_bytes(size_bytes: int) -> int:
    """What a file takes of the disk: whole blocks, and its entry."""
    return (size_bytes // _BLOCK_BYTES + 1) * _BLOCK_BYTES


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
