from contextlib import closing

from logdb_connect.client import connected
from logdb_connect.runtime.offsets import COMMIT_HEADER, OffsetStore


def test_the_transaction_that_forgot_an_offset_is_known(tmp_path):
    with closing(connected({"bootstrap.servers": str(tmp_path / "db")})) as client:
        store = OffsetStore(client, "offsets", partitions=1)
        key = store.key("one", {"b": 1, "a": 2})
        with closing(client.producer({})) as producer:
            for value, commit in ((b'{"next":1}', b"0:first"), (None, b"0:second")):
                producer.send("offsets", value, key, headers=((COMMIT_HEADER, commit),))
        store.catch_up()
        assert store.get("one", {"a": 2, "b": 1}) is None
        assert store.took_place(key, "0", "second")
        assert not store.took_place(key, "0", "first")


def test_a_commit_is_known_after_another_task_has_written_the_same_source_partition(tmp_path):
    with closing(connected({"bootstrap.servers": str(tmp_path / "db")})) as client:
        store = OffsetStore(client, "offsets", partitions=1)
        key = store.key("one", {"a": 1})
        with closing(client.producer({})) as producer:
            for commit in (b"0:mine", b"1:another"):
                producer.send("offsets", b'{"next":1}', key, headers=((COMMIT_HEADER, commit),))
        store.catch_up()
        assert store.took_place(key, "0", "mine")
        assert store.took_place(key, "1", "another")
        assert not store.took_place(key, "2", "mine")
