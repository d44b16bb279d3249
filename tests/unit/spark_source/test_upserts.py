import pytest

import logdb
from logdb.errors import InvalidConfig
from logdb_spark_source import upsert, upserts


@pytest.fixture
def path(tmp_path):
    with logdb.open(tmp_path / "db") as database:
        database.create_topic("all")
        database.create_topic("latest", config={"cleanup.policy": "compact"})
    return tmp_path / "db"


def test_what_cannot_be(path):
    for given, message in [
        ({"topic": "all"}, "topic='all': must be a compacted topic"),
        ({"topic": "none"}, "topic='none': there is no such topic"),
        ({"topic": "latest", "url": "http://a:1"}, "path and url"),
        ({"topic": "latest", "lockTimout": "1s"}, "locktimout='1s': did you mean lockTimeout"),
    ]:
        with pytest.raises(InvalidConfig, match=message):
            upsert(path=path, **given)


class Frame:
    """As much of a DataFrame as is asked; what is written is noted."""

    def __init__(self, query_id="q", run_id="r"):
        self.properties = {"sql.streaming.queryId": query_id, "spark.jobGroup.id": run_id}
        self.saved = []
        self.sparkSession = self.sparkContext = self.write = self

    def getLocalProperty(self, name):  # noqa: N802 -- Spark's name
        return self.properties[name]

    def format(self, name):
        assert name == "logdb"
        return self

    def options(self, **options):
        self.saved.append(options)
        return self

    def mode(self, mode):
        assert mode == "append"
        return self

    def save(self):
        pass


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(upserts, "_done", {})


def test_each_batch_is_written_as_what_it_is(path):
    frame, write = Frame(), upsert("latest", path=path, stagingPath="/s")
    for batch_id in (0, 1):
        write(frame, batch_id)
    assert frame.saved == [
        {"topic": "latest", "path": str(path), "stagingPath": "/s", "writeId": "q-latest", "batchId": str(batch_id)} for batch_id in (0, 1)
    ]


def test_two_writes_of_one_batch_need_names(path):
    first, second, third = (upsert("latest", path=path, **more) for more in ({}, {}, {"name": "third"}))
    frame = Frame()
    first(frame, 4)
    third(frame, 4)
    for again in (first, second):
        with pytest.raises(InvalidConfig, match="name='latest': batch 4 was already written under it"):
            again(frame, 4)
    second(Frame(run_id="restarted"), 4)
    assert [saved["writeId"] for saved in frame.saved] == ["q-latest", "q-third"]


def test_only_a_query_calls_it(path):
    with pytest.raises(InvalidConfig, match="only a streaming query"):
        upsert("latest", path=path)(Frame(query_id=None), 0)
