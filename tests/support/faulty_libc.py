"""Faults below the injectable ``io``: plans for faulty_libc.c, and processes that live under it.

    Calls       what a story asks of libc: counted in a run without a fault
    Plan        one fault, as fields for the library
    Rounds      plans for a story: each kind of call on each kind of file first, in the order of a seed
    Processes   two servers of processes, with the library and without it (fault_stories.py)

Knows what may fail, and how.  Does not know what a story does.
"""

from __future__ import annotations

import errno
import json
import os
import pathlib
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

SUPPORT = pathlib.Path(__file__).parent
SOURCE = SUPPORT.parent / "crash" / "faulty_libc.c"
LIMIT_S = 60  # for what takes a tenth of a second, on a machine that is busy

MOVES = {"read", "pread", "write", "pwrite", "copy_file_range"}
WRITES = {"write", "pwrite", "copy_file_range"}
SYNCS = {"fsync", "fdatasync"}
ERRORS = {
    "open": ("EIO", "EMFILE", "ENFILE"),
    "create": ("ENOSPC", "EIO", "EMFILE", "EACCES"),
    "close": ("EIO",),
    "opendir": ("EIO", "EMFILE"),
    "readdir": ("EIO",),
    "read": ("EIO",),
    "pread": ("EIO",),
    "write": ("EIO", "ENOSPC"),
    "pwrite": ("EIO", "ENOSPC", "EDQUOT"),
    "copy_file_range": ("EIO", "ENOSPC", "EXDEV", "EOPNOTSUPP"),
    "fsync": ("EIO", "ENOSPC"),
    "fdatasync": ("EIO", "ENOSPC"),
    "ftruncate": ("EIO",),
    "fallocate": ("ENOSPC", "EOPNOTSUPP", "EIO"),
    "fadvise": ("EIO",),
    "mmap": ("ENOMEM",),
    "lock": ("ENOLCK",),
    "rename": ("EIO", "ENOSPC"),
    "link": ("EIO", "EPERM", "ENOSPC", "EMLINK"),
    "unlink": ("EIO",),
    "rmdir": ("EIO",),
    "mkdir": ("ENOSPC", "EIO"),
    "stat": ("EIO",),
    "statvfs": ("EIO",),
}
# Files of any database, and calls that are rare: of a story that is not about the files, so many of the other calls are enough.
USUAL = {
    "db",
    "LOCK",
    "RESERVE",
    "catalogue",
    "data.mdb",
    "lock.mdb",
    "partition",
    "partition.tmp",
    "topic.json",
    "*.log",
    "*.index",
    "*.timeindex",
}
USUAL |= {"recovery-point", "leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp", "topic.json.tmp"}
USUAL_COUNT = 6
SELDOM = {"fadvise", "copy_file_range", "link", "rmdir"}
# What goes on failing, and with what.
LASTING = {
    "full": (("create", "write", "pwrite", "copy_file_range", "fallocate", "mkdir", "link", "rename"), "ENOSPC"),
    "dying": (("create", "write", "pwrite", "copy_file_range", "fsync", "fdatasync", "mkdir", "rename"), "EIO"),
    "unreadable": (("read", "pread", "readdir"), "EIO"),
    "scarce": (("open", "create", "opendir"), "EMFILE"),
}


class Call(NamedTuple):
    """``file``: its path with "*" for what differs from run to run; ``sort``: the same without where it lies."""

    kind: str
    file: str
    size_bytes: int

    @property
    def sort(self) -> str:
        name = os.path.basename(self.file)
        return re.sub(r"^.*-\d+$|^\*-\d+(?=\.tmp$)", "partition", name)

    @staticmethod
    def of(line: str) -> Call:
        _, kind, path, size = line.split(" ")
        path = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "*", path)
        path = re.sub(r"\d{20}|(?<=-)[0-9a-f]{8}(?=\.parquet)", "*", path)
        return Call(kind, path, int(size))


class Plan(NamedTuple):
    """One fault; the fields of faulty_libc.c."""

    kinds: str
    path: str
    at: int
    bytes: int | None = None
    errno: str = ""
    keep: bool = False
    die: str = ""

    def text(self, root: str, report: str) -> str:
        fields: dict[str, object] = {"root": root, "report": report, "kinds": self.kinds, "path": self.path, "at": self.at}
        if self.bytes is not None:
            fields["bytes"] = self.bytes
        if self.errno:
            fields["errno"] = getattr(errno, self.errno)
        fields |= {"keep": int(self.keep), "die": self.die}
        return "\n".join(f"{name}={value}" for name, value in fields.items())

    @property
    def kills(self) -> bool:
        return bool(self.die)

    @property
    def may_fail_a_sync(self) -> bool:
        """Whether SyncFailed is the right name for it.  LMDB does not tell a write that failed, or was cut short, from a sync."""
        kinds = set(self.kinds.split(","))
        of_lmdb = bool(kinds & WRITES) and (self.keep or self.path.endswith("data.mdb"))
        return (bool(self.errno) and bool(kinds & SYNCS)) or (of_lmdb and (self.errno == "EIO" or self.bytes is not None))

    @property
    def fails_a_sync(self) -> bool:
        """Nothing more is acknowledged at fsync then.  LMDB that found no room has changed nothing, whatever call told it so."""
        return self.kinds in SYNCS and bool(self.errno) and not (self.errno == "ENOSPC" and self.path.endswith("data.mdb"))


class Rounds:
    """Plans for the calls of a story.

    ``all``: all.  ``spread``: each kind of call on each kind of file once, and each fault that lasts; where the story is
    not ``thorough``, only some for the files that any story has, and some of those that last.
    """

    def __init__(self, calls: list[Call], rng: random.Random) -> None:
        self.calls, self.rng = calls, rng

    def spread(self, *, thorough: bool) -> list[Plan]:
        pairs: dict[tuple[str, str], list[Plan]] = {}
        numbers: Counter[tuple[str, str]] = Counter()
        for call in self.calls:
            numbers[call.kind, call.file] += 1
            pairs.setdefault((call.kind, call.sort), []).extend(self._once(call, numbers[call.kind, call.file]))
        usual = [pair for pair in pairs if pair[1] in USUAL and pair[0] not in SELDOM]
        left_out = set() if thorough else set(usual) - set(self.rng.sample(usual, min(USUAL_COUNT, len(usual))))
        plans = [self.rng.choice(choice) for pair, choice in pairs.items() if pair not in left_out]
        lasting = [list(self._lasting(name)) for name in (LASTING if thorough else self.rng.sample(sorted(LASTING), 2))]
        return plans + [self.rng.choice(choice) for choice in lasting if choice]

    def all(self) -> list[Plan]:
        numbers: Counter[tuple[str, str]] = Counter()
        plans: list[Plan] = []
        for call in self.calls:
            numbers[call.kind, call.file] += 1
            plans += self._once(call, numbers[call.kind, call.file])
        for name in LASTING:
            plans += self._lasting(name)
        self.rng.shuffle(plans)
        return plans

    def _once(self, call: Call, at: int) -> Iterator[Plan]:
        for name in ERRORS[call.kind]:
            yield Plan(call.kind, call.file, at, errno=name)
        yield Plan(call.kind, call.file, at, die="before")
        yield Plan(call.kind, call.file, at, die="after")
        if call.kind in MOVES and call.size_bytes > 1:
            size_bytes = self.rng.randrange(1, call.size_bytes)
            yield Plan(call.kind, call.file, at, bytes=size_bytes)
            if call.kind in WRITES:
                yield Plan(call.kind, call.file, at, bytes=size_bytes, die="after")

    def _lasting(self, name: str) -> Iterator[Plan]:
        kinds, error = LASTING[name]
        for at, call in enumerate((call for call in self.calls if call.kind in kinds), 1):
            part = self.rng.randrange(call.size_bytes) if call.kind in WRITES and call.size_bytes > 1 and self.rng.random() < 0.5 else None
            yield Plan(",".join(kinds), "*", at, bytes=part, errno=error, keep=True)


def build(directory: pathlib.Path) -> str:
    """Compile the library; returns its path."""
    library = directory / "faulty_libc.so"
    flags = ["-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-U_FORTIFY_SOURCE", "-fno-builtin"]
    subprocess.run(["gcc", *flags, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return str(library)


class Outcome(NamedTuple):
    """How a process ended, and what it reported: lines by their first word, in order."""

    code: int
    hung: bool
    lines: list[tuple[str, str]]
    stderr: str

    def of(self, word: str) -> list[str]:
        return [rest for first, rest in self.lines if first == word]


class Processes:
    """A server of processes with the library, and one without."""

    def __init__(self, library: str, place: pathlib.Path) -> None:
        self.place = place
        self._servers = {"run": _server(library), "plain": _server(None)}
        self._number = 0

    def close(self) -> None:
        for server in self._servers.values():
            server.stdin.close()
            server.wait(LIMIT_S)
            server.stdout.close()

    def do(self, work: str, story: str, level: str, root: pathlib.Path, notes: list[str], plan: str = "") -> Outcome:
        """Have a process do it; ``plan`` has "%" for the path of its report."""
        self._number += 1
        report = self.place / f"report-{self._number}"
        request = {"work": work, "story": story, "level": level, "root": str(root), "report": str(report), "notes": notes}
        request |= {"plan": plan.replace("%", str(report)), "limit_s": LIMIT_S}
        server = self._servers["run" if work == "run" else "plain"]
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer: dict[str, Any] = json.loads(server.stdout.readline())
        text, err = report.read_text() if report.exists() else "", pathlib.Path(f"{report}.err")
        outcome = Outcome(answer["code"], answer["hung"], [_split(line) for line in text.splitlines()], err.read_text())
        report.unlink(missing_ok=True)
        err.unlink()
        return outcome


def _split(line: str) -> tuple[str, str]:
    first, _, rest = line.partition(" ")
    return first, rest


def _server(library: str | None) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT.parent)}
    environment.pop("LOGDB_FAULT", None)
    if library is not None:
        environment["LD_PRELOAD"] = library
    arguments = [sys.executable, str(SUPPORT / "fault_stories.py")]
    return subprocess.Popen(arguments, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
