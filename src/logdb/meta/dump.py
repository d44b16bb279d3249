"""Everything in a catalogue, read by a child process, because damage may kill the reader.

``verify`` and ``repair`` compare the entries with the files.
"""

import base64
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field

from logdb.errors import ReadFailed
from logdb.io import check_regular
from logdb.meta import child, entries
from logdb.meta.entries import DamagedEntry, Intent, LogEntry, SegmentEntry, TopicEntry

_TIMEOUT_S, _CPU_S = 600.0, 60
_OF_DAMAGE = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL}


@dataclass(kw_only=True)
class CatalogueDump:
    """The readable entries, and the problems of the others.

    ``format`` and ``database_id`` are None if their entry is missing.
    ``problems`` is empty if every entry has the right CRC and belongs to an existing topic.
    """

    format: int | None = None
    database_id: str | None = None
    topics: dict[str, TopicEntry] = field(default_factory=dict)
    logs: list[LogEntry] = field(default_factory=list)
    segments: list[SegmentEntry] = field(default_factory=list)
    intents: list[tuple[int, Intent]] = field(default_factory=list)
    next_producer_id: int = 0
    problems: list[str] = field(default_factory=list)


def read_in_child(path: str, *, lock: bool = False, timeout_s: float = _TIMEOUT_S) -> CatalogueDump:
    """Read a catalogue by a child process.

    Args:
        path: Its directory.
        lock: Take a reader's slot in LMDB's lock file; needed beside a writer.
        timeout_s: Seconds after which the child is killed.

    Returns:
        All readable entries.  What damage can do to the child is one of its problems.

    Raises:
        ReadFailed: The child could not start or end, or lacked memory or files: nothing is known about the catalogue.
    """
    dump = CatalogueDump()
    try:
        check_regular(os.stat(os.path.join(path, "data.mdb")).st_mode, path)
    except FileNotFoundError:
        dump.problems.append("data.mdb is missing")
        return dump
    except OSError as error:
        dump.problems.append(f"data.mdb cannot be read: {error.strerror}")
        return dump
    ended = False
    for line in _run(dump, path, lock, timeout_s):
        ended = _take(dump, line)
    if not ended and not dump.problems:
        dump.problems.append("the reader of data.mdb ended early")
    _check_references(dump)
    return dump


def _run(dump: CatalogueDump, path: str, lock: bool, timeout_s: float) -> list[bytes]:
    if not sys.executable:
        raise _unread(path, "there is no Python interpreter (sys.executable)")
    request = json.dumps({"path": os.path.abspath(path), "lock": lock, "sys_path": sys.path, "cpu_s": _CPU_S})
    command = [sys.executable, "-I", "-S", str(child.__file__)]
    try:
        done = subprocess.run(command, input=request.encode() + b"\n", capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise _unread(path, f"it did not end within {timeout_s:g} s") from None
    except OSError as error:
        raise _unread(path, str(error)) from error
    first, *lines = done.stdout.splitlines() or [b""]
    told = done.stderr.decode("utf-8", "replace").strip()[-500:]
    if done.returncode == -signal.SIGXCPU:
        dump.problems.append(f"reading data.mdb did not end within {_CPU_S} s of a processor")
    elif -done.returncode in _OF_DAMAGE:
        dump.problems.append(f"reading data.mdb died of {signal.Signals(-done.returncode).name} after {len(lines)} lines")
    elif done.returncode or first != b'["ready"]':
        raise _unread(path, told or (f"exit code {done.returncode}" if done.returncode >= 0 else f"signal {-done.returncode}"))
    return lines


def _unread(path: str, reason: str) -> ReadFailed:
    return ReadFailed(path, 0, f"nothing is known about it, since the process that reads it failed: {reason}")


def _take(dump: CatalogueDump, line: bytes) -> bool:
    """Take a line of the child; True if it is the last."""
    try:
        match json.loads(line):
            case ["entry", str(key), str(value)]:
                _take_entry(dump, _bytes(key), _bytes(value))
            case ["error", str(text)]:
                dump.problems.append(text)
            case ["end", int(met), int(expected)]:
                if met != expected:
                    dump.problems.append(f"data.mdb counts {expected} entries, {met} were found")
                return True
            case other:
                dump.problems.append(f"unexpected output of the reader of data.mdb: {other!r}")
    except ValueError:
        dump.problems.append(f"unexpected output of the reader of data.mdb: {line[:100]!r}")
    return False


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _take_entry(dump: CatalogueDump, key: bytes, value: bytes) -> None:
    try:
        if key == entries.FORMAT_KEY:
            dump.format, dump.database_id = entries.decode_format(value)
        elif key.startswith(entries.TOPIC_PREFIX):
            topic = entries.decode_topic(key, value)
            dump.topics[topic.name] = topic
        elif key.startswith(entries.LOG_PREFIX):
            dump.logs.append(entries.decode_log(key, value))
        elif key.startswith(entries.SEGMENT_PREFIX):
            dump.segments.append(entries.decode_segment(key, value))
        elif key.startswith(entries.INTENT_PREFIX):
            dump.intents.append(entries.decode_intent(key, value))
        elif key == entries.PRODUCER_IDS_KEY:
            dump.next_producer_id = entries.decode_producer_ids(value)
        else:
            raise DamagedEntry("no such kind of entry")
    except DamagedEntry as error:
        dump.problems.append(f"entry {key.decode('ascii', 'replace')!r}: {error}")


def _check_references(dump: CatalogueDump) -> None:
    if dump.format is None:
        dump.problems.append("there is no format entry")
    elif dump.format > entries.FORMAT:
        dump.problems.append(f"format {dump.format}; this logdb knows up to {entries.FORMAT}")
    logs = {(log.topic, log.partition) for log in dump.logs}
    wanted = {(topic.name, partition) for topic in dump.topics.values() for partition in range(topic.partition_count)}
    dump.problems.extend(f"entry {entries.log_key(*name).decode()!r} is missing" for name in sorted(wanted - logs))
    dump.problems.extend(f"entry {entries.log_key(*name).decode()!r} belongs to no topic" for name in sorted(logs - wanted))
    for segment in dump.segments:
        if (segment.topic, segment.partition) not in logs:
            dump.problems.append(f"entry {entries.segment_key(*segment[:3]).decode()!r} belongs to no log")
