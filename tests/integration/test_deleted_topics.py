"""A topic that was created, used and deleted leaves no memory and no open file behind: a program may do so for years."""

import collections
import gc
import os

import pytest

import logdb
from logdb.errors import UnknownTopic
from support.places import opened


def ours():
    gc.collect()
    return collections.Counter(type(one).__qualname__ for one in gc.get_objects() if str(type(one).__module__).startswith("logdb."))


def test_the_number_of_objects_stays_the_same(tmp_path):
    with logdb.open(tmp_path / "db") as db, db.producer(linger_ms=0) as producer:
        db.session.events._kept = collections.deque(maxlen=4)  # of 1024 changes that are kept for watchers
        found = []
        for some in range(3):
            for number in range(15):
                topic = f"t-{some}-{number}"
                db.create_topic(topic)
                db.log(topic).append(b"v", b"k")
                assert db.table(topic)[b"k"] == b"v"
                producer.send(topic, b"w").result()
                assert len(list(db.log(topic).read(0))) == 2
                db.delete_topic(topic)
            found.append(ours())
        grown = {name: count - found[1][name] for name, count in found[2].items() if count - found[1][name] >= 10}
        assert grown == {}


@pytest.mark.parametrize("where", ["path", "url"])
def test_tables_of_deleted_topics_hold_no_files(tmp_path, where):
    with opened(where, tmp_path / "db") as db:
        counts, tables = [], []
        for number in range(6):
            topic = f"t-{number}"
            db.create_topic(topic)
            db.append(topic, b"v", b"k")
            tables.append(db.table(topic))
            assert tables[-1][b"k"] == b"v"
            db.delete_topic(topic)
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[1:] == [counts[1]] * 5
        for table in tables:
            for look in (table.refresh, table.positions, lambda table=table: table[b"k"], lambda table=table: list(table)):
                with pytest.raises(UnknownTopic):
                    look()


@pytest.mark.parametrize("where", ["path", "url"])
def test_a_table_that_was_kept_works_again_if_the_topic_is_created_anew(tmp_path, where):
    with opened(where, tmp_path / "db") as db:
        kept = None
        for number in range(3):
            db.create_topic("t")
            kept = db.table("t") if kept is None else kept
            db.append("t", b"%d" % number, b"k%d" % number)
            assert dict(kept) == dict(db.table("t")) == {b"k%d" % number: b"%d" % number}
            db.delete_topic("t")
