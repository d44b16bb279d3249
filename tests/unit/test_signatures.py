"""Overloads and documentation name exactly the options that run, with the defaults that run."""

import inspect
import pydoc
from typing import get_overloads

import pytest

import logdb
import logdb.aio
from logdb.client import local, opening
from logdb.client.database import Database
from logdb.client.producer.producer import Producer, ProducerOptions
from logdb_http_api import remote


def options(function) -> dict[str, object]:
    return {p.name: p.default for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}


def test_the_overloads_of_open_have_the_options_that_run():
    of_directory, of_urls = get_overloads(opening.open)
    assert options(of_directory) == options(local.open_database)
    assert options(of_urls) == options(remote.open_urls)


@pytest.mark.parametrize("function", [logdb.open, logdb.aio.open])
def test_help_of_open_shows_every_option(function):
    shown = inspect.signature(function)
    assert list(shown.parameters)[1:] == list(options(local.open_database) | options(remote.open_urls))
    assert "batch_size: int = 16384 | 262144, linger_ms: int | timedelta = 5" in str(shown)
    assert all(f" {name}" in function.__doc__ for name in shown.parameters)
    lines = pydoc.render_doc(function, renderer=pydoc.plaintext).splitlines()[2:4]  # from Python 3.14 on, each parameter has a line
    assert "".join(lines).replace(" ", "").startswith("open(path:")


def test_help_of_a_server_is_for_its_user():
    text = pydoc.render_doc(logdb.Server, renderer=pydoc.plaintext)
    assert "Made by ``logdb.serve``" in text
    assert not [word for word in ("door", "hand_over", "_draining", "_named") if word in text.lower()]


@pytest.mark.parametrize("kind", [Database, logdb.aio.Database])
def test_help_of_a_producer_names_its_options(kind):
    shown = str(inspect.signature(kind.producer))
    assert "transactional_id: str | None = None, transaction_timeout_ms: int | timedelta | None = None" in shown
    assert "**options: Unpack[ProducerOptions]" in shown


def test_the_options_of_a_producer():
    taken = Producer.__init__.__kwdefaults__
    own = taken.keys() - {"io", "clock", "on_close", "transactional_id", "transaction_timeout_ms"}
    assert ProducerOptions.__annotations__.keys() == own
    described = Database.producer.__doc__
    for name in own:
        default = {"'all'": '"all"'}.get(repr(taken[name]), repr(taken[name]))
        assert f"{name}={default}" in described
    for one in get_overloads(Database.producer):
        assert options(one).keys() <= taken.keys()


@pytest.mark.parametrize("kind", [logdb.Consumer, logdb.Database, logdb.Log, logdb.Producer, logdb.Server, logdb.Transaction])
def test_help_of_a_class_has_what_its_user_calls(kind):
    text = pydoc.render_doc(kind, renderer=pydoc.plaintext).replace("__annotations__ = {}", "")  # 3.13 shows it once it was asked for
    inner = ("session:", "AccessControl", "monotonic_ms", "asyncio", "hand_out", "give_back", "look_interval_ms")
    typing = ("typing.", "~", "collections.abc.I", "collections.abc.C", "Ellipsis", "_hook", "__class_getitem__", "__annotations__")
    assert not [word for word in (*inner, *typing, "Initialize self", "refuse(", "__signature__") if word in text]


@pytest.mark.parametrize("kind", [logdb.aio.Consumer, logdb.aio.Database, logdb.aio.Producer, logdb.Table])
def test_help_shows_no_constructor_that_logdb_alone_calls(kind):
    text = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    assert not [word for word in ("threads:", "session:", "Initialize self") if word in text]


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_log_is_a_log(tmp_path, is_remote):
    with logdb.open(tmp_path) as db, logdb.serve(db, http="127.0.0.1:0") as server, logdb.open(server.addresses[0]) as remote:
        log = db.create_topic("t") and (remote if is_remote else db).log("t")
        assert isinstance(log, logdb.Log)
        assert not isinstance(log.read(0), logdb.Log)


def test_help_shows_types_by_their_short_names():
    shown = str(inspect.signature(logdb.Log.append))
    assert shown.startswith("(self, value: Buffer | None, key: Buffer | None = None, *, headers: Iterable[tuple[str, Buffer | None]] = ()")
    for kind in (logdb.Log, Database):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                assert not [noise for noise in ("'Iter", "collections.abc", "bytearray") if noise in str(inspect.signature(method))], name
