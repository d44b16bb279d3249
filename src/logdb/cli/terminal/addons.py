"""Functions of an add-on that a command calls: entry points name them."""

from typing import Any

from logdb.announced import announced
from logdb.errors import missing_package

CLUSTER = "logdb.cluster"
"""The group of these entry points: name = module:function."""


def of_the_cluster(name: str) -> Any:
    """What the package of clusters announces under a name; raises ModuleNotFoundError, which names the package that is missing."""
    try:
        return announced(CLUSTER)[name].load()
    except ModuleNotFoundError as error:
        raise missing_package("a cluster", error.name or "") from error
