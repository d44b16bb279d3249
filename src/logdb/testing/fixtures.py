"""pytest fixtures: import them in a ``conftest.py``, or name this module in its ``pytest_plugins``."""

from collections.abc import Iterator

import pytest

from logdb.testing import Broker, broker


@pytest.fixture
def logdb_broker() -> Iterator[Broker]:
    """A broker for one test."""
    with broker() as running:
        yield running
