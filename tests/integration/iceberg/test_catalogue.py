"""The REST catalogue of a server, as pyiceberg and plain requests see it."""

import os

import pytest

import logdb
from support.iceberg import logged, rows
from support.security import secure
from support.serving import served

pytest.importorskip("pyiceberg")

PASSWORD = "correct horse"
CONFIG = {"logdb.iceberg.mode": "key_value"}
TABLES = "/iceberg/v1/namespaces/logdb/tables"


def filled(path):
    with logdb.open(path) as db:
        for topic in ("a.topic", "secret", "not-yet"):
            db.create_topic(topic, partitions=2, config=CONFIG)
            db.log(topic, 1).append_many([b"%d" % n for n in range(10)], [b"k"] * 10)
        db.create_topic("plain")
        for topic in ("a.topic", "secret"):
            db.update_iceberg(topic)
        return {topic: logged(db, topic) for topic in ("a.topic", "secret")}


def catalogue(url, **options):
    from pyiceberg.catalog.rest import RestCatalog

    return RestCatalog("logdb", uri=f"{url}/iceberg", **options)


def test_pyiceberg(tmp_path):
    records = filled(tmp_path / "db")
    with served(tmp_path / "db") as s:
        found = catalogue(s.url)
        assert found.list_namespaces() == [("logdb",)] and found.namespace_exists("logdb") and not found.namespace_exists("other")
        assert found.list_tables("logdb") == [("logdb", "a.topic"), ("logdb", "secret")]
        table = found.load_table(("logdb", "a.topic"))
        assert rows(table.scan().to_arrow()) == records["a.topic"]
        assert found.table_exists(("logdb", "secret")) and not found.table_exists(("logdb", "not-yet"))
        s.database.log("a.topic", 0).append(b"later")
        s.database.update_iceberg("a.topic")
        assert rows(table.refresh().scan().to_arrow()) == logged(s.database, "a.topic")


def test_what_does_not_exist(tmp_path):
    filled(tmp_path / "db")
    with served(tmp_path / "db") as s:
        for name in ("nothing", "plain", "not-yet", "..", "..%2Fa.topic", "a.topic%2Fmetadata", "%00", "a" * 300):
            status, body = s.call(f"{TABLES}/{name}")
            assert (status, body["error"]["type"], body["error"]["code"]) == (404, "NoSuchTableException", 404), name
        for path in ("/iceberg/v1/namespaces/x", "/iceberg/v1/namespaces/x/tables", "/iceberg/v1/namespaces/x%1Fy/tables/z"):
            status, body = s.call(path)
            assert (status, body["error"]["type"]) == (404, "NoSuchNamespaceException")
        assert s.call(f"{TABLES}/a.topic", method="DELETE")[1]["error"]["type"] == "UnsupportedOperationException"
        s.database.alter_topic("a.topic", config={"logdb.iceberg.mode": "disabled"})
        assert s.call(f"{TABLES}/a.topic")[0] == 404
        metadata = os.path.join(tmp_path, "db", "iceberg", "secret", "metadata", "v2.metadata.json")
        with open(metadata, "r+b") as file:
            file.truncate(50)
        status, body = s.call(f"{TABLES}/secret")
        assert status == 500 and "v2.metadata.json is damaged" in body["error"]["message"]


def test_a_damaged_table_is_left_out_of_the_list(tmp_path, caplog):
    filled(tmp_path / "db")
    with served(tmp_path / "db") as s:
        with open(tmp_path / "db" / "iceberg" / "secret" / "metadata" / "v2.metadata.json", "w") as file:
            file.write("[" * 200_000)
        for _ in range(2):
            assert catalogue(s.url).list_tables("logdb") == [("logdb", "a.topic")]
        assert s.call(f"{TABLES}/secret")[0] == 500
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(told) == 1 and "table logdb.secret" in told[0] and "v2.metadata.json is damaged" in told[0]


def test_a_new_topic_has_nothing_of_a_deleted_one(tmp_path):
    filled(tmp_path / "db")
    with served(tmp_path / "db") as s:
        data = os.listdir(tmp_path / "db" / "iceberg" / "secret" / "data")
        assert [s.call(f"{TABLES}/secret/files/data/{name}")[0] for name in data] == [200] * len(data)
        with s.database._store.writer.tables._updating:  # another table takes long
            s.database.delete_topic("secret")
            s.database.create_topic("secret", config=CONFIG)
            assert data and os.listdir(tmp_path / "db" / "iceberg" / "secret" / "data") == data
            assert s.call(f"{TABLES}/secret")[0] == 404
            assert [s.call(f"{TABLES}/secret/files/data/{name}")[0] for name in data] == [404] * len(data)
            assert catalogue(s.url).list_tables("logdb") == [("logdb", "a.topic")]
        tables = s.database._store.writer.tables
        with tables._updating:
            tables._remove_others()
        assert not os.path.exists(tmp_path / "db" / "iceberg" / "secret")


def test_rights(tmp_path):
    from pyiceberg.exceptions import ForbiddenError, UnauthorizedError

    records = filled(tmp_path / "db")
    secure(tmp_path / "db", "Allow reader@* Read Topic a.topic", users={"reader": PASSWORD, "root": PASSWORD}, super_users=["root"])
    with served(tmp_path / "db") as s:
        token, _ = s.database.security.create_token("for pyiceberg", "reader")
        found = catalogue(s.url, token=token)
        assert found.list_tables("logdb") == [("logdb", "a.topic")]
        assert rows(found.load_table(("logdb", "a.topic")).scan().to_arrow()) == records["a.topic"]
        for name in ("secret", "plain", "nothing"):
            with pytest.raises(ForbiddenError):
                found.load_table(("logdb", name))
        with pytest.raises(UnauthorizedError):
            catalogue(s.url, token="wrong").list_namespaces()
        assert s.call(TABLES)[1]["error"] == {"message": s.call(TABLES)[1]["message"], "type": "NotAuthorizedException", "code": 401}
