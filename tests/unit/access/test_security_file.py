import errno
import json
import os
import random
import stat
import threading
import tracemalloc
from unittest.mock import Mock

import pytest

from logdb.access import security_document
from logdb.access.security_document import Security, Token, decode, encode
from logdb.errors import CorruptionError, DirectoryLocked, DiskFull, ReadFailed, UnsupportedFormat
from logdb.io import IO
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from logdb.store import json_line
from logdb.store import security_file as store_security_file
from logdb.store.security_file import LOOK_MS, SecurityFile
from support.clock import StillIO
from support.faulty_io import FaultyIO
from support.power_cut import Killed, PowerCutIO
from support.security import acl, credentials

ALICE = Principal("User", "alice")
FULL = Security(
    users={"alice": credentials("secret"), "bob": {"SCRAM-SHA-256": credentials("x")["SCRAM-SHA-256"]}},
    super_users=frozenset((Principal("User", "root"), Principal("User", "CN=admin,O=Acme"))),
    tokens=(Token("ci", ALICE, "ab" * 32, 1000, 2000), Token("spark", Principal("Robot", "r"), "cd" * 32, 1000, None)),
    acls=(acl("Allow alice@* Read Topic orders"), acl("Deny *@10.0.0.1 All Group g…"), acl("Allow ü@* Alter Cluster kafka-cluster")),
    quotas={None: Quota(requests=100), ALICE: Quota(1, 2, 3)},
    seed=b"s" * 32,
)
EMPTY = Security(seed=b"s" * 32)


@pytest.fixture
def io():
    return IO()


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path)


def load(io, directory):
    return security_document.load(SecurityFile(io, directory))


def change(io, directory, edit):
    return security_document.change(SecurityFile(io, directory), edit)


def follow(io, directory, take):
    return SecurityFile(io, directory).follow(lambda data: take(None if data is None else decode(data, "security.json")))


def put(io, directory, content):
    change(io, directory, lambda _: (content, None))


def same(one, other):
    return encode(one) == encode(other)


def test_what_is_written_is_read(io, directory):
    assert load(io, directory) is None
    put(io, directory, FULL)
    found = load(io, directory)
    assert (found.users, found.super_users, found.quotas) == (FULL.users, FULL.super_users, FULL.quotas)
    assert (set(found.tokens), set(found.acls)) == (set(FULL.tokens), set(FULL.acls))
    put(io, directory, EMPTY)
    assert load(io, directory) == EMPTY


def test_the_first_change_makes_a_seed_that_stays(io, directory):
    put(io, directory, FULL._replace(seed=b""))
    seed = load(io, directory).seed
    assert len(seed) == 32
    change(io, directory, lambda content: (content._replace(users={}), None))
    assert load(io, directory).seed == seed


def test_only_its_owner_reads_it(io, directory):
    before = os.umask(0)
    try:
        put(io, directory, FULL)
        put(io, directory, FULL)
    finally:
        os.umask(before)
    for name in os.listdir(directory):
        assert stat.S_IMODE(os.stat(os.path.join(directory, name)).st_mode) == 0o600, name
    assert sorted(os.listdir(directory)) == ["security.json", "security.lock"]


def test_every_flipped_bit_is_found():
    data = encode(FULL)
    for position in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            with pytest.raises((CorruptionError, UnsupportedFormat)):
                decode(bytes(broken), "security.json")


@pytest.mark.parametrize("size_bytes", [0, 1, 100, len(encode(FULL)) - 1])
def test_what_was_cut_off_is_damaged_and_not_empty(size_bytes):
    with pytest.raises(CorruptionError, match=r"security\.json is corrupt at byte 0: "):
        decode(encode(FULL)[:size_bytes], "security.json")


def line(**fields):
    """A line with the right CRC, of what ``FULL`` says but for some fields."""
    known = json.loads(encode(FULL))
    for name in ("format", "crc"):
        known.pop(name)
    return json_line.encode({**known, **fields}, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"users": {"alice": {"SCRAM-SHA-1": {}}}},
        {"users": {"alice": {"SCRAM-SHA-256": {"salt": "", "iterations": 1, "stored_key": "", "server_key": ""}}}},
        {"users": {"alice": {"SCRAM-SHA-256": {"salt": "?", "iterations": 4096, "stored_key": "", "server_key": ""}}}},
        {"users": ["alice"]},
        {"super_users": ["alice"]},
        {"super_users": None},
        {"tokens": [{"name": "ci"}]},
        {"tokens": [{"name": "ci", "owner": "User:alice", "sha256": "ab", "created_ms": 0, "expires_ms": "never"}]},
        {"acls": [{"permission": "Allow"}]},
        {"acls": [acl("Allow alice@* Read Topic t")._asdict() | {"principal": "User:alice", "operation": "Fly"}]},
        {"acls": {}},
        {"quotas": {"User:alice": {"requests": 0}}},
        {"quotas": {"alice": {}}},
        {"more": 1},
    ],
)
def test_what_means_nothing_is_damaged(fields):
    with pytest.raises(CorruptionError):
        decode(line(**fields), "security.json")


def test_a_newer_format_is_named():
    with pytest.raises(UnsupportedFormat):
        decode(json_line.encode({}, 2), "security.json")


def test_changes_at_the_same_time_are_all_made(directory):
    def add(number):
        def edit(content):
            return content._replace(super_users=content.super_users | {Principal("User", f"u{number}")}), None

        change(IO(), directory, edit)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(load(IO(), directory).super_users) == 20


def test_a_small_file_takes_memory_for_what_it_holds(io, directory):
    put(io, directory, FULL)
    taken = []
    following = SecurityFile(io, directory).follow(taken.append)
    tracemalloc.start()  # counts a buffer by its size, touched or not
    try:
        following.refresh()
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
        following.close()
    assert taken == [encode(FULL)]


def test_who_holds_the_lock_is_waited_for_and_then_named(io, directory, monkeypatch):
    monkeypatch.setattr(store_security_file, "_LOCK_WAIT_S", 0.01)
    fd = io.open(os.path.join(directory, "security.lock"), os.O_RDWR | os.O_CREAT)
    try:
        assert io.lock(fd)
        with pytest.raises(DirectoryLocked, match=r"security\.lock"):
            put(IO(), directory, FULL)
    finally:
        io.close(fd)
    put(IO(), directory, FULL)


def test_an_edit_that_fails_changes_nothing(io, directory):
    put(io, directory, FULL)
    with pytest.raises(KeyError):
        change(io, directory, lambda content: {}["no such user"])
    assert same(load(io, directory), FULL)


def test_a_damaged_file_is_not_written_over(io, directory):
    put(io, directory, FULL)
    path = os.path.join(directory, "security.json")
    with open(path, "r+b") as file:
        file.truncate(100)
    with pytest.raises(CorruptionError):
        put(io, directory, EMPTY)
    assert os.path.getsize(path) == 100


def test_a_full_disk_leaves_the_old_file(directory):
    io = FaultyIO()
    put(io, directory, FULL)
    io.fill_up()
    with pytest.raises(DiskFull):
        put(io, directory, EMPTY)
    assert same(load(IO(), directory), FULL)


def test_a_power_cut_leaves_the_old_file_or_the_new_one(tmp_path):
    counted = 1
    while True:
        root = tmp_path / f"run-{counted}"
        root.mkdir()
        put(IO(), str(root), FULL)
        io = PowerCutIO(str(root))
        io.kill_at = counted
        try:
            put(io, str(root), EMPTY)
            done = True
        except Killed:
            done = False
        for seed in range(5):
            target = tmp_path / f"cut-{counted}-{seed}"
            io.cut(str(target), random.Random(seed))
            found = load(IO(), str(target))
            assert found == EMPTY or (not done and same(found, FULL)), f"killed at call {counted}, seed {seed}"
            put(IO(), str(target), FULL)
        if done:
            break
        counted += 1
    assert counted >= 4


@pytest.fixture
def watched(directory):
    """The file, and what was handed over of it."""
    taken = []
    watched = follow(StillIO(), directory, taken.append)
    yield watched, taken
    watched.close()


def look(watched):
    """When it is time to."""
    watched._io.now_ms += LOOK_MS
    watched.refresh()


def test_it_is_looked_at_now_and_then(io, directory, watched):
    watched, taken = watched
    watched.refresh()
    put(io, directory, FULL)
    watched._io.now_ms += LOOK_MS - 1
    watched.refresh()
    assert taken == [None]
    watched._io.now_ms += 1
    watched.refresh()
    assert [same(content, FULL) for content in taken[1:]] == [True]


def test_a_change_counts_when_it_returns(io, directory):
    taken = []
    watched = follow(io, directory, taken.append)
    for number in range(20):
        watched.refresh()
        put(io, directory, Security(super_users=frozenset((Principal("User", f"u{number}"),))))
        watched.refresh()
        assert taken[-1] == load(io, directory)
    watched.close()


def test_a_replaced_file_is_noticed(io, directory, watched):
    watched, taken = watched
    for _ in range(3):
        look(watched)
    assert taken == [None]
    for number in range(50):  # numbers of deleted files are given anew
        put(io, directory, Security(super_users=frozenset((Principal("User", f"u{number % 3}"),))))
        look(watched)
        look(watched)
        assert taken[1:] == [load(io, directory)]
        del taken[1:]
    os.unlink(watched.path)
    look(watched)
    look(watched)
    assert taken == [None, None]


def test_a_file_that_is_written_over_is_noticed(io, directory, watched, tmp_path):
    watched, taken = watched
    put(io, directory, FULL)
    look(watched)
    with open(watched.path, "wb") as file:
        file.write(encode(EMPTY))
    look(watched)
    assert taken[1:] == [EMPTY]


def test_a_damaged_file_is_said_once_until_it_is_another(io, directory, watched):
    watched, taken = watched
    put(io, directory, FULL)
    with open(watched.path, "r+b") as file:
        file.truncate(100)
    with pytest.raises(CorruptionError):
        look(watched)
    look(watched)
    os.unlink(watched.path)
    put(io, directory, EMPTY)
    look(watched)
    assert taken == [EMPTY]


def test_a_file_that_cannot_be_read_for_a_moment_is_read_at_the_next_look(io, directory, watched, monkeypatch):
    """As when all descriptors are taken: a right that was taken away meanwhile must not stay."""
    watched, taken = watched
    put(io, directory, FULL)
    look(watched)
    put(io, directory, EMPTY)
    with monkeypatch.context() as patch:
        patch.setattr(watched._io, "open", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        for _ in range(2):
            with pytest.raises(ReadFailed, match="Too many"):
                look(watched)
    look(watched)
    assert taken[1:] == [EMPTY]


def test_who_looks_while_another_reads_waits_for_it(io, directory):
    """A right that was taken away does not last for the time that reading takes."""
    put(io, directory, FULL)
    reading, go_on, seen = threading.Event(), threading.Event(), []

    def take(content):
        reading.set()
        assert go_on.wait(60)
        seen.append("taken")

    watched = follow(io, directory, take)

    def look():
        watched.refresh()
        seen.append("looked")

    threads = [threading.Thread(target=look)]
    threads[0].start()
    assert reading.wait(60)
    threads.append(threading.Thread(target=look))
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert seen == ["taken", "looked", "looked"]
    watched.close()
