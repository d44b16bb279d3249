"""The suites of a database, of a server and of Kafka's clients, on a cluster: ``pytest --brokers 3 [PATH …]``.

What asks for a place runs on the cluster in place of a path and a URL; what asks for a server, or a Kafka door, gets node 1's.  A process
of pytest has one cluster, which a test finds empty.  A test that gives its server or its database settings of its own is skipped: so many
clusters would take too long to start.  ``LEFT_OUT`` has the others that are.
"""

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb.errors import InvalidTransactionState, UnknownGroup
from logdb.testing import Broker
from support.cluster_process import ClusterProcess

_TESTS = Path(__file__).parents[1]
SUITES = (
    "integration/http/test_batches.py",
    "integration/http/test_compressed.py",
    "integration/kafka/test_clients.py",
    "integration/kafka/test_groups.py",
    "integration/kafka/test_java_tools.py",
    "integration/kafka/test_javascript_and_go.py",
    "integration/kafka/test_more_clients.py",
    "integration/kafka/test_streams.py",
    "integration/kafka/test_transactions.py",
    "integration/test_accepted_is_written.py",
    "integration/test_aio.py",
    "integration/test_groups.py",
    "integration/test_interrupted_consumer.py",
    "integration/test_producer.py",
    "integration/test_transactions.py",
    "unit/client/",
)
"""What is not among them: suites of one node's door (frames, limits, TLS, hostile clients: each node has the same door), of the files of a
directory, and of users, whose first one closes the cluster to the tests that follow."""

_ALONE = "it begins with a database that nobody has used"
_CLOCK = "it stops the server's clock"
_COMPACTS = "compact() compacts the replicas of the node that answers"
_INSIDE = "it looks into the server, which is a process of its own"
_ONE_NODE = "its frames go to one node, which need not be the one that leads or coordinates"
LEFT_OUT = {
    "test_a_consumer_beside_the_writer": "it opens a directory twice",
    "test_a_flush_waits_for_the_disk_unless_it_is_told_not_to": _INSIDE,
    "test_a_large_answer_is_whole": "it compares with the pages of a log in this process",
    "test_a_loop_takes_the_id_over_once": _ALONE,
    "test_a_member_that_never_answers_a_rebalance_does_not_hold_it_up": _CLOCK,
    "test_a_server_without_the_codec_refuses_and_a_client_needs_it_for_its_own_batches": _INSIDE,
    "test_a_timeout_that_is_not_allowed": _ALONE,
    "test_a_tombstone_that_compaction_took_along": _COMPACTS,
    "test_administration": _ALONE,
    "test_asking_makes_no_topics": _ALONE,
    "test_consume_transform_produce": "its topic has one partition where it names no number: a cluster's have six",
    "test_internal_topics_are_compacted_and_nothing_else": _ALONE,
    "test_nobody_else_writes_to_internal_topics": _ALONE,
    "test_offsets_that_compaction_has_left_out": _COMPACTS,
    "test_transactions": _ALONE,
    "test_what_is_sent_is_there_as_it_was": "it asks for a durability per call, which a cluster refuses",
}


def choose(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of ``SUITES``; those of ``LEFT_OUT`` are skipped."""
    chosen = [item for item in items if item.path.relative_to(_TESTS).as_posix().startswith(SUITES)]
    for item in chosen:
        if reason := _ONE_NODE if "wire" in item.fixturenames else LEFT_OUT.get(item.originalname):
            item.add_marker(pytest.mark.skip(reason))
    return chosen


class Shared:
    """The cluster of this process, once a test has asked for it; ``chosen``: whether tests run on it."""

    chosen = False
    _cluster: ClusterProcess | None = None

    @classmethod
    def cluster(cls) -> ClusterProcess:
        if cls._cluster is None:
            directory = tempfile.mkdtemp(prefix="logdb-three-")
            flags = ("--auto-create-topics", "--num-partitions=1", "--session-timeout-ms-min=1000")
            cls._cluster = ClusterProcess(Path(directory) / "cluster", 3, *flags, kafka=True)
            atexit.register(cls._end, directory)
            cls._cluster.start()
        return cls._cluster

    @classmethod
    def _end(cls, directory: str) -> None:
        for process in cls._cluster.processes.values():
            process.kill()
            process.wait(10)
        shutil.rmtree(directory)


@contextlib.contextmanager
def opened(*, clock: Any = None, **options: Any) -> Iterator[logdb.Database]:
    """The cluster's database, empty, for one test."""
    if options:
        pytest.skip(f"its database has settings of its own: {', '.join(options)}")
    with logdb.open(Shared.cluster().urls, clock=clock) as database:
        _clear(database)
        create = database.create_topic  # a suite that names no number of partitions means one
        database.create_topic = lambda name, *, partitions=1, **others: create(name, partitions=partitions, **others)
        yield database


def _clear(database: logdb.Database) -> None:
    for transaction in database.transactions():
        with contextlib.suppress(InvalidTransactionState):  # it is over
            database.abort_transaction(transaction.transactional_id)
    for group in database.groups():
        with contextlib.suppress(UnknownGroup):  # it had its last member, and no offsets
            members = [member.member_id for member in database.describe_group(group.group_id).members]
            database._session.leave_group(group.group_id, members)
            database.delete_group(group.group_id)
    for topic in database.topics():
        database.delete_topic(topic.name)


@contextlib.contextmanager
def broker(**options: Any) -> Iterator[Broker]:
    """In place of ``logdb.testing.broker``."""
    with opened(**options) as database:
        yield Broker(",".join(Shared.cluster().kafka), database)
