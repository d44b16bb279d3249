"""What ``logdb`` names is there, says what it is, and is seen by who looks: dir, help, type checkers."""

import ast
import inspect
import pydoc
import re
import subprocess
import sys

import pytest

import logdb
import logdb.client.administration
import logdb.client.local

LOOKS = """
import logdb
assert set(dir(logdb)) >= set(logdb.__all__), set(logdb.__all__) - set(dir(logdb))
"""


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


def test_dir_shows_names_that_were_not_looked_up_yet():
    subprocess.run([sys.executable, "-c", LOOKS], check=True, timeout=60)


def test_help_shows_every_name():
    shown = pydoc.render_doc(logdb, renderer=pydoc.plaintext)
    for name in logdb.__all__:
        named = getattr(logdb, name)
        if inspect.isclass(named):
            assert re.search(rf"^    (class {named.__name__}|{name} = class {named.__name__})\b", shown, re.MULTILINE), name
        elif inspect.isroutine(named):
            assert re.search(rf"^    {name}[ (]", shown, re.MULTILINE), name


@pytest.mark.parametrize("name", logdb.__all__)
def test_help_points_to_what_can_be_looked_up(name):
    """Where a docstring names a class of ours with a method of it, both are reached from ``logdb``."""
    named = getattr(logdb, name)
    told = [named, *(vars(named).values() if inspect.isclass(named) else ())]
    for place in {place for one in told for place in re.findall(r"``((?:\w+\.)*[A-Z]\w+(?:\.\w+)?)``", inspect.getdoc(one) or "")}:
        first, *rest = place.split(".")
        if hasattr(logdb, first):
            found = getattr(logdb, first)
            for part in rest:
                found = getattr(found, part)
        else:
            assert not rest, f"{place}, in the documentation of logdb.{name}, is nowhere in logdb"


def returned(function: object) -> "set[str]":
    """Names of classes in what a function, by its annotation, returns."""
    annotation = getattr(function, "__annotations__", {}).get("return")
    text = annotation.__name__ if inspect.isclass(annotation) else str(annotation)
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def test_what_public_calls_return_has_a_public_name():
    public = {value.__name__ for name in logdb.__all__ if inspect.isclass(value := getattr(logdb, name))}
    ours = {
        name
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").partition(".")[0] == "logdb"
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__.partition(".")[0] == "logdb" and not name.startswith("_")
    }
    looked_at, unnamed = 0, {}
    classes = [value for name in logdb.__all__ if inspect.isclass(value := getattr(logdb, name)) and value is not logdb.Session]
    for owner in (logdb, *classes):  # but for sessions, which clients talk through: few programs do, and by more names
        for name in dir(owner) if inspect.isclass(owner) else logdb.__all__:
            member = inspect.getattr_static(owner, name, None) if inspect.isclass(owner) else getattr(owner, name)
            function = member.fget if isinstance(member, property) else member
            if name.startswith("_") or not inspect.isfunction(function) or not function.__module__.startswith("logdb"):
                continue
            looked_at += 1
            unnamed |= dict.fromkeys((returned(function) & ours) - public, f"{owner.__name__}.{name}")
    assert unnamed == {}
    assert looked_at > 100


def test_serve_takes_what_open_returns(tmp_path):
    annotation = inspect.signature(logdb.serve).parameters["database"].annotation
    assert annotation is logdb.Database
    with pytest.raises(TypeError, match=r"database=None: must be a database in a directory"):
        logdb.serve(None)
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0") as server:
        assert isinstance(server, logdb.Server)
        with logdb.open(server.addresses[0]) as remote, pytest.raises(logdb.errors.LocalOnly, match="serving needs the files"):
            logdb.serve(remote)
