"""What ``make quick``, ``make test`` and ``make check`` run.

``pytest --level quick``: for editing.  ``--level test``: what a contributor runs.  ``--level check``: what ``--level test`` leaves out.
Without ``--level`` pytest runs what it is asked for.  A key of the tables is a path below ``tests``, and goes on with the name of a test:
"unit/", "unit/test_x.py", "unit/test_x.py::test_y".
"""

from collections.abc import Iterable

import pytest

from support.order import key_of, place

LEVELS = ("quick", "test", "check")

QUICK = ("unit/",)
NOT_QUICK: dict[str, str] = {}
"""Tests of ``QUICK`` that take too long while one edits, and why."""

CHECK: dict[str, str] = {}
"""What ``make check`` runs and ``make test`` does not, beside the tests marked ``foreign``, and why."""


def level_of(item: pytest.Item) -> str:
    """The first level that runs a test."""
    key = key_of(item.nodeid)
    if item.get_closest_marker("foreign") or is_named(key, CHECK):
        return "check"
    return "quick" if is_named(key, QUICK) and not is_named(key, NOT_QUICK) else "test"


def is_named(key: str, names: Iterable[str]) -> bool:
    """Whether one of the names is that of a test, of its file or of its directory."""
    return any(key.startswith(name) and (name[-1] == "/" or key[len(name) : len(name) + 1] in {"", ":", "["}) for name in names)


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the level that was asked for, in ``order.ORDER``."""
    level = config.getoption("--level")
    if level is None:
        return
    levels = {"quick", "test"} if level == "test" else {level}
    kept = [item for item in items if level_of(item) in levels]
    config.hook.pytest_deselected(items=[item for item in items if level_of(item) not in levels])
    items[:] = sorted(kept, key=lambda item: place(item.nodeid))


def left_out(level: str) -> list[str]:
    """What to say at the end of a run."""
    if level == "quick":
        return ["make test adds the tests outside of tests/unit, and of those:", *(f"  {name}: {why}" for name, why in NOT_QUICK.items())]
    if level == "test":
        return [f"make check adds {len(CHECK)} files and tests (tests/support/levels.py), programs of others, sanitizers and three brokers"]
    return []
