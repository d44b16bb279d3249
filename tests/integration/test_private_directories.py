"""Where there is a ``security.json``, the directory and all that is made of it is its owner's only."""

import itertools
import logging
import os
import stat
import threading

import pytest

import logdb
from logdb.access import security_document
from logdb.access.access_control import AccessControl
from logdb.access.security import DocumentCredentialStore
from logdb.errors import LogdbError
from logdb.io import IO
from logdb.store.security_file import SecurityFile
from support.faulty_io import FaultyIO
from support.security import secure
from support.serving import served
from support.waiting import until


@pytest.fixture(autouse=True)
def open_place(tmp_path):
    """Else all that is made there is private by that."""
    os.chmod(tmp_path, 0o755)
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(path):
    """What in a directory others may read, write or enter, itself included."""
    found = [path, *(os.path.join(where, name) for where, *names in os.walk(path) for name in itertools.chain(*names))]
    assert len(found) > 5
    return [(str(one), oct(os.stat(one).st_mode)) for one in found if os.stat(one).st_mode & 0o077]


def fill(path, **options):
    with logdb.open(path, **options) as db:
        db.create_topic("t", partitions=2, config={"cleanup.policy": "compact", "segment.bytes": 100_000}, if_not_exists=True)
        for at in range(2):
            db.log("t", at).append_many([bytes(1000)] * 300, [b"k"] * 300)
        assert db.table("t").get(b"k") is not None
        with db.transaction("tx") as transaction:
            transaction.send("t", b"x", key=b"k")


def test_without_it_a_directory_is_as_open_as_ever(tmp_path):
    fill(tmp_path / "db")
    assert stat.S_IMODE(os.stat(tmp_path / "db").st_mode) == 0o755
    assert stat.S_IMODE(os.stat(tmp_path / "db" / "t-0").st_mode) == 0o755
    assert stat.S_IMODE(os.stat(tmp_path / "db" / "t-0" / ("0" * 20 + ".log")).st_mode) == 0o644


def test_the_first_change_closes_what_there_is_and_what_follows_is_made_closed(tmp_path):
    fill(tmp_path / "db")
    assert len(open_to_others(tmp_path / "db")) > 10
    secure(tmp_path / "db")
    assert not open_to_others(tmp_path / "db")
    fill(tmp_path / "db")
    assert not open_to_others(tmp_path / "db")


def test_so_does_a_change_beside_a_process_that_has_it_open(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 100_000})
        stop, appended = threading.Event(), []

        def append():
            while not stop.is_set():
                appended.append(db.log("t").append_many([bytes(1000)] * 100))

        thread = threading.Thread(target=append)
        thread.start()
        until(lambda: len(appended) > 5, "some segments")
        DocumentCredentialStore(SecurityFile(IO(), str(tmp_path / "db")), IO().clock_ms).add_user("alice", {}, super_user=True)
        count = len(appended)
        until(lambda: len(appended) > count + 5, "and some more")
        stop.set()
        thread.join()
        db.create_topic("u")
        assert not open_to_others(tmp_path / "db")
    assert not open_to_others(tmp_path / "db")


def test_a_new_directory_with_a_user_is_closed(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.security.add_user("alice", "secret", super_user=True)
    fill(tmp_path / "db")
    assert not open_to_others(tmp_path / "db")


def test_one_that_was_secured_before_is_closed_when_it_is_served(tmp_path):
    fill(tmp_path / "db")
    secure(tmp_path / "db")
    os.chmod(tmp_path / "db", 0o755)
    with served(tmp_path / "db"):
        assert not open_to_others(tmp_path / "db")


def test_what_cannot_be_closed_is_said(tmp_path, caplog):
    fill(tmp_path / "db")
    secure(tmp_path / "db")
    os.chmod(tmp_path / "db", 0o755)

    class Strange(IO):
        def chmod(self, path, mode):
            raise PermissionError(1, "another user's")

    with logdb.open(tmp_path / "db", io=Strange()) as db, caplog.at_level(logging.WARNING):
        AccessControl(db._session).close()
        assert "may be read by others on this machine" in caplog.text
        with pytest.raises(LogdbError):
            security_document.change(SecurityFile(Strange(), db.path), lambda content: (content, None))


# ---------------------------------------------------------------- copies


@pytest.fixture(params=[True, False], ids=["secured", "open"])
def source(request, tmp_path):
    """A database, and whether it is secured."""
    fill(tmp_path / "db")
    if request.param:
        secure(tmp_path / "db")
    return tmp_path / "db", request.param


def test_copies_are_as_closed_as_what_they_are_of(source, tmp_path):
    path, secured = source
    with logdb.open(path) as db:
        db.snapshot(tmp_path / "snapshot")
        db.backup(tmp_path / "backup")
    logdb.restore(tmp_path / "backup", tmp_path / "restored")
    logdb.restore(tmp_path / "snapshot", tmp_path / "copied")
    assert stat.S_IMODE(os.stat(tmp_path / "backup").st_mode) == (0o600 if secured else 0o644)
    for copy in ("snapshot", "restored", "copied"):
        if secured:
            assert not open_to_others(tmp_path / copy), copy
        else:
            assert stat.S_IMODE(os.stat(tmp_path / copy).st_mode) == 0o755, copy


def test_copies_over_the_network_too(tmp_path):
    secure_path, open_path = tmp_path / "secured", tmp_path / "open"
    for path in (secure_path, open_path):
        fill(path)
    secure(secure_path, users={"root": "secret"}, super_users=["root"])
    for path, who, closed in ((secure_path, {"user": "root", "password": "secret"}, True), (open_path, {}, False)):
        with served(path) as server, logdb.open(server.url, **who) as db:
            db.backup(tmp_path / f"{path.name}.backup")
            db.snapshot(tmp_path / f"{path.name}.snapshot")
        assert stat.S_IMODE(os.stat(tmp_path / f"{path.name}.backup").st_mode) == (0o600 if closed else 0o644)
        assert stat.S_IMODE(os.stat(tmp_path / f"{path.name}.snapshot").st_mode) == (0o700 if closed else 0o755)


def test_a_failure_to_close_leaves_no_security_file(tmp_path):
    io = FaultyIO()
    fill(tmp_path / "db")
    io.chmod = lambda path, mode: (_ for _ in ()).throw(PermissionError(1, "another user's"))
    with pytest.raises(LogdbError):
        security_document.change(SecurityFile(io, str(tmp_path / "db")), lambda content: (content, None))
    assert not os.path.exists(tmp_path / "db" / "security.json")
