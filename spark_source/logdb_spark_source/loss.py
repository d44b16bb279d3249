"""Deleted offsets: an error, or with failOnDataLoss=false a warning."""

import logging
from typing import Protocol

from logdb.errors import LogdbError

logger = logging.getLogger(__name__)


class DataLoss(LogdbError):
    """Records that a query needs are gone: retention has deleted them, or the topic was deleted or created again."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; with failOnDataLoss=false reading continues with the remaining records")


class Lossy(Protocol):
    """An object with the option."""

    @property
    def fail_on_data_loss(self) -> bool: ...


def lost(what: str, options: Lossy) -> None:
    """Report that records are gone.

    Raises:
        DataLoss: Unless failOnDataLoss is false.
    """
    if options.fail_on_data_loss:
        raise DataLoss(what)
    logger.warning("%s; failOnDataLoss=false: continuing with the remaining records", what)
