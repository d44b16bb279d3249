"""The object store sink and source on HDFS by WebHDFS: Hadoop's own name node and data node, in one process."""

import getpass
import subprocess
from pathlib import Path

import fsspec
import pytest

from benches.peers import SHORT_LIVED
from benches.peers.kafka.jars import HDFS
from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.connectors.objects.sink import ObjectStoreSinkConnector
from logdb_connect.connectors.objects.source import ObjectStoreSourceConnector
from logdb_connect.errors import ConnectError
from support.connect_tasks import Sink, Source, sink_record
from support.java import compiled

SOURCE = Path(__file__).parent / "java" / "Hdfs.java"
A = TopicPartition("t", 0)
NAMES = [f"topics/t/partition=0/t+0+{offset:010}.json" for offset in (0, 3, 6)]


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    if (reason := HDFS.missing()) is not None:
        pytest.skip(reason)
    path = tmp_path_factory.mktemp("hdfs")
    compiled(SOURCE, path / "classes", HDFS)
    command = ["java", "-Xmx400m", *SHORT_LIVED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", f"{path / 'classes'}:{HDFS.directory}/*", "Hdfs", str(path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        found = next((line for line in process.stdout if line.startswith("webhdfs ")), None)
        assert found is not None
        yield int(found.split()[1])
        process.stdin.close()


def url(port, user=None):
    return f"webhdfs://{user or getpass.getuser()}@127.0.0.1:{port}/connect"


def records(count):
    return [sink_record(n, {"n": n}) for n in range(count)]


def test_objects_are_there_as_a_whole_and_once(port):
    properties, store = {"store.url": url(port), "flush.size": "3"}, {}
    one = Sink(ObjectStoreSinkConnector, properties, store)
    one.open(A)
    one.put(records(4))
    one.commit()
    one.put(records(7)[4:])  # and dies without a commit
    assert store == {A: OffsetAndMetadata(3)}
    two = Sink(ObjectStoreSinkConnector, properties, store)
    two.open(A)
    two.deliver({A: records(9)}, 2)
    two.close()
    files = fsspec.filesystem("webhdfs", host="127.0.0.1", port=port, user=getpass.getuser())
    found = sorted(files.find("/connect"))
    assert [each.rpartition("/connect/")[2] for each in found] == NAMES
    assert files.cat_file(f"/connect/{NAMES[1]}") == b'{"n":3}\n{"n":4}\n{"n":5}\n'
    three = Source(ObjectStoreSourceConnector, {"store.url": url(port), "s3.poll.interval.ms": "0"})
    assert three.drain() == [{"n": n} for n in range(9)]
    assert three.offsets[-1][0]["store"] == f"webhdfs://127.0.0.1:{port}/connect"


def test_a_user_who_may_not_write(port):
    one = Sink(ObjectStoreSinkConnector, {"store.url": url(port, "nobody"), "flush.size": "1", "topics.dir": "others"}, {})
    one.open(A)
    with pytest.raises(ConnectError, match="it refuses"):
        one.put(records(1))
