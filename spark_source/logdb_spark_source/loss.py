"""Offsets that were there once and are not any more: an error, or a warning where that was asked for.

Knows the option failOnDataLoss.  Does not know how offsets are lost.
"""

import logging
from typing import Protocol

from logdb.errors import LogdbError

logger = logging.getLogger(__name__)


class DataLoss(LogdbError):
    """Records that were to be read are gone: retention has removed them, or the topic was deleted or made anew."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; with failOnDataLoss=false reading goes on with what there is")


class Lossy(Protocol):
    """Whoever has the option."""

    @property
    def fail_on_data_loss(self) -> bool: ...


def lost(what: str, options: Lossy) -> None:
    """Tell that something is gone.

    Raises:
        DataLoss: Unless failOnDataLoss is false.
    """
    if options.fail_on_data_loss:
        raise DataLoss(what)
    logger.warning("%s; failOnDataLoss=false: going on with what there is", what)
