"""The database behind a URL as a whole: reports, a check, backups and snapshots that are downloaded."""

import os
import threading

import pytest

import logdb
from logdb.access.session import AuthorizedSession
from logdb.errors import BackupDamaged, TargetNotEmpty
from logdb.io import IO
from logdb.model import TopicPartition
from logdb.requests import topic_changes, topics
from logdb.store.copy.backup import new_file
from logdb.store.copy.backup_file import BackupReader, BackupWriter, Info
from logdb_http_api.remote import downloading
from support.proxy import proxied
from support.serving import served
from support.wire import wire


@pytest.fixture
def server(tmp_path):
    with served(tmp_path / "db") as server:
        server.database.create_topic("t", partitions=2)
        server.database.log("t", 1).append_many([os.urandom(1000) for _ in range(3000)])
        yield server


def values(db):
    return [record.value for record in db.log("t", 1).read(0)]


def leftovers(tmp_path):
    return [name for name in os.listdir(tmp_path / "db") if name.endswith(".tmp")] + [name for name in os.listdir(tmp_path) if "-" in name]


def test_a_check_and_what_recovery_found(server):
    with logdb.open(server.url) as db:
        report = db.verify()
        assert report.ok
        assert report.checked.records == 3000
        assert db.reports == ()


def test_a_backup_in_pieces(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloading, "_PIECE_SIZE_BYTES", 1 << 20)
    told = []
    with logdb.open(server.url) as db:
        copied = db.backup(tmp_path / "backup", progress=lambda *numbers: told.append(numbers))
        with pytest.raises(TargetNotEmpty):
            db.backup(tmp_path / "backup")
    size_bytes = os.stat(tmp_path / "backup").st_size
    assert (copied.path, copied.partition_count, copied.written_bytes) == (str(tmp_path / "backup"), 2, size_bytes)
    assert [done for done, *_ in told] == [1 << 20, 2 << 20, size_bytes]
    logdb.restore(tmp_path / "backup", tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as restored:
        assert values(restored) == values(server.database)
    assert leftovers(tmp_path) == []


def test_a_snapshot(server, tmp_path):
    with logdb.open(server.url) as db:
        copied = db.snapshot(tmp_path / "frozen")
    assert (copied.path, copied.partition_count) == (str(tmp_path / "frozen"), 2)
    with logdb.open(tmp_path / "frozen", mode="r") as frozen:
        assert values(frozen) == values(server.database)
    assert leftovers(tmp_path) == []


def test_a_download_is_a_file_with_ranges(server, tmp_path):
    status, offer = server.call("/logdb/v1/backups", b"")
    assert status == 201
    size_bytes = offer["copied"]["written_bytes"]
    assert (offer["copied"]["path"], leftovers(tmp_path)) == ("", [f"{offer['id']}.tmp"])
    where = f"/logdb/v1/backups/{offer['id']}"
    status, whole = server.call(where)
    assert (status, len(whole)) == (200, size_bytes)
    assert server.call(where, headers={"Range": "bytes=100-199"}) == (206, whole[100:200])
    assert server.call(where, headers={"Range": "bytes=-7"}) == (206, whole[-7:])
    assert server.call(where, headers={"Range": f"bytes={size_bytes}-"})[0] == 416
    assert server.call(where, headers={"Range": "bytes=100-199", "If-Range": f'"{offer["id"]}"'}) == (206, whole[100:200])
    assert server.call(where, headers={"Range": "bytes=100-199", "If-Range": '"another"'}) == (200, whole)
    assert server.call(where, method="DELETE")[0] == 200
    assert server.call(where)[0] == 404
    assert server.call("/logdb/v1/backups/..%2f..%2fLOCK")[0] == 404
    assert leftovers(tmp_path) == []


def test_what_nobody_fetches_goes_with_the_server(tmp_path):
    with served(tmp_path / "db") as server:
        assert server.call("/logdb/v1/backups", b"")[0] == 201
    assert leftovers(tmp_path) == []


def test_a_backup_whose_client_went_away_goes_once_it_is_made(server, tmp_path, monkeypatch):
    began, go_on, made, backup = threading.Event(), threading.Event(), [], AuthorizedSession.backup

    def slow(session, path, base=None):
        began.set()
        go_on.wait(20)
        made.append(backup(session, path, base))
        return made[0]

    monkeypatch.setattr(AuthorizedSession, "backup", slow)
    (door,) = server.server._doors
    with wire(server.url) as line:
        line.send(b"POST /logdb/v1/backups HTTP/1.1\r\nHost: x\r\n\r\n")
        assert began.wait(20)
    while door.requests.taken:
        pass
    go_on.set()
    while leftovers(tmp_path):
        pass
    assert len(made) == 1, "nobody removes a directory that a thread writes to"


# ---------------------------------------------------------------- increments


def test_an_increment_whose_download_breaks_off_goes_on(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloading, "_PIECE_SIZE_BYTES", 100_000)
    with proxied(server.url) as proxy, logdb.open(proxy.url) as db:
        db.backup(tmp_path / "full")
        server.database.log("t", 1).append_many([os.urandom(1000) for _ in range(1000)])
        proxy.marked, proxy.cut_answers = b"Range: ", 3
        copied = db.backup(tmp_path / "increment", base=tmp_path / "full")
        assert proxy.cut_count == 3
    assert copied.written_bytes == os.path.getsize(tmp_path / "increment") < 4_500_000
    logdb.restore([tmp_path / "full", tmp_path / "increment"], tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as restored:
        assert values(restored) == values(server.database)
    assert leftovers(tmp_path) == []


def test_an_outline_is_no_backup(server, tmp_path):
    with logdb.open(server.url) as db:
        db.backup(tmp_path / "full")
    with BackupReader(IO(), str(tmp_path / "full")) as reader:
        (tmp_path / "outline").write_bytes(outline := reader.outline())
    assert len(outline) < 4_000
    with BackupReader(IO(), str(tmp_path / "outline")) as reader:
        assert list(reader.content) == ["topics", "logs"]
    with pytest.raises(BackupDamaged, match="checksum"):
        logdb.restore(tmp_path / "outline", tmp_path / "restored")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda outline: b"\0", "its header is damaged"),
        (lambda outline: outline[:-1], "whole trailer"),
        (lambda outline: outline[:30] + b"!" + outline[31:], "CRC of a frame"),
        (lambda outline: b"x" * 100_000, "its header is damaged"),
    ],
)
def test_a_base_that_is_none_is_refused(server, tmp_path, spoil, says):
    with logdb.open(server.url) as db:
        db.backup(tmp_path / "full")
    with BackupReader(IO(), str(tmp_path / "full")) as reader:
        outline = spoil(reader.outline())
    status, told = server.call("/logdb/v1/backups", outline, content_type="application/vnd.logdb.backup")
    assert (status, told["error_code"]) == (422, 422)
    assert says in told["message"] and str(tmp_path) not in told["message"]
    assert leftovers(tmp_path) == []


def test_a_list_that_grows_when_it_is_decompressed_is_refused_at_the_limit(server, tmp_path):
    bomb = tmp_path / "bomb"
    with new_file(IO(), str(bomb)) as file:
        writer = BackupWriter(file, Info("x", "y", 0, 0, None))
        writer.finish({"topics": [" " * (20 << 20)], "logs": []})
    assert bomb.stat().st_size < 10_000
    status, told = server.call("/logdb/v1/backups", bomb.read_bytes(), content_type="application/vnd.logdb.backup")
    assert status == 422 and "the list has more than 8388608 bytes" in told["message"]
    status, told = server.call("/logdb/v1/backups", bomb.read_bytes())
    assert (status, told["error_code"]) == (415, 415)


def test_a_session_behind_a_url_carries_out_every_request_or_says_that_it_is_local(server, tmp_path):
    with logdb.open(server.url) as db:
        session = db._session
        assert session.submit(topics.Reports()) == ()
        assert session.submit(topics.Verify()).checked.records == 3000
        assert session.submit(topics.Backup(path=str(tmp_path / "backup"))).written_bytes == (tmp_path / "backup").stat().st_size
        position = session.submit(topics.Changes(position=None, timeout_ms=0, count_max=10)).position
        server.database.create_topic("u")
        (event,) = session.submit(topics.Changes(position=position, timeout_ms=60_000, count_max=10)).events
        assert event.topic.name == "u"
        for request in (
            topics.DescribeConfigs("t"),
            topic_changes.CheckNewTopic("v"),
            topic_changes.CheckPartitions("t", 3),
            topic_changes.CheckTopicConfigs("t", {}),
            topic_changes.AlterConfigs("t", {}),
        ):
            with pytest.raises(NotImplementedError, match=request.method):
                session.submit(request)


def test_a_wait_behind_a_url_may_take_as_long_as_it_says(server, monkeypatch):
    """Longer than a request may take that waits for nothing."""
    with logdb.open(server.url, timeout_ms=500) as db:
        session = db._session
        assert session.submit(topics.Wait({TopicPartition("t", 1): 0}, 0))
        assert not session.submit(topics.Wait({TopicPartition("t", 1): 3000}, 1500))
