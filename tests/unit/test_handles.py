"""Python's implicit protocols: a habit that is wrong for a class raises TypeError at once, and the message has the right call."""

import asyncio

import pytest

import logdb
import logdb.aio
from logdb.aio.mirror import Mirror
from support.modules import classes

HABITS = {
    "__iter__": iter,
    "__next__": next,
    "__contains__": lambda one: b"k" in one,
    "__len__": len,
    "__bool__": bool,
    "__getitem__": lambda one: one[0],
    "__reversed__": lambda one: list(reversed(one)),
}


async def entered(one):
    with one:
        pass


def sync_of(kind):
    (sync,) = next(
        base.__args__ for parent in kind.__mro__ for base in vars(parent).get("__orig_bases__", ()) if getattr(base, "__args__", ())
    )
    return sync


@pytest.mark.parametrize(
    "kind", [kind for kind in classes() if issubclass(kind, Mirror) and kind is not Mirror], ids=lambda kind: kind.__name__
)
def test_habits_of_the_synchronous_class_at_one_for_asyncio(kind):
    one = object.__new__(kind)
    for name, habit in HABITS.items():
        if name == "__bool__" and not hasattr(sync_of(kind), "__len__"):
            assert habit(one) is True  # as any object
        elif name == "__getitem__" and "__getitem__" in vars(kind):
            continue  # gives an awaitable
        else:
            with pytest.raises(TypeError) as error:
                habit(one)
            if hasattr(sync_of(kind), name):
                assert any(call in str(error.value) for call in ("async ", "await ")), (name, error.value)
    with pytest.raises(TypeError) as error:
        asyncio.run(entered(one))
    if hasattr(sync_of(kind), "__enter__"):
        assert "async with" in str(error.value)


def test_an_opening_is_not_what_it_opens(tmp_path):
    opening = logdb.aio.open(tmp_path / "db")
    for habit in (iter, lambda one: one.__enter__()):
        with pytest.raises(TypeError, match=r"async with … as x, or x = await"):
            habit(opening)
    with pytest.raises(AttributeError, match=r"'create_topic': the object is not open yet; use: async with … as x, or x = await …"):
        opening.create_topic("t")
    assert not hasattr(opening, "topics")


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (lambda: logdb.Consumer("t", bootstrap_servers="localhost:9092"), r"db\.consumer\("),
        (lambda: logdb.Producer({"bootstrap.servers": "localhost:9092"}), r"db\.producer\("),
        (logdb.TransactionalProducer, r"db\.producer\("),
        (lambda: logdb.Database("events"), r"logdb\.open\("),
        (logdb.aio.Consumer, r"logdb\.aio\.open\(.*, or a call of the database"),
        (lambda: logdb.aio.Database("events"), r"logdb\.aio\.open\("),
    ],
)
def test_a_class_that_a_call_makes_names_the_call(make, call):
    with pytest.raises(TypeError, match=rf"is made by: .*{call}"):
        make()


def test_no_class_is_iterated_by_its_subscripts():
    """``x in one`` and ``for x in one`` ask for one[0], one[1], … where a class has neither ``__iter__`` nor an end."""
    without = [kind for kind in classes() if hasattr(kind, "__getitem__") and not (hasattr(kind, "__iter__") or hasattr(kind, "__len__"))]
    assert without == []


@pytest.mark.parametrize(("name", "call"), [("Consumer", r"assignment\(\)"), ("Watch", "for event in")])
def test_what_reads_without_end_contains_nothing(name, call):
    kind = getattr(logdb, name)
    with pytest.raises(TypeError, match=call):
        b"k" in object.__new__(kind)  # noqa: B015 -- it raises
