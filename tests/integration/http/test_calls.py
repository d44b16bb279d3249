"""The calls of a session over HTTP, with arguments of the right types and any values: an answer or an error, never a failure."""

import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logdb.requests import coding
from logdb_http_api.door.calls import CALLS
from support.serving import served
from support.typed import values_with
from support.wire import wire

JSON = {"Content-Type": "application/json"}
EDGES = [0, 1, -1, 2, 2**17, 2**31 - 1, 2**31, -(2**31) - 1, 2**32, 2**53, 2**63 - 1, -(2**63)]
WORDS = [
    "t",
    "",
    "g",
    "range",
    "consumer",
    "x" * 300,
    "é",
    "a/b",
    "\0",
    ".",
    "__consumer_offsets",
    "__transaction_state",
    "nosuch",
    "retention.ms",
]
KINDS = {kind.method: kind for kind in CALLS}
WAITS = {"join_group", "sync_group", "wait"}  # they may take as long as they say


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("calls") / "db", drain_ms=1_000) as it:
        it.database.create_topic("t", partitions=2)
        yield it


def arguments(name):
    """What is drawn for each parameter, as JSON: of its type, mostly at an edge."""
    hints = {key: wanted for key, wanted in typing.get_type_hints(KINDS[name]).items() if key in KINDS[name].__dataclass_fields__}
    made = {key: values_with(wanted, st.sampled_from(EDGES), st.sampled_from(WORDS)) for key, wanted in hints.items()}
    return st.builds(KINDS[name], **made)


@pytest.mark.parametrize("name", sorted(KINDS.keys() - WAITS))
def test_no_value_makes_a_call_fail(server, name):
    @settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
    @given(arguments(name))
    def check(request):
        body = coding.encode(request)
        said = line.ask("POST", f"/logdb/v1/calls/{name}", body, JSON)
        assert said.status != 500, (said.body, body)
        assert said.json is None or said.status == 200 or said.json["message"]

    with wire(server.url) as line:
        check()
