"""Uploads: batches that a server keeps outside the logs, and appends when a client names them."""

import os
import time
import uuid

import pytest

import logdb
from logdb.codec import crc32c
from logdb.errors import CorruptionError, DiskFull, InvalidAnswer, NotAuthorized, UnknownPartition, UnknownTopic
from logdb.model import TopicPartition
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from support.batches import Rec, encode_batch
from support.security import secure
from support.serving import served
from support.waiting import until

WHERE = TopicPartition("t", 0)
BATCH = encode_batch([Rec(value=b"a"), Rec(value=b"b")])
TX = "spark-q"
BLOCKS = 10

pytestmark = pytest.mark.local  # they look into the directory of the one server


def kept_files(path):
    directory = path / "uploads"
    return sorted(os.listdir(directory)) if directory.is_dir() else []


@pytest.fixture
def server(tmp_path):
    with served(tmp_path / "db", uploads_bytes_max=BLOCKS * 4096, uploads_per_principal_bytes_max=BLOCKS * 4096) as it:
        it.database.create_topic("t", partitions=2)
        yield it


@pytest.fixture
def session(server):
    with logdb.open(server.url) as database:
        yield database.session


def append(session, *kept, crc=None, sequence=0, producer=None):
    producer = producer or session.init_producer_id(TX, transaction_timeout_ms=60_000)
    named = [(one.id, crc32c(BATCH) if crc is None else crc) for one in kept]
    return producer, session.uploads.append(WHERE, named, producer, sequence, 2 * len(kept), transactional_id=TX)


def values(server):
    return [record.value for record in server.database.log("t").read(0, isolation_level="read_committed")]


def test_no_reader_sees_an_upload_before_its_transaction_is_committed(server, session, tmp_path):
    kept = [session.uploads.keep(WHERE, BATCH) for _ in range(2)]
    assert server.database.log("t").end_offset == 0
    producer, missing = append(session, *kept)
    assert (list(missing), values(server)) == ([], [])
    session.end_transaction(TX, producer, commit=True)
    assert values(server) == [b"a", b"b"] * 2
    assert bytes(session.uploads.read(WHERE, kept[0].holder, kept[0].id)) == BATCH
    session.uploads.discard(WHERE, server.url, [one.id for one in kept])
    assert kept_files(tmp_path / "db") == []


def test_an_append_that_is_sent_again_appends_once(server, session):
    kept = session.uploads.keep(WHERE, BATCH)
    producer, _ = append(session, kept)
    assert append(session, kept, producer=producer)[1] == ()
    session.end_transaction(TX, producer, commit=True)
    assert values(server) == [b"a", b"b"]


def test_what_is_missing_or_damaged_appends_nothing(server, session, tmp_path):
    there, other = session.uploads.keep(WHERE, BATCH), session.uploads.keep(WHERE._replace(partition=1), BATCH)
    gone = there._replace(id=uuid.uuid4().hex)
    assert append(session, there, gone, other)[1] == (gone.id, other.id)
    with pytest.raises(InvalidAnswer, match="is unknown"):
        session.uploads.read(WHERE, other.holder, other.id)
    (file,) = [name for name in kept_files(tmp_path / "db") if name.startswith(there.id)]
    (tmp_path / "db" / "uploads" / file).write_bytes(BATCH[:-1] + b"x")
    with pytest.raises(CorruptionError, match=there.id):
        append(session, there)
    assert server.database.log("t").end_offset == 0


def test_a_bound_of_bytes_a_partition_and_a_topic_are_checked_before_the_bytes_are_kept(session, tmp_path):
    with pytest.raises(UnknownTopic):
        session.uploads.keep(TopicPartition("nowhere", 0), BATCH)
    with pytest.raises(UnknownPartition):
        session.uploads.keep(WHERE._replace(partition=2), BATCH)
    assert kept_files(tmp_path / "db") == []
    with pytest.raises(DiskFull, match=r"of at most 40960 bytes"):
        for _ in range(BLOCKS + 1):  # a small one takes a block of the disk, too
            session.uploads.keep(WHERE, BATCH)
    assert len(kept_files(tmp_path / "db")) == BLOCKS
    with pytest.raises(InvalidAnswer, match="at least one record batch"):
        session.uploads.keep(WHERE, b"")


def test_an_id_that_comes_again_has_the_latest_bytes_alone(server, session, tmp_path):
    name = "0" * 32
    for content in (BATCH, BATCH + BATCH):
        path = f"/logdb/v1/topics/t/partitions/0/uploads/{name}"
        assert server.call(path, content, method="PUT", content_type="application/vnd.logdb.batches")[0] == 204
    assert bytes(session.uploads.read(WHERE, server.url, name)) == BATCH + BATCH
    assert len(kept_files(tmp_path / "db")) == 1
    refused = server.call(path.replace(name, "../x"), BATCH, method="PUT", content_type="application/vnd.logdb.batches")
    assert refused[0] in (404, 422)


def test_an_upload_that_is_named_twice_is_refused(server, session):
    kept = session.uploads.keep(WHERE, BATCH)
    with pytest.raises(InvalidAnswer, match="named twice"):
        append(session, kept, kept)
    assert server.database.log("t").end_offset == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("sequence", -2), ("sequence", 1 << 31), ("producer_id", -1), ("producer_epoch", -1), ("producer_epoch", 1 << 15)],
)
@pytest.mark.parametrize("named", [[], [{"id": "0" * 32, "crc": 0}]])
def test_a_producer_or_sequence_out_of_range_is_refused_before_the_uploads_are_read(server, name, value, named):
    body = {"uploads": named, "producer_id": 0, "producer_epoch": 0, "sequence": 0, name: value}
    status, said = server.call("/logdb/v1/topics/t/partitions/0/uploads", body)
    assert (status, said["message"].split(":")[0]) == (422, f"{name}={value}")


def test_uploads_outlive_the_server_and_count_after_it(tmp_path):
    with served(tmp_path / "db") as server, logdb.open(server.url) as database:
        database.create_topic("t")
        kept = database.session.uploads.keep(WHERE, BATCH)
    (tmp_path / "db" / "uploads" / f"{kept_files(tmp_path / 'db')[0]}.part").write_bytes(b"of a dead process")
    with served(tmp_path / "db", uploads_bytes_max=2 * 4096 - 1) as server, logdb.open(server.url) as database:
        with pytest.raises(DiskFull):
            database.session.uploads.keep(WHERE, BATCH)
        producer, missing = append(database.session, kept)
        assert not missing
        database.session.end_transaction(TX, producer, commit=True)
        assert values(server) == [b"a", b"b"]
        assert len(kept_files(tmp_path / "db")) == 1


def test_they_expire(tmp_path):
    with served(tmp_path / "db", upload_idle_ms=50) as server, logdb.open(server.url) as database:
        database.create_topic("t")
        database.session.uploads.keep(WHERE, BATCH)
        until(lambda: kept_files(tmp_path / "db") == [], "the upload to expire")


def test_rights_and_quotas_are_those_of_a_produce(tmp_path):
    with logdb.open(tmp_path / "db") as database:
        database.create_topic("t")
    quota = {Principal("User", "spark"): Quota(produce_bytes=len(BATCH))}
    secure(tmp_path / "db", "Allow spark@* Write Topic t", users={"spark": "pw", "bob": "pw"}, quotas=quota)
    with served(tmp_path / "db") as server, logdb.open(server.url, user="spark", password="pw") as database:
        kept, began_s = database.session.uploads.keep(WHERE, BATCH), time.monotonic()
        kept = database.session.uploads.keep(WHERE, BATCH)
        assert time.monotonic() - began_s > 0.5, "the answer to the second one was held back"
        named = [(kept.id, crc32c(BATCH))]
        with logdb.open(server.url, user="bob", password="pw") as other:
            for call in (
                lambda: other.session.uploads.keep(WHERE, BATCH),
                lambda: other.session.uploads.read(WHERE, kept.holder, kept.id),
                lambda: other.session.uploads.discard(WHERE, kept.holder, [kept.id]),
                lambda: other.session.uploads.append(WHERE, named, (1, 0), 0, 2, transactional_id=TX),
            ):
                with pytest.raises(NotAuthorized, match="User:bob"):
                    call()
        with pytest.raises(NotAuthorized, match=TX):
            database.session.uploads.append(WHERE, named, (1, 0), 0, 2, transactional_id=TX)
    with logdb.open(tmp_path / "db", mode="r") as database:
        assert database.log("t").end_offset == 0
