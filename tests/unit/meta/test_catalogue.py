"""meta/catalogue.py and meta/environment.py: entries that last, a map that grows, damage that is named."""

import contextlib
import errno
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from logdb import errors
from logdb.disk import Watcher
from logdb.io import IO
from logdb.meta import (
    Catalogue,
    Intent,
    LogEntry,
    SegmentEntry,
    TopicEntry,
    WriteTransaction,
    check_file,
    entries,
    environment,
    file_checksum,
)
from logdb.meta.environment import named_error

# pytest's own timer is a thread; from 3.12 on, Python warns of forks beside threads.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

TINY_MAP_BYTES = 1 << 16


def topic_of(name: str, partition_count: int = 1, **config: Any) -> TopicEntry:
    return TopicEntry(name, str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), partition_count, config)


def segment_of(topic: str, partition: int, base_offset: int) -> SegmentEntry:
    return SegmentEntry(topic, partition, base_offset, 1 << 20, 0xDEADBEEF, base_offset + 100, 1_700_000_000_000, 1_700_000_000_001)


def make_topic(name: str, partition_count: int = 1, segment_count: int = 0) -> Callable[[WriteTransaction], None]:
    def put(txn: WriteTransaction) -> None:
        txn.put_topic(topic_of(name, partition_count))
        txn.put_logs(LogEntry(name, partition) for partition in range(partition_count))
        for partition in range(partition_count):
            for number in range(segment_count):
                txn.put_segment(segment_of(name, partition, 100 * number))

    return put


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "catalogue")


@pytest.fixture
def catalogue(path: str) -> Iterator[Catalogue]:
    with Catalogue.open(path, create=True) as opened:
        yield opened


@contextlib.contextmanager
def child_beside(function: Callable[[], None]) -> Iterator[None]:
    """Run a function in a forked child beside the block; it must end well."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  # nothing may leave the child
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    yield
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def raw_put(path: str, key: bytes, value: bytes) -> None:
    """Write a value behind the catalogue's back; no handle may be open."""
    with lmdb.open(path) as env, env.begin(write=True) as txn:
        txn.put(key, value)


def raw_get(path: str, key: bytes) -> bytes:
    with lmdb.open(path) as env, env.begin() as txn:
        value = txn.get(key)
    assert value is not None
    return bytes(value)


def run_python(program: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=120, **options)


# ---------------------------------------------------------------- what is written is read


def test_a_new_catalogue_is_empty_and_has_an_id_that_stays(path: str) -> None:
    with Catalogue.open(path, create=True) as catalogue:
        assert catalogue.topics() == {}
        assert catalogue.logs() == catalogue.intents() == []
        made = catalogue.database_id
    assert str(uuid.UUID(made)) == made
    for create in (True, False):
        with Catalogue.open(path, create=create) as catalogue:
            assert catalogue.database_id == made


def test_creation_syncs_the_directory_and_its_parent(path: str) -> None:
    synced = []

    class Watched(IO):
        def fsync_dir(self, path: str) -> None:
            synced.append(path)

    with Catalogue.open(path, create=True, io=Watched()):
        pass
    assert synced == [path, os.path.dirname(path)]
    with Catalogue.open(path, create=True, io=Watched()):
        pass
    assert len(synced) == 2


def test_everything_is_there_after_reopening(path: str) -> None:
    topic = topic_of(
        "events", 2, **{"retention.ms": 5, "min.cleanable.dirty.ratio": 0.25, "preallocate": True, "cleanup.policy": "compact"}
    )
    logs = [LogEntry("events", 0), LogEntry("events", 1, 7, 3, 100, 120, 4096, True, "damaged at byte 17: ü")]
    segments = [segment_of("events", 1, 0), segment_of("events", 1, 100)]
    intent = Intent("create", "events", {"partitions": [0, 1], "id": None})

    def put(txn: WriteTransaction) -> int:
        txn.put_topic(topic)
        txn.put_logs(logs)
        for segment in reversed(segments):
            txn.put_segment(segment)
        return txn.add_intent(intent)

    with Catalogue.open(path, create=True) as catalogue:
        intent_id = catalogue.write(put)
    with Catalogue.open(path, create=False) as catalogue:
        assert catalogue.topics() == {"events": topic}
        assert catalogue.topic("events") == topic
        assert catalogue.topic("event") is None
        assert catalogue.logs("events") == catalogue.logs() == logs
        assert catalogue.log("events", 1) == logs[1]
        assert catalogue.log("events", 2) is None
        assert catalogue.segments("events", 1) == catalogue.segments("events") == segments
        assert catalogue.segments("events", 0) == []
        assert catalogue.view("events", 1) == (logs[1], segments)
        assert catalogue.intents() == [(intent_id, intent)]


@pytest.mark.parametrize("name", ["é", "\ud800", "x" * 600, ""])
def test_what_no_topic_can_be_called_is_not_there(catalogue: Catalogue, name: str) -> None:
    catalogue.write(make_topic("events"))
    assert catalogue.topic(name) is None
    with pytest.raises(errors.UnknownTopic):
        catalogue.view(name, 0)


def test_a_view_of_what_is_not_there_says_so(catalogue: Catalogue) -> None:
    catalogue.write(make_topic("events", 2))
    with pytest.raises(errors.UnknownTopic, match="'event'; there are 'events'"):
        catalogue.view("event", 0)
    with pytest.raises(errors.UnknownPartition, match="no partition 2: it has 2"):
        catalogue.view("events", 2)
    catalogue.write(lambda txn: txn.put_topic(topic_of("events", 3)))
    with pytest.raises(errors.CatalogueDamaged, match="'l events 0000000002' is missing"):
        catalogue.view("events", 2)


def test_deleting_a_topic_leaves_its_neighbours_alone(catalogue: Catalogue) -> None:
    names = ["a", "a-", "a.", "a0", "aa", "A"]
    for name in names:
        catalogue.write(make_topic(name, 2, 2))
    assert catalogue.write(lambda txn: txn.delete_topic("a"))
    assert not catalogue.write(lambda txn: txn.delete_topic("a"))
    assert list(catalogue.topics()) == sorted(names[1:])
    assert catalogue.logs("a") == catalogue.segments("a") == []
    for name in names[1:]:
        assert len(catalogue.logs(name)) == 2
        assert len(catalogue.segments(name)) == 4


def test_segments_come_and_go_one_by_one(catalogue: Catalogue) -> None:
    catalogue.write(make_topic("events", 1, 3))
    assert catalogue.write(lambda txn: txn.delete_segment("events", 0, 100))
    assert not catalogue.write(lambda txn: txn.delete_segment("events", 0, 100))
    assert [segment.base_offset for segment in catalogue.segments("events", 0)] == [0, 200]


def test_intents_are_kept_in_order_until_cleared(catalogue: Catalogue) -> None:
    ids = [catalogue.write(lambda txn, n=number: txn.add_intent(Intent("grow", "events", {"n": n}))) for number in range(12)]
    assert ids == sorted(set(ids))
    assert catalogue.write(lambda txn: txn.clear_intent(ids[0]))
    assert not catalogue.write(lambda txn: txn.clear_intent(ids[0]))
    assert [intent.body["n"] for _, intent in catalogue.intents()] == list(range(1, 12))


def test_an_exception_undoes_the_transaction(catalogue: Catalogue) -> None:
    def fail(txn: WriteTransaction) -> None:
        txn.put_topic(topic_of("half"))
        assert txn.topic("half") is not None
        raise KeyError("no")

    with pytest.raises(KeyError):
        catalogue.write(fail)
    assert catalogue.topics() == {}


# ---------------------------------------------------------------- the map


def test_ten_thousand_partitions_in_one_transaction_outgrow_a_tiny_map(path: str) -> None:
    runs = []

    def put(txn: WriteTransaction) -> None:
        runs.append(1)
        make_topic("wide", 10_000)(txn)

    with Catalogue.open(path, create=True, map_size_bytes=TINY_MAP_BYTES) as catalogue:
        catalogue.write(put)
        assert len(runs) > 1
        assert [log.partition for log in catalogue.logs("wide")] == list(range(10_000))
    with Catalogue.open(path, create=False, map_size_bytes=TINY_MAP_BYTES) as catalogue:
        assert len(catalogue.logs("wide")) == 10_000
        catalogue.write(make_topic("wider", 1_000))
        assert len(catalogue.logs()) == 11_000


def test_the_map_grows_under_reading_threads(path: str) -> None:
    with Catalogue.open(path, create=True, map_size_bytes=TINY_MAP_BYTES) as catalogue:
        catalogue.write(make_topic("t0"))
        done, failures = threading.Event(), []

        def read() -> None:
            try:
                while not done.is_set():
                    found = catalogue.read(lambda txn: (len(txn.topics()), len(txn.logs())))
                    assert found[0] == found[1] > 0
            except BaseException as error:  # noqa: BLE001  # handed to the test
                failures.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(1, 80):
            catalogue.write(make_topic(f"t{number}", 1, 5))
        done.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(catalogue.topics()) == 80


WRITE_MANY = """
import sys
from logdb.meta import Catalogue, LogEntry, TopicEntry
with Catalogue.open(sys.argv[1], create=False, map_size_bytes=1 << 16) as catalogue:
    catalogue.write(lambda txn: (txn.put_topic(TopicEntry("wide", "", 3000, {})), txn.put_logs(LogEntry("wide", n) for n in range(3000))))
"""


@pytest.mark.parametrize("read_only", [True, False])
def test_a_map_grown_by_another_process_is_adopted(path: str, read_only: bool) -> None:
    Catalogue.open(path, create=True, map_size_bytes=TINY_MAP_BYTES).close()
    with Catalogue.open(path, create=False, read_only=read_only, map_size_bytes=TINY_MAP_BYTES) as catalogue:
        assert catalogue.logs() == []
        done = run_python(WRITE_MANY, path)
        assert done.returncode == 0, done.stderr
        assert len(catalogue.logs("wide")) == 3_000
        if not read_only:
            catalogue.write(make_topic("more", 3_000))
            assert len(catalogue.logs()) == 6_000


# ---------------------------------------------------------------- handles of one process


def test_handles_share_one_environment_and_the_last_one_closes_it(path: str, tmp_path: Path) -> None:
    first = Catalogue.open(path, create=True)
    alias = tmp_path / "alias"
    alias.symlink_to(path)
    second = Catalogue.open(str(alias), create=False, read_only=True)
    first.write(make_topic("events"))
    assert list(second.topics()) == ["events"]
    with pytest.raises(errors.ReadOnly, match="opened for reading"):
        second.write(make_topic("more"))
    first.close()
    first.close()
    assert list(second.topics()) == ["events"]
    with pytest.raises(errors.Closed):
        first.topics()
    second.close()
    lmdb.open(path).close()  # it refuses what this process has open


def test_a_reader_that_was_first_makes_way_for_a_writer(path: str) -> None:
    Catalogue.open(path, create=True).close()
    with Catalogue.open(path, create=False, read_only=True, no_lock=True) as snapshot:
        with Catalogue.open(path, create=False, read_only=True) as reader:
            with Catalogue.open(path, create=False) as writer:
                writer.write(make_topic("events"))
                assert list(reader.topics()) == ["events"]
            assert list(reader.topics()) == ["events"]
        assert list(snapshot.topics()) == ["events"]


def test_a_directory_made_anew_is_another_catalogue(path: str, tmp_path: Path) -> None:
    with Catalogue.open(path, create=True) as old:
        old.write(make_topic("old"))
        os.rename(path, tmp_path / "aside")
        with Catalogue.open(path, create=True) as new:
            assert new.topics() == {}
            assert list(old.topics()) == ["old"]
            assert new.database_id != old.database_id


def test_closing_beside_readers_is_an_error_by_name(path: str) -> None:
    catalogue = Catalogue.open(path, create=True)
    seen: list[BaseException] = []
    started = threading.Event()

    def read() -> None:
        try:
            while True:
                catalogue.topics()
                started.set()
        except errors.LogdbError as error:
            seen.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    started.wait()
    catalogue.close()
    thread.join()
    assert isinstance(seen[0], errors.Closed)


# ---------------------------------------------------------------- other processes

WATCH = """
import sys
from logdb.meta import Catalogue
last = 0
with Catalogue.open(sys.argv[1], create=False, read_only=True) as catalogue:
    print("ready", flush=True)
    while last < int(sys.argv[2]):
        log, segments = catalogue.view("events", 0)
        assert log.generation == len(segments) >= last, (log, len(segments), last)
        last = log.generation
print("seen", last)
"""


def test_readers_in_other_processes_see_whole_transactions_only(catalogue: Catalogue, path: str) -> None:
    catalogue.write(make_topic("events"))
    command = [sys.executable, "-c", WATCH, path, "200"]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    for generation in range(1, 201):

        def roll(txn: WriteTransaction, generation: int = generation) -> None:
            txn.put_segment(segment_of("events", 0, 100 * generation))
            txn.put_log(LogEntry("events", 0, generation=generation))

        catalogue.write(roll)
    for reader in readers:
        out, err = reader.communicate(timeout=60)
        assert out == "seen 200\n", err


def become_another_user(path: str) -> None:
    """Lose the right to write to ``path``, not the right to read it; in a child."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    assert not os.access(path, os.W_OK)


def let_read_only(path: str, tmp_path: Path) -> None:
    if os.getuid() == 0:
        for directory in (tmp_path, *tmp_path.parents):  # pytest makes them for their owner alone
            if directory.stat().st_mode & 0o005 == 0:
                directory.chmod(0o755)
        os.chmod(path, 0o755)
        for name in os.listdir(path):  # made in pytest's directory, as closed as that was
            os.chmod(os.path.join(path, name), 0o644)
    else:
        for name in os.listdir(path):
            os.chmod(os.path.join(path, name), 0o444)
        os.chmod(path, 0o555)


@pytest.mark.parametrize("lock_file", ["kept", "removed"])
def test_who_may_only_read_the_directory_reads_beside_the_writer(catalogue: Catalogue, path: str, tmp_path: Path, lock_file: str) -> None:
    if lock_file == "removed":
        os.unlink(os.path.join(path, "lock.mdb"))
    before = sorted(os.listdir(path))
    let_read_only(path, tmp_path)
    asked, ask = os.pipe()
    heard, answer = os.pipe()

    def child() -> None:
        os.close(ask)
        become_another_user(path)
        with Catalogue.open(path, create=False, read_only=True) as reader:
            while os.read(asked, 1):
                os.write(answer, b"%d\n" % len(reader.topics()))
        with pytest.raises(errors.ReadOnly):
            Catalogue.open(path, create=False)

    with child_beside(child):
        os.close(asked)
        os.close(answer)
        for number in range(1, 30):
            catalogue.write(make_topic(f"t{number}", 50, 2))
            os.write(ask, b"?")
            assert os.read(heard, 9) == b"%d\n" % number
        os.close(ask)
    assert sorted(os.listdir(path)) == before
    os.close(heard)


def test_what_may_not_even_be_read_is_not_called_missing(catalogue: Catalogue, path: str, tmp_path: Path) -> None:
    let_read_only(path, tmp_path)
    data_path = os.path.join(path, "data.mdb")

    def child() -> None:
        become_another_user(path)
        for hide in (data_path, path):
            with pytest.raises(errors.LogdbError, match=r"cannot be read: .*Permission denied") as caught:
                Catalogue.open(path, create=False, read_only=True)
            assert type(caught.value) is errors.LogdbError, hide
            os.write(seen, b"!")
            os.read(hidden, 1)

    hear, seen = os.pipe()
    hidden, hide_path = os.pipe()
    os.chmod(data_path, 0o000)
    with child_beside(child):
        os.close(seen)
        assert os.read(hear, 1)
        os.chmod(path, 0o000)
        os.write(hide_path, b"!!")
        assert os.read(hear, 1)
    os.chmod(path, 0o755)
    for fd in (hear, hidden, hide_path):
        os.close(fd)


def test_a_snapshot_is_read_without_a_lock_file(path: str) -> None:
    with Catalogue.open(path, create=True) as catalogue:
        catalogue.write(make_topic("events"))
    os.unlink(os.path.join(path, "lock.mdb"))
    with Catalogue.open(path, create=False, read_only=True, no_lock=True) as catalogue:
        assert list(catalogue.topics()) == ["events"]
    assert os.listdir(path) == ["data.mdb"]


# ---------------------------------------------------------------- forks


def test_a_forked_child_is_refused_until_it_opens_anew(catalogue: Catalogue, path: str) -> None:
    catalogue.write(make_topic("events"))

    def child() -> None:
        with pytest.raises(errors.Forked, match=f"process {os.getppid()}"):
            catalogue.topics()
        with pytest.raises(errors.Forked):
            catalogue.write(make_topic("child"))
        with Catalogue.open(path, create=False) as own:
            own.write(make_topic("child"))
        catalogue.close()

    with child_beside(child):
        pass
    assert list(catalogue.topics()) == ["child", "events"]
    catalogue.write(make_topic("parent"))


def test_forks_beside_a_busy_writer_neither_hang_nor_disturb(catalogue: Catalogue, path: str) -> None:
    done = threading.Event()
    count = [0]

    def write() -> None:
        while not done.is_set():
            count[0] += 1
            catalogue.write(lambda txn: txn.put_log(LogEntry("events", 0, generation=count[0])))

    def child() -> None:
        with Catalogue.open(path, create=False, read_only=True) as own:
            assert own.log("events", 0) is not None

    catalogue.write(make_topic("events"))
    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(20):
        with child_beside(child):
            pass
    done.set()
    thread.join()
    log = catalogue.log("events", 0)
    assert log is not None
    assert log.generation == count[0]


# ---------------------------------------------------------------- damage


def test_what_is_not_there_is_not_made(path: str, tmp_path: Path) -> None:
    for read_only in (True, False):
        with pytest.raises(errors.CatalogueDamaged, match=r"data\.mdb is missing"):
            Catalogue.open(path, create=False, read_only=read_only)
    with pytest.raises(errors.CatalogueDamaged, match="missing"):
        Catalogue.open(path, create=True, read_only=True)
    assert os.listdir(tmp_path) == []
    os.mkdir(path)
    Path(path, "data.mdb").touch()
    with pytest.raises(errors.CatalogueDamaged, match=r"data\.mdb is empty"):
        Catalogue.open(path, create=False)


def test_a_creation_that_was_cut_short_is_finished(path: str) -> None:
    os.mkdir(path)
    lmdb.open(path).close()
    with pytest.raises(errors.CatalogueDamaged, match="no format entry"):
        Catalogue.open(path, create=False)
    with Catalogue.open(path, create=True) as catalogue:
        assert catalogue.database_id


@pytest.mark.parametrize("data", [b"x" * 8192, b"\0" * 8192, b"short"])
def test_a_file_that_is_not_lmdbs_is_damage(path: str, data: bytes) -> None:
    os.mkdir(path)
    Path(path, "data.mdb").write_bytes(data)
    for read_only in (True, False):
        with pytest.raises(errors.CatalogueDamaged, match="logdb repair"):
            Catalogue.open(path, create=False, read_only=read_only)


OPEN = """
import sys
from logdb.meta import Catalogue
Catalogue.open(sys.argv[1], create=False, read_only=sys.argv[2] == "r", no_lock=sys.argv[2] == "r")
"""


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("page_count", [2, 3, -1])
def test_a_file_cut_short_is_damage_and_kills_no_process(path: str, mode: str, page_count: int) -> None:
    with Catalogue.open(path, create=True) as catalogue:
        for number in range(20):
            catalogue.write(make_topic(f"t{number}", 20, 2))
    data_path = os.path.join(path, "data.mdb")
    page_size_bytes = os.sysconf("SC_PAGE_SIZE")
    os.truncate(data_path, (page_count % (os.path.getsize(data_path) // page_size_bytes)) * page_size_bytes)
    done = run_python(OPEN, path, mode)
    assert done.returncode == 1
    assert "CatalogueDamaged" in done.stderr
    assert "shorter than its pages" in done.stderr


def test_a_newer_format_is_refused_with_both_numbers(path: str) -> None:
    Catalogue.open(path, create=True).close()
    raw_put(path, b"f", entries._seal(b"f", {"format": 2, "id": "x", "more": [1]}))
    with pytest.raises(errors.UnsupportedFormat, match="format 2; this logdb knows up to 1"):
        Catalogue.open(path, create=False)


READS: dict[bytes, Callable[[Catalogue], object]] = {
    b"t events": lambda catalogue: catalogue.topics(),
    b"l events 0000000000": lambda catalogue: catalogue.logs("events"),
    b"s events 0000000000 00000000000000000100": lambda catalogue: catalogue.segments("events", 0),
    b"i 00000000000000000001": lambda catalogue: catalogue.intents(),
}


@pytest.mark.parametrize("key", READS)
def test_a_flipped_bit_in_a_value_is_reported_with_its_key(path: str, key: bytes) -> None:
    with Catalogue.open(path, create=True) as catalogue:
        catalogue.write(make_topic("events", 1, 2))
        catalogue.write(lambda txn: txn.add_intent(Intent("delete", "events", {})))
    value = bytearray(raw_get(path, key))
    value[len(value) // 2] ^= 4
    raw_put(path, key, bytes(value))
    with Catalogue.open(path, create=False) as catalogue:
        with pytest.raises(errors.CatalogueDamaged, match=rf"entry '{key.decode()}': stored CRC [0-9a-f]+, computed") as caught:
            READS[key](catalogue)
        assert caught.value.path == path
        for other, read in READS.items():
            if other != key:
                read(catalogue)


def test_the_whole_file_is_checked_against_its_checksum(path: str) -> None:
    with Catalogue.open(path, create=True) as catalogue:
        catalogue.write(make_topic("events", 50, 2))
    expected = file_checksum(IO(), path)
    data_path = Path(path, "data.mdb")
    whole = data_path.read_bytes()
    assert expected[0] == len(whole)
    check_file(IO(), path, expected)
    for position in range(7, len(whole), 509):
        data_path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(errors.CatalogueDamaged, match=f"closed with {len(whole)} and {expected[1]:08x}"):
            check_file(IO(), path, expected)
    for other in (whole[:-1], whole + b"\0", b""):
        data_path.write_bytes(other)
        with pytest.raises(errors.CatalogueDamaged, match=f"{len(other)} bytes"):
            check_file(IO(), path, expected)
    data_path.unlink()
    with pytest.raises(errors.CatalogueDamaged, match="missing"):
        check_file(IO(), path, expected)


# ---------------------------------------------------------------- a disk that fails


@pytest.mark.parametrize(
    ("call", "number", "expected"),
    [
        ("mkdir", errno.ENOSPC, errors.DiskFull),
        ("mkdir", errno.EIO, errors.WriteFailed),
        ("mkdir", errno.EROFS, errors.ReadOnly),
        ("fsync_dir", errno.EIO, errors.SyncFailed),
    ],
)
def test_a_creation_that_fails_has_a_name_and_can_be_repeated(path: str, call: str, number: int, expected: type[errors.LogdbError]) -> None:
    def fail(path: str) -> None:
        raise OSError(number, os.strerror(number), path)

    broken = IO()
    setattr(broken, call, fail)
    with pytest.raises(expected, match=os.strerror(number)):
        Catalogue.open(path, create=True, io=broken)
    Catalogue.open(path, create=True).close()


def test_a_file_that_cannot_be_read_is_damage(path: str) -> None:
    class Broken(IO):
        def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    Catalogue.open(path, create=True).close()
    with pytest.raises(errors.CatalogueDamaged, match=r"cannot be read: .*Input/output error"):
        check_file(Broken(), path, (0, 0))


def lmdb_error(kind: type[lmdb.Error], code: int) -> lmdb.Error:
    error = kind("mdb_txn_commit: as LMDB says it")
    error.code = code
    return error


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [
        (lmdb.DiskError, errno.ENOSPC, errors.DiskFull),
        (lmdb.Error, errno.EDQUOT, errors.DiskFull),
        (lmdb.Error, errno.EIO, errors.SyncFailed),
        (lmdb.PanicError, -30795, errors.SyncFailed),
        (lmdb.Error, errno.EFBIG, errors.WriteFailed),
        (lmdb.Error, errno.EROFS, errors.ReadOnly),
        (lmdb.CorruptedError, -30796, errors.CatalogueDamaged),
        (lmdb.PageNotFoundError, -30797, errors.CatalogueDamaged),
    ],
)
def test_errors_of_lmdb_get_names(kind: type[lmdb.Error], code: int, expected: type[errors.LogdbError], tmp_path: Path) -> None:
    named = named_error(lmdb_error(kind, code), str(tmp_path), 17)
    assert type(named) is expected
    assert str(tmp_path) in str(named)


def test_a_disk_that_says_nothing_is_not_taken_for_a_full_one() -> None:
    assert isinstance(named_error(lmdb_error(lmdb.Error, errno.EIO), "/nowhere/at/all", 17), errors.SyncFailed)


def test_eio_on_a_full_disk_is_a_short_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IO, "free_bytes", lambda io, path: 4096)
    named = named_error(lmdb_error(lmdb.Error, errno.EIO), "/somewhere", 17)
    assert isinstance(named, errors.DiskFull)
    assert named.size_bytes == 17


class FailingTransactions:
    """An LMDB environment of which write transactions cannot be committed."""

    def __init__(self, real: lmdb.Environment, error: lmdb.Error) -> None:
        self._real, self._error, self.attempts = real, error, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def begin(self, *, write: bool = False) -> Any:
        if write:
            self.attempts += 1
            raise self._error
        return self._real.begin()


def fail_writes(catalogue: Catalogue, error: lmdb.Error) -> FailingTransactions:
    failing = FailingTransactions(catalogue._environment._own(), error)
    catalogue._environment._lmdb = failing
    catalogue._environment._own = lambda: failing
    return failing


def test_a_failed_sync_is_final_until_a_writer_opens_anew(catalogue: Catalogue, path: str) -> None:
    catalogue.write(make_topic("events"))
    failing = fail_writes(catalogue, lmdb_error(lmdb.Error, errno.EIO))
    for _ in range(2):
        with pytest.raises(errors.SyncFailed, match="read-only until reopened"):
            catalogue.write(make_topic("more"))
    assert failing.attempts == 1
    assert list(catalogue.topics()) == ["events"]
    del catalogue._environment._own
    with Catalogue.open(path, create=False, read_only=True), pytest.raises(errors.SyncFailed):
        catalogue.write(make_topic("more"))
    with Catalogue.open(path, create=False) as anew:
        anew.write(make_topic("more"))
    assert list(catalogue.topics()) == ["events", "more"]


class Panicking:
    """LMDB whose next commit finds no room for its meta page: it refuses all later ones, until it is opened anew."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._environment = catalogue._environment
        self._real, self._failed = self._environment._own(), False
        self._environment._lmdb = self
        self._environment._own = self._environment._present

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @contextlib.contextmanager
    def _write(self) -> Iterator[Any]:
        with self._real.begin(write=True) as txn:
            yield txn
            txn.abort()
        self._failed = True
        raise lmdb_error(lmdb.DiskError, errno.ENOSPC)

    def begin(self, *, write: bool = False) -> Any:
        if not write:
            return self._real.begin()
        if self._failed:
            raise lmdb_error(lmdb.PanicError, -30795)
        return self._write()


class Reopened:
    """LMDB that was opened anew after a panic, of which a call does something else."""

    def __init__(self, real: Any, **calls: Callable[..., Any]) -> None:
        self._real, self.synced = real, False
        self.__dict__.update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sync(self, force: bool) -> None:
        self.synced = force
        self._real.sync(force)


def reopened_as(monkeypatch: pytest.MonkeyPatch, **calls: Callable[..., Any]) -> list[Reopened]:
    opened, real = [], environment._open_lmdb

    def reopen(*arguments: Any) -> Any:
        opened.append(Reopened(real(*arguments), **calls))
        return opened[-1]

    monkeypatch.setattr(environment, "_open_lmdb", reopen)
    return opened


def test_no_room_for_a_meta_page_is_a_full_disk(catalogue: Catalogue, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue.write(make_topic("events"))
    told: list[errors.SyncFailed] = []
    watcher = Watcher(os.stat(path).st_dev, told.append)
    Panicking(catalogue)
    opened = reopened_as(monkeypatch)
    with pytest.raises(errors.DiskFull):
        catalogue.write(make_topic("more"))
    assert [each.synced for each in opened] == [True], "a power cut would choose between the two pages"
    catalogue.write(make_topic("later"))
    assert list(catalogue.topics()) == ["events", "later"]
    assert told == []
    del watcher


def fails(*_arguments: Any) -> None:
    raise lmdb_error(lmdb.DiskError, errno.ENOSPC)


@pytest.mark.parametrize("calls", [{"sync": fails}, {"info": lambda: {"last_txnid": 1_000, "map_size": 1 << 20}}])
def test_a_meta_page_of_which_nothing_is_known_is_a_failed_sync(
    catalogue: Catalogue, path: str, monkeypatch: pytest.MonkeyPatch, calls: dict[str, Callable[..., Any]]
) -> None:
    """It cannot be synced, or it is that of the transaction that was refused."""
    told: list[errors.SyncFailed] = []
    watcher = Watcher(os.stat(path).st_dev, told.append)
    Panicking(catalogue)
    reopened_as(monkeypatch, **calls)
    for _ in range(2):
        with pytest.raises(errors.SyncFailed):
            catalogue.write(make_topic("more"))
    assert len(told) == 1
    del watcher


def test_a_catalogue_that_could_not_be_opened_anew_is_opened_later(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the process has no descriptor left for a moment."""
    catalogue.write(make_topic("events"))
    Panicking(catalogue)

    def refuse(*_arguments: Any) -> None:
        raise errors.ReadFailed("catalogue", 0, "Too many open files")

    monkeypatch.setattr(environment, "_open_lmdb", refuse)
    for _ in range(2):
        with pytest.raises(errors.ReadFailed, match="open files"):
            catalogue.write(make_topic("more"))
    monkeypatch.undo()
    catalogue.write(make_topic("later"))
    assert list(catalogue.topics()) == ["events", "later"]


def test_a_failed_sync_is_told_to_the_device(catalogue: Catalogue, path: str) -> None:
    """Of any catalogue: that of a snapshot, or of a restored database, has no process that would tell."""
    told: list[errors.SyncFailed] = []
    watcher = Watcher(os.stat(path).st_dev, told.append)
    fail_writes(catalogue, lmdb_error(lmdb.Error, errno.EIO))
    for _ in range(2):
        with pytest.raises(errors.SyncFailed) as caught:
            catalogue.write(make_topic("more"))
    assert len(told) == 1
    assert told[0].path == caught.value.path == path
    del watcher


def test_an_opening_that_fails_is_no_failed_sync(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Catalogue.open(path, create=True).close()

    def refuse(*_arguments: Any, **_named: Any) -> None:
        raise lmdb_error(lmdb.Error, errno.EIO)

    monkeypatch.setattr(lmdb, "open", refuse)
    with pytest.raises(errors.ReadFailed):
        Catalogue.open(path, create=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB, of which LMDB's lock file takes the half."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(mounted)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def test_a_full_disk_is_named_readable_and_writable_again(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * (128 << 10))
    with Catalogue.open(str(small_disk / "catalogue"), create=True) as catalogue:
        catalogue.write(make_topic("events"))
        for _ in range(3):
            with pytest.raises(errors.DiskFull) as caught:
                catalogue.write(make_topic("wide", 1_000))
        assert caught.value.retriable
        assert caught.value.size_bytes > 100_000
        assert list(catalogue.topics()) == ["events"]
        ballast.unlink()
        catalogue.write(make_topic("small", 100))
    with Catalogue.open(str(small_disk / "catalogue"), create=False) as catalogue:
        assert list(catalogue.topics()) == ["events", "small"]
        assert len(catalogue.logs()) == 101
