"""A topic that was created, used and deleted leaves no memory behind: a program may do so for years."""

import collections
import gc

import logdb


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
                db.log(topic).append(b"v")
                producer.send(topic, b"w").result()
                assert len(list(db.log(topic).read(0))) == 2
                db.delete_topic(topic)
            found.append(ours())
        grown = {name: count - found[1][name] for name, count in found[2].items() if count - found[1][name] >= 10}
        assert grown == {}
