import pytest

from logdb.errors import CorruptionError, UnsupportedFormat
from logdb.io import IO
from logdb.store import topic_file
from logdb.store.topic_file import TopicFile, decode, encode

CONTENT = TopicFile("trades", "an-id", 1, 3, {"retention.ms": 5, "cleanup.policy": "delete"}, 17)


def test_it_comes_back(tmp_path):
    topic_file.create(IO(), str(tmp_path), CONTENT)
    assert topic_file.load(IO(), str(tmp_path)) == CONTENT
    topic_file.replace(IO(), str(tmp_path), CONTENT._replace(config={}))
    assert topic_file.load(IO(), str(tmp_path)).config == {}
    assert [path.name for path in tmp_path.iterdir()] == ["topic.json"]


def test_every_flipped_byte_is_noticed():
    data = encode(CONTENT)
    for at in range(len(data)):
        with pytest.raises((CorruptionError, UnsupportedFormat), match="place"):
            decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "place")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\0" * 100, encode(CONTENT)[:-1], encode(CONTENT) + b"\n"])
def test_anything_else_is_corrupt(data):
    with pytest.raises(CorruptionError, match="place"):
        decode(data, "place")


@pytest.mark.parametrize("topic_id", ["../../etc", "/etc", "", "a/b"])
def test_a_topic_id_leads_nowhere(topic_id):
    with pytest.raises(CorruptionError, match="topic id"):
        decode(encode(CONTENT._replace(topic_id=topic_id)), "place")


def test_a_newer_format_is_named(monkeypatch):
    monkeypatch.setattr(topic_file, "FORMAT", 2)
    newer = encode(CONTENT)
    monkeypatch.setattr(topic_file, "FORMAT", 1)
    with pytest.raises(UnsupportedFormat) as caught:
        decode(newer, "place")
    with pytest.raises(CorruptionError, match="CRC"):  # a flipped bit makes no newer format
        decode(encode(CONTENT).replace(b'"format":1', b'"format":3'), "place")
    assert (caught.value.found, caught.value.known) == (2, 1)
