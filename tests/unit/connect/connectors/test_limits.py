import pytest

from logdb import TopicPartition
from logdb_connect.connectors import limits
from logdb_connect.connectors.directory import DirectorySourceConnector
from logdb_connect.connectors.file import FileStreamSinkConnector, FileStreamSourceConnector
from logdb_connect.connectors.objects.sink import ObjectStoreSinkConnector
from logdb_connect.errors import ConnectError
from support.connect_tasks import Sink, Source


@pytest.fixture(autouse=True)
def _no_limits():
    yield
    limits.configure()


def test_paths(tmp_path):
    limits.check_path("/etc/passwd")
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    limits.configure(directories=[str(allowed)])
    (allowed / "link").symlink_to("/etc")
    for path in (allowed, allowed / "new/file"):
        limits.check_path(str(path))
    for path in ("/etc/passwd", tmp_path, tmp_path / "allowed2", allowed / "../x", allowed / "link/passwd"):
        with pytest.raises(ConnectError, match=r"connector\.directories\.allowed has only"):
            limits.check_path(str(path))


def test_hosts():
    limits.configure(hosts=["*.example.com", "127.0.0.0/8", "::1"])
    assert limits.addresses("127.0.0.1", 80) == ["127.0.0.1"]
    limits.check_host("localhost")
    for host in ("10.0.0.1", "169.254.169.254", "::2"):
        with pytest.raises(ConnectError, match=r"connector\.hosts\.allowed has only"):
            limits.check_host(host)


def test_connectors_keep_to_them(tmp_path):
    limits.configure(directories=[str(tmp_path / "allowed")], hosts=["s3.example.com"])
    elsewhere = str(tmp_path / "elsewhere")
    for make in (
        lambda: Source(FileStreamSourceConnector, {"file": elsewhere, "topic": "t"}),
        lambda: Sink(FileStreamSinkConnector, {"file": elsewhere}, {}).open(TopicPartition("t", 0)),
        lambda: Source(DirectorySourceConnector, {"input.path": str(tmp_path), "topic": "t"}),
        lambda: Sink(ObjectStoreSinkConnector, {"store.url": f"file://{elsewhere}", "flush.size": "1"}, {}),
        lambda: Sink(ObjectStoreSinkConnector, {"store.url": "http://127.0.0.1:1", "s3.bucket.name": "b", "flush.size": "1"}, {}),
        lambda: Sink(ObjectStoreSinkConnector, {"store.url": "webhdfs://127.0.0.1:1/x", "flush.size": "1"}, {}),
    ):
        with pytest.raises(ConnectError, match="Connectors of this worker may not"):
            make()
    assert list(tmp_path.iterdir()) == []
