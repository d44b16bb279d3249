"""docs/reference/security.md, "What each call needs": each request has a row, which names what its class says, and nothing else."""

import re
from pathlib import Path

import pytest

from logdb.requests import (  # noqa: F401 -- the same
    groups,
    records,
    security,
    topics,
    transactions,
)
from logdb.requests.request import REQUESTS
from logdb.requests.resources import AS_GOOD, OPERATIONS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "security.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## What each call needs")[2].partition("\n\nA principal")[0]
ROWS = dict(re.findall(r"^\| (.+?) \| (.+) \|$", TABLE, re.MULTILINE)[1:])
PHRASE = re.compile(rf"\b({'|'.join({one for some in OPERATIONS.values() for one in some})})\b(?: ({'|'.join(OPERATIONS)})\b)?")
REQUESTS_OF = {
    "list topics, leaders of partitions, transactional ids": "topics changes cluster_nodes transactions",
    "list groups": "groups",
    "describe a topic, its partitions and offsets": (
        "describe_topic describe_at_rest partition_count log open_transactions offset_for_timestamp epoch_at"
    ),
    "describe configs": "describe_configs",
    "read, wait for records; describe the producers of a partition": "read_batches aborted_transactions wait producers",
    "produce": "produce",
    "create a topic": "create_topic check_new_topic",
    "alter configs; add partitions; compact": "alter_topic check_partitions check_topic_configs alter_configs compact",
    "delete a topic, delete records, enforce retention": "delete_topic delete_records enforce_retention",
    "get a producer id, flush everything": "init_producer_id flush",
    "add partitions to a transaction": "add_partitions",
    "end or abort a transaction": "end_transaction abort_transaction",
    "commit offsets in a transaction": "add_offsets commit_transaction_offsets",
    "describe a transaction": "describe_transaction",
    "join, sync, heartbeat, leave a group": "join_group sync_group heartbeat leave_group",
    "commit offsets": "commit_offsets",
    "fetch offsets": "fetch_offsets",
    "describe, delete a group; delete offsets of it": "describe_group delete_group delete_offsets",
    "list ACLs": "acls",
    "list users and tokens; change users, tokens, ACLs, quotas": (
        "users add_user set_password alter_credentials alter_user delete_users tokens add_token revoke_tokens add_acls delete_acls"
    ),
    "move replicas, elect leaders": "reassign elect_leaders",
    "metrics, what recovery reported, sizes and reassignments of all partitions, the quorum": (
        "reports partition_sizes reassignments describe_quorum"
    ),
    "verify, backup, snapshot of everything": "verify backup",
    "what the nodes of a cluster ask one another": (
        "write_transaction_marker will_end_transaction find_decision end_mirrored_transactions committed_end"
    ),
}
SHOWS_ALL = {"list groups": {("Describe", "Cluster")}}  # ``visible`` of the request


def test_each_request_is_in_one_row():
    assert ROWS.keys() == REQUESTS_OF.keys()
    assert sorted(name for names in REQUESTS_OF.values() for name in names.split()) == sorted(REQUESTS)


@pytest.mark.parametrize("row", REQUESTS_OF)
def test_a_row_names_what_its_requests_need(row):
    named = {(operation, resource_type or None) for operation, resource_type in PHRASE.findall(ROWS[row])}
    needs = [need for name in REQUESTS_OF[row].split() for need in REQUESTS[name].needs]
    for need in needs:
        assert (need.operation, need.resource_type) in named or (need.listed and (need.operation, None) in named), f"{need} is missing"
    wanted = {need[:2] for need in needs}
    wanted |= {AS_GOOD[right][:2] for right in wanted & AS_GOOD.keys()} | SHOWS_ALL.get(row, set())
    wanted |= {(operation, None) for operation, _ in wanted}
    assert named <= wanted
