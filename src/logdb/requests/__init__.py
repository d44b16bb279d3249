"""Every request of a session as a value: its fields, its answer, and the operations and resources that it needs.

    request.py        what a request is, and what it can need
    topic_changes.py  what creates, alters and deletes topics
    topics.py         topics and the database as a whole
    replicas.py       replicas, leaders and controllers of a cluster
    transactions.py   producers and transactions
    groups.py         groups and their offsets
    records.py        the records of a partition
    security.py       users, tokens, ACLs and quotas
    coding.py         requests and answers as JSON
    session.py        the same requests as methods: what applications and clients call
    principals.py, acls.py, users.py, resources.py
                      what their fields are made of

A module of requests is imported when one of them is first made: ``import logdb`` needs none.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logdb.requests import groups, records, security, topic_changes, topics, transactions

__all__ = ["groups", "records", "security", "topic_changes", "topics", "transactions"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
