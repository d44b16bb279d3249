"""A table's files through the HTTP listener, as engines on another machine read them."""

import glob
import os
import pickle

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import logdb
from logdb_iceberg import tail
from support.iceberg import logged, rows
from support.security import secure
from support.serving import served

pytest.importorskip("pyiceberg")

PASSWORD = "correct horse"
CONFIG = {"segment.bytes": 2_000, "logdb.iceberg.mode": "key_value"}
FILES = "/iceberg/v1/namespaces/logdb/tables/t/files"


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "a place" / "db"
    with logdb.open(path, batch_size=300) as db:
        for topic in ("t", "secret"):
            db.create_topic(topic, partitions=2, config=CONFIG)
            for partition in (0, 1):
                db.log(topic, partition).append_many(
                    [b"value %d" % n for n in range(100)], headers=[[("h", b"1")][: n % 2] for n in range(100)]
                )
            db.update_iceberg(topic)
    return path


def remote(url, name="t", **options):
    from pyiceberg.catalog.rest import RestCatalog

    catalogue = RestCatalog("logdb", uri=f"{url}/iceberg", **{"py-io-impl": "logdb_iceberg.remote.HttpFileIO"}, **options)
    return catalogue.load_table(("logdb", name))


def data_file(path):
    return min(glob.glob(os.path.join(path, "iceberg", "t", "data", "*.parquet")), key=os.path.getsize)


def test_engines(filled):
    with served(filled) as s:
        found, expected = remote(s.url), logged(s.database)
        history = found.scan().to_arrow()
        assert rows(history) == expected
        assert rows(pl.scan_iceberg(found, reader_override="pyiceberg").collect().to_arrow()) == expected
        assert duckdb.sql('select count(*), sum("offset") from history where partition = 1').fetchall() == [(100, 4950)]
        chosen = pickle.loads(pickle.dumps(found.io)).new_input(found.metadata_location)
        assert chosen.exists() and len(chosen) == os.path.getsize(found.metadata_location.removeprefix("file://"))
        with logdb.open(s.url) as db:
            db.log("t", 1).append(b"later")
            assert rows(pa.concat_tables([history, tail(db, found).read_all()])) == logged(s.database)
        for change in (lambda: found.append(history), lambda: found.io.delete(found.metadata_location)):
            with pytest.raises(PermissionError, match="read-only for their readers"):
                change()
        with pytest.raises(ValueError, match="must be a file of a table of logdb"):
            found.io.new_input("file:///etc/passwd")


def test_ranges(filled):
    path = data_file(filled)
    with open(path, "rb") as file:
        data = file.read()
    place = f"{FILES}/data/{os.path.basename(path)}"
    with served(filled) as s:
        assert s.call(place) == (200, data)
        for wanted, found in (("bytes=4-9", data[4:10]), ("bytes=-7", data[-7:]), (f"bytes=5-{10 * len(data)}", data[5:])):
            assert s.call(place, headers={"Range": wanted}) == (206, found)
        status, body = s.call(place, headers={"Range": f"bytes={len(data)}-"})
        assert (status, body["error_code"]) == (416, 41600)


def test_what_is_no_file(filled):
    (filled / "iceberg" / "t" / "data" / "half.parquet.abc.tmp").write_bytes(b"1")
    with served(filled) as s:
        names = ["half.parquet.abc.tmp", "gone.parquet", "..", ".parquet", "..%2Fmetadata%2Fv1.metadata.json", "%00.parquet", "a" * 300]
        outside = ["metadata/version-hint.text", "other/v1.metadata.json", "..%2Ft-0/x.parquet", "%2e%2e/x.json"]
        for name in [*(f"data/{name}" for name in names), *outside]:
            status, body = s.call(f"{FILES}/{name}")
            assert (status, body["error_code"], body["error"]["type"]) == (404, 40410, "NotFoundException"), name
        assert s.call(f"{FILES.replace('/t/', '/plain/')}/data/x.parquet")[1]["error"]["type"] == "NoSuchTableException"
        os.unlink(data_file(filled))
        with pytest.raises(FileNotFoundError, match="load the table again, its snapshot may have expired"):
            remote(s.url).scan().to_arrow()


def test_rights(filled):
    secure(filled, "Allow reader@* Read Topic t", users={"reader": PASSWORD, "root": PASSWORD}, super_users=["root"])
    with served(filled) as s:
        token, _ = s.database.security.create_token("for pyiceberg", "reader")
        found = remote(s.url, token=token)
        assert rows(found.scan().to_arrow()) == logged(s.database)
        with pytest.raises(PermissionError, match="secret"):
            found.io.new_input(found.metadata_location.replace("/t/", "/secret/")).open()
        s.database.security.revoke_tokens("for pyiceberg")
        with pytest.raises(PermissionError, match="status 401"):
            found.scan().to_arrow()
        assert s.call(f"{FILES}/data/x.parquet")[0] == 401
