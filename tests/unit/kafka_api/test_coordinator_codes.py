"""What a client of a coordinator is told when the coordinator's own partition cannot take a record."""

import pytest

from logdb.errors import CommitTimeout, CoordinatorFenced, NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeaderOrFollower
from logdb_kafka_api.errors import Code, coordinator_code_of


@pytest.mark.parametrize(
    "error",
    [
        NotLeaderOrFollower("__transaction_state", 0, 3, 1),
        NotEnoughReplicas("__transaction_state", 0, 1, 2),
        NotEnoughReplicasAfterAppend("__transaction_state", 0, 1, 2),
        CommitTimeout("__transaction_state", 0, 30_000),
        CoordinatorFenced("a", 0, 7, 1, 2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_it_is_to_find_the_coordinator_again(error):
    assert coordinator_code_of(error) is Code.COORDINATOR_NOT_AVAILABLE
