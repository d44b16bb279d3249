"""The suites of a database, of a server and of Kafka's clients, on a cluster: ``pytest --brokers 3 [PATH …]``.

What asks for a place runs on the cluster in place of a path and a URL; what asks for a server gets a node, another one for each plain
request; what asks for a Kafka door gets all.  A process of pytest has one cluster, which a test finds empty.  Served over HTTP with
settings, users or a directory of its own, a test has three nodes in this process over one store (``clustered``): real ones would take
too long to start, and who once had users is closed to others.  What gives another database settings is skipped; ``LEFT_OUT`` has the rest.
"""

import atexit
import contextlib
import inspect
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import logdb
from logdb.errors import InvalidTransactionState, UnknownGroup
from logdb.testing import Broker
from support.cluster_process import ClusterProcess
from support.clustered import TOKEN, clustered

_TESTS = Path(__file__).parents[1]
SUITES = (
    "integration/http/test_administration.py",
    "integration/http/test_batches.py",
    "integration/http/test_calls.py",
    "integration/http/test_compressed.py",
    "integration/http/test_denied.py",
    "integration/http/test_error_codes.py",
    "integration/http/test_events.py",
    "integration/http/test_metrics_page.py",
    "integration/http/test_remote_security.py",
    "integration/http/test_revoked.py",
    "integration/http/test_security.py",
    "integration/http/test_v2_",
    "integration/http/test_v3_",
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
directory, and of backups of one node."""

_ALONE = "it begins with a database that nobody has used"
_CLOCK = "it stops the server's clock"
_COMPACTS = "compact() compacts the replicas of the node that answers"
_INSIDE = "it looks into the server, which is a process of its own, or one of three"
_MANY_PARTITIONS = "others are waited for half a second: a node that takes longer to make so many partitions is asked too early"
_NODE_0 = "it says what the only broker is, which is number 0"
_AS_A_NODE = "its database is opened as a node, which is told of the groups of one node alone"
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
    "test_a_thousand_partitions_are_looked_at_off_the_loop": _MANY_PARTITIONS,
    "test_too_many_partitions_to_be_followed_together": _MANY_PARTITIONS,
    "test_keep_alive": _INSIDE,
    "test_nothing_was_changed": _AS_A_NODE,
    "test_names_labels_and_numbers": _NODE_0,
    "test_names_that_have_to_be_escaped": "a node tells of the groups that it coordinates",
    "test_it_is_told[BackupMismatch]": "it compares backups of directories",
    "test_the_error_is_told[500-50002-damaged_log]": "it damages a file of the only replica",
    "test_a_request_is_refused[POST-/topics-body26-400-40002-one replica]": _NODE_0,
    "test_a_request_is_refused[POST-/topics-body27-400-40002-numbered from 0]": _NODE_0,
    "test_the_exchanges_are_as_documented[v2_topics-by_library]": _NODE_0,
    "test_the_exchanges_are_as_documented[v2_topics-by_curl]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_clusters-by_library]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_clusters-by_curl]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_partitions-by_library]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_partitions-by_curl]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_placed-by_library]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_placed-by_curl]": _NODE_0,
    "test_somebody_who_is_allowed_nothing[GET-/brokers]": _NODE_0,
    "test_somebody_who_is_allowed_nothing[GET-/v3/clusters/{cluster_id}/brokers/{broker_id}]": _NODE_0,
    "test_somebody_who_is_allowed_nothing[GET-/v3/clusters/{cluster_id}/brokers/{broker_id}/configs]": _NODE_0,
    "test_somebody_who_is_allowed_nothing[GET-/v3/clusters/{cluster_id}/brokers/{broker_id}/partition-replicas]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_topics-by_library]": _ALONE,
    "test_the_exchanges_are_as_documented[v3_topics-by_curl]": _ALONE,
    "test_a_remote_watch_ends": _INSIDE,
}


def choose(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of ``SUITES``; those of ``LEFT_OUT`` are skipped."""
    chosen = [item for item in items if item.path.relative_to(_TESTS).as_posix().startswith(SUITES)]
    for item in chosen:
        if reason := _ONE_NODE if "wire" in item.fixturenames else LEFT_OUT.get(item.originalname) or LEFT_OUT.get(item.name):
            item.add_marker(pytest.mark.skip(reason))
    return chosen


class Inside:
    """In place of a server of this process: a test that looks into it is skipped."""

    def __getattr__(self, _: str) -> Any:
        pytest.skip(_INSIDE)


class Shared:
    """The cluster of this process, once a test has asked for it.

    ``chosen``: whether tests run on it; ``has_users``: whether the present test turns authentication on.
    """

    chosen = has_users = False
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
def nodes(path: Path, opening: dict[str, Any], options: dict[str, Any]) -> Iterator[tuple[logdb.Database, list[str]]]:
    """A cluster's database, and the URLs of its nodes.

    It is the one of this process, but for a test with settings or a directory of its own, or with users: that has three nodes over one
    store (``clustered``).
    """
    if not (opening or options.keys() - {"drain_ms"} or path.exists() or Shared.has_users):
        with opened() as database:
            yield database, Shared.cluster().urls
        return
    if refused := {*opening, *options} & {"mode", "tls_cert"}:
        pytest.skip(f"its database has settings of its own: {', '.join(refused)}")
    with clustered(path, opening, **options) as three, logdb.open(three.urls, token=TOKEN) as database:
        _by_default_one_partition(database)
        yield database, three.urls


def uses_users(item: pytest.Item) -> bool:
    """Whether a test turns authentication on, by itself or by functions of its module."""
    functions = (one for one in vars(item.module).values() if inspect.isfunction(one) and one.__module__ == item.module.__name__)
    by = {"secure", "add_user"} | {one.__name__ for one in functions if "secure" in _names(one.__code__)}
    used = [item.function, *(found[-1].func for found in item._fixtureinfo.name2fixturedefs.values())]
    return any(by & _names(inspect.unwrap(function).__code__) for function in used if inspect.isfunction(function))


def _names(code: CodeType) -> set[str]:
    """The globals and attributes that a function uses."""
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


@contextlib.contextmanager
def opened(*, clock: Any = None, **options: Any) -> Iterator[logdb.Database]:
    """The cluster's database, empty, for one test."""
    if options:
        pytest.skip(f"its database has settings of its own: {', '.join(options)}")
    with logdb.open(Shared.cluster().urls, clock=clock) as database:
        _clear(database)
        _by_default_one_partition(database)
        yield database


def _by_default_one_partition(database: logdb.Database) -> None:
    """A suite that names no number of partitions means one."""
    create = database.create_topic
    database.create_topic = lambda name, *, partitions=1, **others: create(name, partitions=partitions, **others)


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
