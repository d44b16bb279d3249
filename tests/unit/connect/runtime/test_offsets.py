from contextlib import closing

from logdb_connect.client import connected
from logdb_connect.runtime.offsets import COMMIT_HEADER, OffsetStore


def test_the_transaction_that_forgot_an_offset_is_known(tmp_path):
    with closing(connected({"bootstrap.servers": str(tmp_path / "db")})) as client:
        store = OffsetStore(client, "offsets", partitions=1)
        key = store.key("one", {"b": 1, "a": 2})
        with closing(client.producer({})) as producer:
            for value, commit in ((b'{"next":1}', b"first"), (None, b"second")):
                producer.send("offsets", value, key, headers=((COMMIT_HEADER, commit),))
        store.catch_up()
        assert store.get("one", {"a": 2, "b": 1}) is None
        assert store.commit_of(key) == "second"
