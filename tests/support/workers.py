"""A scheduler for xdist: tests that share something run on one worker, in the order that they are collected in."""

from xdist.scheduler import LoadScopeScheduling

from support.order import share


class Scheduling(LoadScopeScheduling):
    """In place of xdist's for ``--dist loadgroup``: with pytest 9.2 it does not see the mark ``xdist_group`` (pytest-xdist#1386)."""

    def _split_scope(self, nodeid: str) -> str:
        return share(nodeid)
