"""What ``logdb.open`` takes for a directory, and what is only mistyped: no directory is made of that."""

import asyncio
import os
import pathlib
import shutil

import pytest

import logdb
from logdb import aio


class Strange:
    """A path whose name is bytes."""

    def __fspath__(self):
        return b"events"


MISTYPED = [
    ("", "'' names no directory; '.' is the current one"),
    (":memory:", "no database is kept in memory: give a directory, such as one of tempfile.mkdtemp()"),
    ("localhost:8080", "'http://localhost:8080' is the server there, './localhost:8080' a path of that name"),
    ("localhost:8080/", "'http://localhost:8080/' is the server there"),
    ("127.0.0.1:8080", "'http://127.0.0.1:8080' is the server"),
    ("db.example.com:443", "'http://db.example.com:443' is the server"),
    ("[::1]:8080", "'http://[::1]:8080' is the server"),
    (":8080", "'http://localhost:8080' is the server"),
    ("//localhost:8080", "'http://localhost:8080' is the server"),
    ("alice:s3cret@localhost:8080", "'http://localhost:8080' is the server"),
    ("http:/localhost", "a server is 'http://localhost'"),
    ("http:localhost", "a server is 'http://localhost'"),
    ("https//localhost", "a server is 'https://localhost'"),
    ("HTTP:/x", "a server is 'http://x'"),
    ("file:/tmp/x", "a path is written without 'file:': '/tmp/x'"),
    ("file:///tmp/x", "a path is written without 'file:': '/tmp/x'"),
    ("tcp://localhost:8080", "'tcp://localhost:8080': the URL of a server begins with http:// or https://"),
    ("kafka://a:s3cret@localhost", "'kafka://localhost': the URL of a server begins with"),
    (["http://a", "ftp://b"], "'ftp://b': the URL of a server begins with"),
    (["http://a", "https://b"], "'http://a', 'https://b': all URLs have the same scheme"),
    (["events"], "'events': the URL of a server begins with"),
    ([], "no URL is given"),
    ("events ", "'events ' begins or ends with a space"),
    ("\tevents", "begins or ends with a space"),
    ("events\n", "begins or ends with a space"),
    ("a\0b", "'a\\x00b' contains a NUL"),
    (pathlib.Path("a\0b"), "contains a NUL"),
    (pathlib.Path("http://localhost:8080"), "a server is 'http://localhost:8080'"),
    ("~", "'~' is not expanded here: os.path.expanduser gives"),
    ("~/events", "'~/events' is not expanded here"),
    ("http://exa mple", "must be http://host:port or https://host:port"),
    ("http://", "must be http://host:port or https://host:port"),
    ("http://h:99999", "must be http://host:port or https://host:port"),
    ("http://a:1,http://b:2", "must be http://host:port or https://host:port"),
]
NEITHER = [None, 5, b"events", Strange(), [None], {"a": 1}, object(), logdb, pathlib.Path]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield tmp_path
    assert os.listdir(tmp_path) == [], "nothing is made"


@pytest.mark.parametrize(("given", "said"), MISTYPED)
def test_what_is_mistyped_is_refused_with_what_is_meant(given, said):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- what it says is compared
        logdb.open(given)
    assert said in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("given", NEITHER)
def test_what_is_neither_a_path_nor_urls(given):
    with pytest.raises(TypeError, match=r"must be a directory \(str or os.PathLike\), a URL, or several URLs") as raised:
        logdb.open(given)
    assert raised.value.__cause__ is None


def test_asyncio_refuses_the_same():
    async def opening():
        await aio.open("localhost:8080")

    with pytest.raises(ValueError, match="is the server there"):
        asyncio.run(opening())


@pytest.mark.parametrize("given", ["./localhost:8080", pathlib.Path("localhost:8080"), "./~", "events.d", "a:b", "x y", "C:8080x", "./ x"])
def test_names_of_directories(given, tmp_path):
    with logdb.open(given) as db:
        assert os.path.samefile(db.path, tmp_path / given)
    shutil.rmtree(db.path)
