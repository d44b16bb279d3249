"""Where there is a ``security.json``, the directory and all that is made of it is its owner's only."""

import contextlib
import itertools
import logging
import os
import re
import shutil
import stat
import threading

import pytest

import logdb
from logdb.access import security_document
from logdb.access.access_control import AccessControl
from logdb.access.security import DocumentCredentialStore
from logdb.errors import LogdbError
from logdb.io import IO
from logdb.model import TopicPartition
from logdb.store.security_file import SecurityFile
from logdb_replication import directory, promotion
from logdb_replication.raft import files
from logdb_replication.raft.voters import Voter
from support.batches import Rec, encode_batch
from support.faulty_io import FaultyIO
from support.ports import free_port
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
    assert len(found) > 4
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


# ---------------------------------------------------------------- links


@pytest.fixture
def outside(tmp_path):
    """A directory and a file of somebody else, which links in the database lead to."""
    (tmp_path / "outside").mkdir(mode=0o755)
    (tmp_path / "outside" / "file").write_bytes(b"of somebody else")
    yield tmp_path / "outside"
    for one, mode in ((tmp_path / "outside", 0o755), (tmp_path / "outside" / "file", 0o644)):
        assert stat.S_IMODE(os.stat(one).st_mode) == mode, one
    assert (tmp_path / "outside" / "file").read_bytes() == b"of somebody else"


@pytest.mark.parametrize(("name", "target"), [("x", "."), ("t-0/x", "file"), ("security.json.tmp", "file"), ("t-1", ".")])
def test_what_a_link_leads_to_keeps_its_mode_and_its_content(tmp_path, outside, name, target):
    fill(tmp_path / "db")
    if name == "t-1":
        os.rename(tmp_path / "db" / "t-1", tmp_path / "moved")
    os.symlink(outside / target, tmp_path / "db" / name)
    secure(tmp_path / "db")
    assert stat.S_IMODE(os.stat(tmp_path / "db" / "security.json").st_mode) == 0o600
    os.chmod(tmp_path / "db", 0o755)
    DocumentCredentialStore(SecurityFile(IO(), str(tmp_path / "db")), IO().clock_ms).add_user("carol", {})
    assert stat.S_IMODE(os.stat(tmp_path / "db").st_mode) == 0o700


@pytest.mark.parametrize("name", ["LOCK", "security.lock", "security.json", "catalogue/data.mdb", "t-0/topic.json"])
def test_a_file_that_is_a_link_is_refused_by_name(tmp_path, outside, name):
    fill(tmp_path / "db")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(tmp_path / "db" / name)
    os.symlink(outside / "file", tmp_path / "db" / name)

    def use():
        secure(tmp_path / "db")
        with logdb.open(tmp_path / "db") as db:
            db.log("t", 0).read(0)

    with pytest.raises(LogdbError, match="symbolic link") as refused:
        use()
    assert os.path.basename(name) in str(refused.value)


def test_a_partition_that_was_moved_to_another_disk_by_a_link_keeps_working(tmp_path):
    fill(tmp_path / "db")
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("m", config={"segment.bytes": 100_000})
        db.log("m").append_many([bytes(1000)] * 300)
    (tmp_path / "disk").mkdir()
    os.rename(tmp_path / "db" / "m-0", tmp_path / "disk" / "m-0")
    os.symlink(tmp_path / "disk" / "m-0", tmp_path / "db" / "m-0")
    secure(tmp_path / "db")
    with logdb.open(tmp_path / "db") as db:
        before = db.log("m").end_offset
        db.log("m").append_many([bytes(1000)] * 300)
        db.flush()
        db.delete_records("m", 0, before)
        assert len(list(db.log("m").read(before))) == 300
        db.snapshot(tmp_path / "snapshot")
        db.backup(tmp_path / "backup")
    assert logdb.verify(tmp_path / "db").ok
    with logdb.open(tmp_path / "snapshot", mode="r") as db:
        assert len(list(db.log("m").read(before))) == 300
    os.symlink(tmp_path / "backup", tmp_path / "backup-link")  # a path that the user gives may be one
    logdb.restore(tmp_path / "backup-link", tmp_path / "restored")
    with logdb.open(tmp_path / "db") as db:
        db.delete_topic("m")
        db.create_topic("u")


@pytest.mark.parametrize("name", ["views", "views/ID"])
def test_a_directory_of_views_that_is_a_link_is_refused_by_name(tmp_path, outside, name):
    """A view that cannot be used is deleted, and so is that of a deleted topic."""
    fill(tmp_path / "db")
    for one in ("data.mdb", "lock.mdb", "mark"):
        (outside / one).write_bytes(b"of somebody else")
    (outside / "directory").mkdir()
    (outside / "directory" / "file").write_bytes(b"of somebody else")
    with logdb.open(tmp_path / "db") as db:
        link = str(tmp_path / "db" / name.replace("ID", db.describe_topic("t").topic_id))
    os.rename(link, tmp_path / "moved")
    os.symlink(outside, link)
    with logdb.open(tmp_path / "db") as db, pytest.raises(LogdbError, match=f"{re.escape(link)}.*symbolic link"):
        db.table("t").get(b"k")
    found = {str(one.relative_to(outside)): one.read_bytes() for one in outside.rglob("*") if one.is_file()}
    assert set(found) == {"file", "data.mdb", "lock.mdb", "mark", "directory/file"}
    assert set(found.values()) == {b"of somebody else"}


@pytest.mark.local
@pytest.mark.parametrize("when", ["before the start", "while it is served"])
def test_a_directory_of_uploads_that_is_a_link_is_refused_by_name(tmp_path, outside, when):
    """Uploads are created, renamed and deleted there; a start deletes unfinished ones."""
    names = ["file", *(f"{'0' * 32}.{'0' * 16}.{'0' * 16}{suffix}" for suffix in ("", ".part"))]
    for name in names[1:]:
        (outside / name).write_bytes(b"of somebody else")
    fill(tmp_path / "db")
    batch, where, link = encode_batch([Rec(value=b"a")]), TopicPartition("t", 0), tmp_path / "db" / "uploads"
    if when == "before the start":
        link.symlink_to(outside)
    with served(tmp_path / "db") as server, logdb.open(server.url) as remote:
        uploads = remote.session.uploads
        refused = pytest.raises(LogdbError, match=f"{re.escape(str(link))}.*symbolic link")
        if when == "while it is served":
            kept = uploads.keep(where, batch)
            names += os.listdir(link)
            shutil.move(link, tmp_path / "moved")
            shutil.copy(tmp_path / "moved" / names[-1], outside)
            link.symlink_to(outside)
            with refused:
                uploads.read(where, kept.holder, kept.id)
            uploads.discard(where, kept.holder, [kept.id])
        with refused:
            uploads.keep(where, batch)
    assert sorted(os.listdir(outside)) == sorted(names)


@pytest.mark.parametrize("name", ["data.mdb", "lock.mdb"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_file_of_a_view_that_is_a_link_or_a_pipe_is_replaced(tmp_path, outside, name, kind):
    fill(tmp_path / "db")
    with logdb.open(tmp_path / "db") as db:
        file = tmp_path / "db" / "views" / db.describe_topic("t").topic_id / name
    file.unlink()
    if kind == "link":
        file.symlink_to(outside / "file")
    else:
        os.mkfifo(file)
    with logdb.open(tmp_path / "db") as db:
        assert db.table("t").get(b"k") is not None
    assert stat.S_ISREG(os.lstat(file).st_mode)


# ---------------------------------------------------------------- a cluster


def test_a_directory_that_becomes_a_nodes_is_closed(tmp_path):
    """The journal of its voter holds the keys of users."""
    fill(tmp_path / "db")
    directory.init(str(tmp_path / "cluster"), 1, http_ports=[free_port()])
    assert not open_to_others(tmp_path / "cluster" / "node-1")
    promotion.prepare(str(tmp_path / "db"), str(tmp_path / "cluster" / "node-1" / "cluster.toml"), execute=True)
    assert not open_to_others(tmp_path / "db")


def test_a_voters_directory_of_an_earlier_version_is_closed_at_its_start(tmp_path):
    voter = Voter(1, 7, "127.0.0.1", 1)
    files.create(IO(), str(tmp_path / "quorum"), "c", voter, [voter])
    assert not open_to_others(tmp_path / "quorum")
    for one in (tmp_path / "quorum", tmp_path / "quorum" / "journal"):
        os.chmod(one, 0o755)
    with contextlib.closing(files.VoterFiles(IO(), str(tmp_path / "quorum"))):
        assert not open_to_others(tmp_path / "quorum")


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
