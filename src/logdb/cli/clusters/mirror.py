"""``logdb mirror``: copies topics to another cluster, or directory, with their offsets."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import click

import logdb
from logdb.cli.terminal.output import emit, say, table
from logdb.cli.terminal.session import Session, checked_directory, here, pass_session
from logdb.cli.terminal.units import MILLISECONDS
from logdb.client.addresses import url_meant
from logdb.client.mirror import Mirror, matches
from logdb.errors import LogdbError, UnknownTopic

_SAY_S, _AGAIN_S = 10.0, 1.0
Answer = TypeVar("Answer")


@click.command(short_help="Copy topics to another cluster or directory, with their offsets.")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--topics", metavar="A,B*", required=True, help="Names or patterns of topics, separated by commas.")
@click.option("--once", is_flag=True, help="End when the target has all records of the source.")
@click.option("--no-groups", is_flag=True, help="Leave out the committed offsets of groups.")
@click.option("--interval", type=MILLISECONDS, default=1_000, metavar="TIME", help="How often to look for new records.  [default: 1s]")
@here
@pass_session
def mirror(session: Session, /, source: str, target: str, topics: str, once: bool, no_groups: bool, interval: int) -> None:
    """Copy topics from SOURCE to TARGET, and keep copying new records until Ctrl-C.

    Each is a directory, or the URLs or HOST:PORT of servers, separated by commas.  Records keep their offsets, so consumers
    can switch to the copy.  You may stop or kill the command at any time; the next run continues.  A copied topic
    refuses other producers until you delete its config logdb.mirror.of.
    """
    session.refuse_servers("mirror names its two sides")
    session.follows = not once
    patterns = [name.strip() for name in topics.split(",")]
    with contextlib.ExitStack() as opened:
        theirs = opened.enter_context(_opened(session, source, write=False))
        _tried(lambda: _check_topics(theirs, patterns, once=once), once=once)  # before the target is made
        ours = opened.enter_context(_opened(session, target, write=True))
        one, said = Mirror(theirs, ours, patterns, groups=not no_groups), 0.0
        while True:
            copied = _tried(one.copy, once=once)
            if copied is not None:
                _tried(one.copy_groups, once=once)
            if once and not copied and not any(progress.lag for progress in one.progress.values()):
                break
            if not once and time.monotonic() - said > _SAY_S:
                _show(session, one)
                said = time.monotonic()
            if not copied:
                time.sleep(interval / 1000)
        _show(session, one)


def _tried(call: Callable[[], Answer], *, once: bool) -> Answer | None:
    """What the call returns; None: one of the sides was not there."""
    try:
        return call()
    except LogdbError as error:
        if once or not error.retriable:
            raise
        say(f"retrying in {_AGAIN_S:g} s: {error}")
        time.sleep(_AGAIN_S)
        return None


def _check_topics(source: logdb.Database, patterns: Sequence[str], *, once: bool) -> None:
    """Say which patterns match no topic.

    Raises:
        UnknownTopic: With ``once``: one is the name of a topic that is not there; otherwise it may come.
    """
    known = [topic.name for topic in source.topics()]
    for pattern in patterns:
        if not any(matches(topic, pattern) for topic in known):
            if once and not set(pattern) & set("*?["):
                raise UnknownTopic(pattern, known=tuple(known))
            say(f"no topic of the source matches {pattern!r}" + ("" if once else " yet"))


@contextlib.contextmanager
def _opened(session: Session, place: str, *, write: bool) -> Iterator[logdb.Database]:
    if any(map(url_meant, place.split(","))):
        with session.servers.open(place) as db:
            yield db
    else:
        with logdb.open(os.path.abspath(checked_directory(place)), mode="a" if write else "r") as db:
            yield db


def _show(session: Session, one: Mirror) -> None:
    rows = [(*where, progress.offset, progress.lag) for where, progress in sorted(one.progress.items())]
    if session.as_json:
        names = ("topic", "partition", "offset", "lag")
        emit({"partitions": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        table(["topic", "partition", "copied up to", "lag"], [list(row) for row in rows])
