import os
import struct
import threading

import lmdb
import pytest

import logdb
from logdb.disk import Watcher
from logdb.errors import Closed, Forked, ReadFailed, WriteFailed
from logdb.io import IO
from logdb.meta import views
from logdb.meta.views import Entry, View, ViewDamaged, ViewPosition


class BootIO(IO):
    """A machine that can be started anew."""

    boot = "first"

    def boot_id(self):
        return self.boot


@pytest.fixture
def io():
    return BootIO()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "views" / "topic")


@pytest.fixture
def view(path, io):
    opened = View.open(path, io)
    yield opened
    opened.close()


def entry(value, offset=0, *, partition=0, timestamp_ms=0):
    return Entry(value, partition, offset, timestamp_ms)


def die(view):
    """As a process that is killed: nothing is synced, and nothing said."""
    view._lmdb.close()
    view._closed = True


def test_what_was_put_is_found_until_a_tombstone_takes_it(view):
    view.update({b"a": entry(b"1", 5, partition=3, timestamp_ms=7), b"b": entry(b"")}, {3: ViewPosition(6, 2, 1, 9)})
    assert view.get(b"a") == (b"1", 3, 5, 7)
    assert view.get(b"b") == (b"", 0, 0, 0)
    assert view.get(b"c") is None
    assert len(view) == 2
    assert view.positions() == {3: ViewPosition(6, 2, 1, 9)}
    view.update({b"a": entry(None, 6), b"c": entry(None, 7)}, {3: ViewPosition(8), 0: ViewPosition(1)})
    assert view.get(b"a") is None
    assert len(view) == 1
    assert view.positions() == {3: ViewPosition(8), 0: ViewPosition(1)}


@pytest.mark.parametrize("size", [0, 1, 509, 510, 511, 70_000])
def test_keys_of_any_length(view, size):
    keys = [bytes(size), bytes(size) + b"\1", b"\1" * size]
    view.update({key: entry(b"v%d" % number, number) for number, key in enumerate(keys)}, {})
    for key in keys:
        found = view.get(key)
        assert found is not None
        assert found.value == b"v%d" % max(number for number, other in enumerate(keys) if other == key)
    assert {key for key, _ in view.scan()} == set(keys)
    view.update({key: entry(None) for key in keys}, {})
    assert len(view) == 0


def test_large_values(view):
    view.update({b"large": entry(b"x" * 5_000_000)}, {})
    assert view.get(b"large").value == b"x" * 5_000_000


def test_of_two_partitions_the_younger_record_counts(view):
    view.update({b"k": entry(b"new", 3, partition=1, timestamp_ms=20)}, {}, mixed=True)
    view.update({b"k": entry(b"old", 9, partition=0, timestamp_ms=10)}, {}, mixed=True)
    assert view.get(b"k").value == b"new"
    view.update({b"k": entry(None, 9, partition=0, timestamp_ms=10)}, {}, mixed=True)
    assert view.get(b"k").value == b"new"
    view.update({b"k": entry(b"back", 4, partition=1, timestamp_ms=1)}, {}, mixed=True)
    assert view.get(b"k").value == b"back", "within a partition the offset counts"
    view.update({b"k": entry(None, 10, partition=0, timestamp_ms=20)}, {}, mixed=True)
    assert view.get(b"k") is None


def test_a_scan_shows_one_moment(view):
    view.update({b"%03d" % number: entry(b"old", number) for number in range(300)}, {})
    scan = view.scan()
    first = next(scan)
    view.update({b"%03d" % number: entry(b"new", number) for number in range(100, 400)}, {})
    view.update({b"%03d" % number: entry(None) for number in range(50)}, {})
    assert [first, *scan] == [(b"%03d" % number, entry(b"old", number)) for number in range(300)]
    assert len(view) == 350
    left = view.scan()
    next(left)
    del left  # not iterated to its end
    assert view._snapshot_count == 0


def test_purging_takes_what_lies_before_the_start(view, monkeypatch):
    monkeypatch.setattr(views, "_PURGED_COUNT", 7)
    view.update({b"%d" % number: entry(b"v", number, partition=number % 3) for number in range(100)}, {})
    view.purge({0: ViewPosition(100, 0, 50, 0), 1: ViewPosition(100, 0, 0, 0), 2: ViewPosition(100, 0, 1_000, 0)})
    left = sorted(found.offset for _, found in view.scan())
    assert left == [n for n in range(100) if n % 3 == 1 or (n % 3 == 0 and n >= 50)]
    assert view.positions()[2] == ViewPosition(100, 0, 1_000, 0)
    view.purge({0: ViewPosition(100, 0, 100, 0), 1: ViewPosition(100, 0, 100, 0)})
    assert len(view) == 0


def test_clearing_leaves_nothing_but_to_who_iterates(view):
    view.update({b"a": entry(b"1"), b"b": entry(b"2")}, {0: ViewPosition(2)})
    scan = view.scan()
    next(scan)
    view.clear()
    assert (len(view), view.positions(), view.get(b"a")) == (0, {}, None)
    assert next(scan)[0] == b"b"


# ---------------------------------------------------------------- what is found again


def reopened(path, io):
    with_entries = View.open(path, io)
    found = {key: found.value for key, found in with_entries.scan()}, with_entries.positions()
    with_entries.close()
    return found


FULL = ({b"a": b"1", b"b": b"2"}, {0: ViewPosition(2)})
EMPTY = ({}, {})


@pytest.fixture
def filled(path, io):
    view = View.open(path, io)
    view.update({b"a": entry(b"1"), b"b": entry(b"2", 1)}, {0: ViewPosition(2)})
    return view


def test_after_a_clean_close(filled, path, io):
    filled.close()
    filled.close()
    io.boot = "second"
    assert reopened(path, io) == FULL
    assert reopened(path, io) == FULL


def test_after_a_kill(filled, path, io):
    die(filled)
    assert reopened(path, io) == FULL


def test_after_a_power_cut_it_is_made_anew(filled, path, io):
    die(filled)
    io.boot = "second"
    assert reopened(path, io) == EMPTY


def test_after_a_power_cut_of_one_that_was_clean_and_opened_again(filled, path, io):
    filled.close()
    again = View.open(path, io)
    again.update({b"c": entry(b"3")}, {})
    die(again)
    io.boot = "second"
    assert reopened(path, io) == EMPTY


def test_a_machine_without_a_boot_id_believes_clean_ones_only(path, io):
    io.boot = ""
    view = View.open(path, io)
    view.update({b"a": entry(b"1")}, {})
    view.close()
    view = View.open(path, io)
    assert view.get(b"a") is not None
    view.update({b"b": entry(b"2")}, {})
    die(view)
    assert reopened(path, io) == EMPTY


@pytest.mark.parametrize("name", ["mark", "data.mdb", "lock.mdb"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "deep"])
@pytest.mark.parametrize("close", [View.close, die])
def test_a_damaged_file_is_seen_and_the_view_made_anew(filled, path, io, name, damage, close):
    close(filled)
    where = os.path.join(path, name)
    with open(where, "rb") as file:
        data = file.read()
    if damage == "missing":
        os.unlink(where)
    else:
        at = len(data) // 2
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        changed = {"empty": b"", "cut": data[:at], "flipped": flipped, "deep": b"[" * 4000}[damage]
        with open(where, "wb") as file:
            file.write(changed)
    found = reopened(path, io)
    if name == "lock.mdb" or (name == "data.mdb" and damage == "flipped" and close is die):  # a byte of no page in use
        assert found in (FULL, EMPTY)
    else:
        assert found == EMPTY
    view = View.open(path, io)
    view.update({b"new": entry(b"1")}, {})
    view.close()
    assert b"new" in reopened(path, io)[0]


def test_every_flipped_bit_of_an_entry_is_seen(view):
    view.update({b"key": entry(b"value")}, {0: ViewPosition(1)})
    with view._lmdb.begin(db=view._entries) as txn:
        whole = txn.get(b"\0key")
    for at in range(len(whole)):
        with view._lmdb.begin(db=view._entries, write=True) as txn:
            txn.put(b"\0key", whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        view.update({}, {})
        with pytest.raises(ViewDamaged, match="CRC"):
            view.get(b"key")
        with pytest.raises(ViewDamaged):
            list(view.scan())
    with view._lmdb.begin(db=view._positions, write=True) as txn:
        txn.put(b"\0\0\0\0", b"short")
    with pytest.raises(ViewDamaged, match="position"):
        view.positions()
    view.recreate()
    assert (len(view), view.positions()) == (0, {})


def test_one_that_is_not_kept_leaves_nothing(path, io):
    for _ in range(2):
        view = View.open(path, io, kept=False)
        assert len(view) == 0
        view.update({b"a": entry(b"1")}, {})
        view.close()
        assert os.listdir(path) == []


def test_deleted(filled, path):
    filled.delete()
    assert not os.path.exists(path)


class UnsyncedLmdb:
    """An environment whose sync fails."""

    def __init__(self, environment):
        self._environment = environment

    def __getattr__(self, name):
        return getattr(self._environment, name)

    def sync(self, force):
        raise lmdb.DiskError("sync failed")


def fail_at_close(view):
    """The sync of ``close`` will fail, and the files are behind a link by then."""
    os.rename(view.path, view.path + ".away")
    os.symlink(view.path + ".away", view.path)
    view._lmdb = UnsyncedLmdb(view._lmdb)


def is_open(view):
    try:
        view._lmdb.info()
    except lmdb.Error:
        return False
    return True


def test_a_view_whose_directory_became_a_link_is_closed(filled, path):
    fail_at_close(filled)
    with pytest.raises(ReadFailed, match="symbolic link"):
        filled.close()
    assert not is_open(filled)
    assert "data.mdb" in os.listdir(path), "files behind a link stay"


def test_a_view_that_cannot_be_recreated_is_no_failed_sync(filled, path):
    failures = []
    watcher = Watcher(os.stat(path).st_dev, failures.append)
    os.rename(path, path + ".away")
    os.symlink(path + ".away", path)
    with pytest.raises(ReadFailed, match="symbolic link"):
        filled.recreate()
    filled.close()
    assert not is_open(filled) and failures == []
    del watcher


def test_a_view_that_fails_to_close_keeps_no_other_open(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        opened = []
        for topic in ("a", "b", "c"):
            db.create_topic(topic)
            db.append(topic, b"v", key=b"k")
            db.table(topic)[b"k"]
            opened.append(db._views.of(topic)._state.view)
        fail_at_close(opened[1])
        db._views.close()
        assert [is_open(view) for view in opened] == [False] * 3


# ---------------------------------------------------------------- limits


def test_the_map_grows(path, io, monkeypatch):
    monkeypatch.setattr(views, "MAP_SIZE_BYTES", 1 << 20)
    view = View.open(path, io)
    scan = None
    for number in range(100):
        view.update({b"%d" % number: entry(b"x" * 100_000)}, {0: ViewPosition(number)})
    scan = view.scan()
    next(scan)
    with pytest.raises(WriteFailed, match="1 iterators are open"):
        for number in range(100, 1000):
            view.update({b"%d" % number: entry(b"x" * 100_000)}, {0: ViewPosition(number)})
    assert view.positions() == {0: ViewPosition(number - 1)}
    del scan
    view.update({b"more": entry(b"x" * 100_000)}, {})
    assert len(view) == number + 1
    view.close()


def test_little_address_space_is_made_do_with(path, io, monkeypatch):
    real, tried = lmdb.open, []

    def scarce(path, *, map_size, **options):
        tried.append(map_size)
        if map_size > 1 << 30:
            raise lmdb.MemoryError("no room")
        return real(path, map_size=map_size, **options)

    monkeypatch.setattr(lmdb, "open", scarce)
    view = View.open(path, io)
    view.update({b"a": entry(b"1")}, {})
    assert tried[0] == views.MAP_SIZE_BYTES
    assert tried[-1] == 1 << 30
    view.close()


def test_threads_read_while_one_writes(view):
    stop, failures = threading.Event(), []

    def read():
        try:
            while not stop.is_set():
                found = [view.get(b"%d" % number) for number in range(20)]
                assert all(one is None or one.value == b"%d" % one.offset for one in found)
                moment = {one.offset // 20 for _, one in view.scan()}
                assert len(moment) <= 1, moment
        except Exception as error:  # noqa: BLE001 -- the test is to hear of it
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for round_number in range(150):
        offsets = range(20 * round_number, 20 * round_number + 20)
        view.update({b"%d" % (offset % 20): entry(b"%d" % offset, offset) for offset in offsets}, {0: ViewPosition(offsets.stop)})
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_aborted_write_ends_while_threads_iterate(view):
    view.update({b"%d" % number: entry(b"1", number) for number in range(500)}, {})
    done, reads = threading.Event(), []

    def read():
        while not done.is_set():
            reads.append(len(list(view.scan())))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            with pytest.raises(struct.error):
                view.update({b"more": entry(b"1", 1 << 70)}, {})
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert set(reads) == {500}


def test_a_closed_one_and_one_of_another_process(view):
    view.update({b"a": entry(b"1"), b"b": entry(b"2")}, {})
    scan = view.scan()
    next(scan)
    view._pid += 1
    with pytest.raises(Forked):
        view.get(b"a")
    view._pid -= 1
    view.close()
    with pytest.raises(Closed):
        view.get(b"a")
    with pytest.raises(Closed):
        next(scan)
    with pytest.raises(Closed):
        view.update({}, {})


def test_one_that_is_closed_while_an_iteration_begins_says_so(view, monkeypatch):
    view.update({b"a": entry(b"1")}, {})
    reading = view._reading

    class ClosingLock:
        """Another thread closes the view as soon as the iteration has given up the lock."""

        def __enter__(self):
            reading.acquire()

        def __exit__(self, *_):
            reading.release()
            monkeypatch.undo()
            view.close()

    monkeypatch.setattr(view, "_reading", ClosingLock())
    with pytest.raises(Closed):
        next(view.scan())
