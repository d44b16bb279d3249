"""What the table of routes says that a call needs is what the session asks for; of two ways to be allowed, it names one."""

import pytest

from logdb.requests import cluster
from logdb.requests.records import EpochAt, OffsetForTimestamp, OpenTransactions, Produce, ReadBatches
from logdb.requests.request import REQUESTS
from logdb_http_api.door import batches, calls, partitions  # noqa: F401 -- calls imports all requests
from support.session_needs import CALLS

LISTS = {
    "topics": {"Describe Topic"},
    "changes": {"Describe Topic"},
    "cluster_nodes": {"Describe Topic"},
    "groups": {"Describe Group"},
    "transactions": {"Describe TransactionalId"},
}  # leave out


def kinds(way):
    """``Read Topic orders`` as ``Read Topic``."""
    return {" ".join(need.split()[:2]) for need in way}


@pytest.mark.parametrize("call", [name for name, kind in REQUESTS.items() if kind.__module__ != cluster.__name__])
def test_a_call_says_what_it_needs(call):
    said, variants = set(map(str, REQUESTS[call].needs)), [ways for name, (_, *ways) in CALLS.items() if name.partition(",")[0] == call]
    if call in LISTS:
        assert said == LISTS[call]
        return
    assert said <= {kind for ways in variants for way in ways for kind in kinds(way)}
    assert all(any(kinds(way) <= said for way in ways) for ways in variants)


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (batches.produce, Produce),
        (batches.fetch, ReadBatches),
        (partitions.offset_for_timestamp, OffsetForTimestamp),
        (partitions.epoch_at, EpochAt),
        (partitions.transactions, OpenTransactions),
    ],
)
def test_a_route_of_records_says_what_its_request_needs(handler, kind):
    (needs,) = (route.needs for module in (batches, partitions) for route in module.routes.all if route.handler is handler)
    assert needs == (str(kind.needs[-1]),), "a transaction needs its id, too"
