"""A table's files through the HTTP listener, as engines on another machine read them."""

import glob
import json
import os
import pickle
import shutil
import threading
import time

import duckdb
import polars as pl
import pyarrow as pa
import pytest
import requests

import logdb
from logdb.access.quotas import Quota
from logdb.requests.principals import Principal
from logdb_iceberg import tail
from support.faulty_io import FaultyIO
from support.iceberg import logged, rows
from support.security import secure
from support.serving import served
from support.waiting import until
from support.wire import wire

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


def place_of(path):
    return f"{FILES}/data/{os.path.basename(path)}"


def content(path):
    with open(path, "rb") as file:
        return file.read()


def test_ranges(filled):
    path = data_file(filled)
    data, place = content(path), place_of(path)
    with served(filled) as s, wire(s.url) as line:
        assert s.call(place) == (200, data)
        for wanted, found in (("bytes=4-9", data[4:10]), ("bytes=-7", data[-7:]), (f"bytes=5-{10 * len(data)}", data[5:])):
            assert s.call(place, headers={"Range": wanted}) == (206, found)
        assert s.call(place, headers={"Range": "lines=1-2"}) == (200, data), "a unit that is unknown is ignored"
        for wanted in (f"bytes={len(data)}-", "bytes=-0", "bytes=-", "bytes=5-3", "bytes=0-1,4-5", "bytes=0-" + "9" * 5000):
            said = line.ask("GET", place, headers={"Range": wanted})
            assert (said.status, said.json["error_code"], said.headers["content-range"]) == (416, 41600, f"bytes */{len(data)}"), wanted


def test_the_table_of_a_deleted_topic_is_not_that_of_the_next_one(filled):
    path = data_file(filled)
    with served(filled) as s:
        assert s.call(place_of(path))[0] == 200
    shutil.copytree(filled / "iceberg" / "t", filled / "kept")
    with logdb.open(filled) as db:
        db.delete_topic("t")
        schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "string"]}]}  # no table can be made of it
        db.create_topic("t", config={"logdb.iceberg.mode": "json", "logdb.iceberg.schema": json.dumps(schema)})
    shutil.rmtree(filled / "iceberg" / "t", ignore_errors=True)
    shutil.move(filled / "kept", filled / "iceberg" / "t")
    with served(filled) as s:
        for place in (place_of(path), FILES.removesuffix("/files")):
            status, body = s.call(place)
            assert (status, body["error_code"]) == (404, 40408)


class Opened(FaultyIO):
    """``closed``: the files that were closed, with the thread that did it."""

    def __init__(self):
        super().__init__()
        self.closed = []

    def close(self, fd):
        self.closed.append((self._paths.get(fd), threading.current_thread().name))
        super().close(fd)


def test_a_file_that_is_removed_meanwhile(filled):
    path, io = data_file(filled), Opened()
    data, place = content(path), place_of(path)

    def remove(kind, name):
        if (kind, name) == (removed_at, path):
            os.unlink(path)

    with served(filled, opened={"io": io}) as s:
        io.before, removed_at = remove, "pread"
        assert s.call(place) == (200, data), "it was open"
        status, body = s.call(place)
        assert (status, body["error_code"]) == (404, 40410)
        with open(path, "wb") as file:
            file.write(data)
        removed_at = "open"
        assert s.call(place)[0] == 404
        status, made = s.call("/logdb/v1/backups", method="POST", body=b"", content_type="application/vnd.logdb.backup")
        (path,) = glob.glob(str(filled / "*.tmp" / "backup"))
        status, body = s.call(f"/logdb/v1/backups/{made['id']}")
        assert (status, body["error_code"]) == (404, 40499)


def test_files_are_opened_once_and_closed_in_a_thread(filled):
    path, io = data_file(filled), Opened()
    data, place = content(path), place_of(path)
    with served(filled, opened={"io": io}) as s:
        asked = [("GET", {}, 200), ("HEAD", {}, 200), ("GET", {"Range": "bytes=0-9"}, 206), ("GET", {"Range": "bytes=-0"}, 416)]
        for number, (method, headers, status) in enumerate(asked, 1):
            assert s.call(place, method=method, headers=headers)[0] == status
            assert io.count("open", path) == number
            until(lambda number=number: [name for name, _ in io.closed].count(path) == number)
        io.fail("pread", path=path)
        assert s.call(place)[0] == 500
        io.heal()
        assert s.call(place) == (200, data)
        until(lambda: len([name for name, _ in io.closed if name == path]) == io.count("open", path))
        assert {thread.rstrip("0123456789") for name, thread in io.closed if name == path} == {"logdb-http_"}


MAKE = {"link": lambda path: path.symlink_to("/etc/passwd"), "directory": os.mkdir, "pipe": os.mkfifo}


@pytest.mark.parametrize(("kind", "code"), [("link", 50014), ("directory", 50014), ("pipe", 50017)])
def test_what_is_no_regular_file(filled, kind, code):
    table = filled / "iceberg" / "t"
    places = {
        table / "data" / "x.parquet": f"{FILES}/data/x.parquet",
        table / "metadata" / "v99999.metadata.json": FILES.removesuffix("/files"),
    }
    with served(filled) as s:
        for path, place in places.items():
            MAKE[kind](path)
            status, body = s.call(place)
            assert (status, body["error_code"]) == (500, code)
            assert str(path) in body["message"]


def test_a_quota_slows_downloads(filled):
    path = data_file(filled)
    place, size_bytes = place_of(path), os.path.getsize(path)
    quotas = {Principal("User", "reader"): Quota(fetch_bytes=2 * size_bytes)}
    secure(filled, "Allow reader@* Read Topic t", users={"reader": PASSWORD}, quotas=quotas)
    with served(filled) as s:
        reader, began = s.by("reader", PASSWORD), time.monotonic()
        for _ in range(4):
            assert reader.call(place)[0] == 200
        assert time.monotonic() - began > 0.8, "two files at once, then two files a second"


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


def test_a_head_that_fails_loads_no_file(filled):
    """A proxy may refuse HEAD; the server's own GET tells the size."""
    path, io = data_file(filled), Opened()
    with open(path, "ab") as file:
        file.truncate(64 << 20)
    with served(filled, opened={"io": io}) as s:
        files = remote(s.url).io
        files.session.mount("http://", NoHead())
        assert len(files.new_input(f"file://{path}")) == 64 << 20
        until(lambda: path in [name for name, _ in io.closed])
        assert io.count("pread", path) < 200, "the answer was closed before its end"


class NoHead(requests.adapters.HTTPAdapter):
    """Refuses HEAD, as some proxies do."""

    def send(self, request, *args, **options):
        answer = super().send(request, *args, **options)
        if request.method == "HEAD":
            answer.status_code = 405
        return answer


def test_rights(filled):
    secure(filled, "Allow reader@* Read Topic t", users={"reader": PASSWORD, "root": PASSWORD}, super_users=["root"])
    with served(filled) as s:
        token, _ = s.database.security.create_token("for pyiceberg", "reader")
        found = remote(s.url, token=token)
        assert rows(found.scan().to_arrow()) == logged(s.database)
        with pytest.raises(PermissionError, match="secret"):
            found.io.new_input(found.metadata_location.replace("/t/", "/secret/")).open()
        basic = {"type": "basic", "basic": {"username": "reader", "password": PASSWORD}}
        by_password = remote(s.url, auth=basic)
        assert rows(by_password.scan().to_arrow()) == logged(s.database)
        assert pickle.loads(pickle.dumps(by_password.io)).new_input(found.metadata_location).exists()
        s.database.security.revoke_tokens("for pyiceberg")
        with pytest.raises(PermissionError, match="status 401"):
            found.scan().to_arrow()
        assert s.call(f"{FILES}/data/x.parquet")[0] == 401
