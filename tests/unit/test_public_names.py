"""What ``logdb`` names is there, and says what it is."""

import inspect

import pytest

import logdb


@pytest.mark.parametrize("name", logdb.__all__)
def test_a_public_name(name):
    named = getattr(logdb, name)
    if inspect.isclass(named) or inspect.isroutine(named):
        assert inspect.getdoc(named), f"logdb.{name} has no docstring"


def test_sending_is_documented_where_it_is_called():
    documented = inspect.getdoc(logdb.Producer.send)
    assert documented is not None
    for option in inspect.signature(logdb.Transaction.send).parameters.keys() - {"self"}:
        assert f"    {option}: " in documented
