"""The suites of a database, of a server and of Kafka's clients, on a cluster: ``pytest --brokers 3 [PATH …]``.

What asks for a place runs on the cluster in place of a path and a URL; what asks for a server gets a node, another one for each plain
request; what asks for a Kafka door gets all.  A process of pytest has one cluster, and one for tests with users; a test finds
it empty.  What is served with settings or a directory of its own has three nodes in this process over one store (``clustered``): real ones
would take too long to start.  What gives another database settings is skipped; ``LEFT_OUT`` and ``SUITES_LEFT_OUT`` have the rest.
"""

import atexit
import contextlib
import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pytest

import logdb
from logdb.errors import InvalidTransactionState, UnknownGroup
from logdb.testing import Broker
from logdb_replication.administration import cluster_state, controllers
from logdb_replication.config import ClusterConfig
from logdb_replication.controller.commands import ChangeSecurity
from logdb_replication.tokens import cluster_token
from support.cluster_process import ClusterProcess
from support.clustered import TOKEN, clustered, documents
from support.security import secure

_TESTS = Path(__file__).parents[1]
SUITES = (
    "examples/",
    "integration/http/test_administration.py",
    "integration/http/test_batches.py",
    "integration/http/test_calls.py",
    "integration/http/test_error_codes.py",
    "integration/http/test_events.py",
    "integration/http/test_remote_security.py",
    "integration/http/test_revoked.py",
    "integration/http/test_security.py",
    "integration/http/test_v2_",
    "integration/http/test_v3_",
    "integration/kafka/test_administration.py",
    "integration/kafka/test_clients.py",
    "integration/kafka/test_connect.py",
    "integration/kafka/test_group_versions.py",
    "integration/kafka/test_groups.py",
    "integration/kafka/test_java_tools.py",
    "integration/kafka/test_javascript_and_go.py",
    "integration/kafka/test_mirror_maker.py",
    "integration/kafka/test_more_clients.py",
    "integration/kafka/test_platformatic.py",
    "integration/kafka/test_quick_start.py",
    "integration/kafka/test_secured.py",
    "integration/kafka/test_security.py",
    "integration/kafka/test_streams.py",
    "integration/kafka/test_tools_beside_kafkas.py",
    "integration/kafka/test_transactions.py",
    "integration/test_accepted_is_written.py",
    "integration/test_aio.py",
    "integration/test_groups.py",
    "integration/test_interrupted_consumer.py",
    "integration/test_mirror.py",
    "integration/test_producer.py",
    "integration/test_transactions.py",
    "integration/test_watch.py",
    "unit/client/",
)
_AS_OTHERS = "examples/test_game_events.py, test_retail_orders.py and test_upgrade.py ask the same of a cluster"
_CLIENT = "the client's own work, whoever answers"
_DIRECTORY = "a directory: its files, its lock, its processes"
_DOOR = "one node's door, which every node has: frames, limits, TLS, hostile clients"
_ERRORS = "the errors of integration/http/test_error_codes.py in another shape"
_ITS_OWN = "it starts servers or nodes of its own"
_PROCESS = "this process: its memory, threads, descriptors"
SUITES_LEFT_OUT = {
    "examples/test_activity_audit.py": _AS_OTHERS,
    "examples/test_exactly_once_sqlite.py": _DIRECTORY,
    "examples/test_fastapi_orders.py": _ITS_OWN,
    "examples/test_log_search.py": _AS_OTHERS,
    "examples/test_masking.py": _CLIENT,
    "examples/test_price_cache.py": "a table, which is the client's, of so many prices that three nodes take a minute",
    "examples/test_testing.py": _ITS_OWN,
    "examples/test_totals_per_key.py": _ITS_OWN,
    "integration/http/test_another_log.py": _ITS_OWN,
    "integration/http/test_batch_bodies.py": _DOOR,
    "integration/http/test_compressed.py": _DOOR,
    "integration/http/test_connect_in_browser.py": _DOOR,
    "integration/http/test_connect_worker.py": _DOOR,
    "integration/http/test_cross_site.py": _DOOR,
    "integration/http/test_denied.py": "a node looks up rights as one broker does; test_v2_rights.py and test_security.py are asked",
    "integration/http/test_door.py": _DOOR,
    "integration/http/test_drain.py": _DOOR,
    "integration/http/test_first_connect.py": _DOOR,
    "integration/http/test_half_a_head.py": _DOOR,
    "integration/http/test_head.py": _DOOR,
    "integration/http/test_honest_client.py": _DOOR,
    "integration/http/test_hostile.py": _DOOR,
    "integration/http/test_hostile_connections.py": _DOOR,
    "integration/http/test_idle.py": _PROCESS,
    "integration/http/test_kill.py": _ITS_OWN,
    "integration/http/test_metrics_page.py": "it says what the only broker is, and a node tells of the groups that it coordinates",
    "integration/http/test_page.py": _DOOR,
    "integration/http/test_page_in_browser.py": _DOOR,
    "integration/http/test_remote_failures.py": _ITS_OWN,
    "integration/http/test_remote_frames.py": _DOOR,
    "integration/http/test_remote_lineage.py": _ITS_OWN,
    "integration/http/test_remote_whole.py": "reports, checks and backups, which are of one node's directory",
    "integration/http/test_serve.py": _ITS_OWN,
    "integration/http/test_serve_tls.py": _ITS_OWN,
    "integration/http/test_topic_defaults.py": "a path beside a URL",
    "integration/http/test_upgrade.py": _DOOR,
    "integration/http/test_uploads.py": _DIRECTORY,
    "integration/http/test_v2_errors.py": _ERRORS,
    "integration/http/test_v3_errors.py": _ERRORS,
    "integration/kafka/test_batch_fields.py": _DOOR,
    "integration/kafka/test_list_offsets_before_1970.py": _DOOR,
    "integration/kafka/test_door.py": _DOOR,
    "integration/kafka/test_door_memory.py": _PROCESS,
    "integration/kafka/test_first_questions.py": _DOOR,
    "integration/kafka/test_hostile.py": _DOOR,
    "integration/kafka/test_http.py": _DOOR,
    "integration/kafka/test_quick_start_by_our_names.py": _ITS_OWN,
    "integration/kafka/test_reassignments.py": _ITS_OWN,
    "integration/kafka/test_request_fields.py": _DOOR,
    "integration/kafka/test_serve.py": _ITS_OWN,
    "integration/kafka/test_shares.py": _DOOR,
    "integration/test_backups.py": _DIRECTORY,
    "integration/test_bad_input.py": _DIRECTORY,
    "integration/test_cli.py": _DIRECTORY,
    "integration/test_close_beside.py": _PROCESS,
    "integration/test_compaction.py": _DIRECTORY,
    "integration/test_controllers.py": _ITS_OWN,
    "integration/test_deleted_topics.py": _PROCESS,
    "integration/test_demo.py": _DIRECTORY,
    "integration/test_deploy.py": _ITS_OWN,
    "integration/test_descriptors.py": _PROCESS,
    "integration/test_fetch_sessions.py": _ITS_OWN,
    "integration/test_fork.py": _PROCESS,
    "integration/test_how_to.py": _ITS_OWN,
    "integration/test_how_to_kills.py": _DIRECTORY,
    "integration/test_how_to_power_cuts.py": _DIRECTORY,
    "integration/test_idle.py": _PROCESS,
    "integration/test_internal_topics.py": _DIRECTORY,
    "integration/test_interrupts.py": _PROCESS,
    "integration/test_many_partitions.py": _PROCESS,
    "integration/test_packaging.py": _DIRECTORY,
    "integration/test_private_directories.py": _DIRECTORY,
    "integration/test_quorum.py": _ITS_OWN,
    "integration/test_raised_or_logged.py": _CLIENT,
    "integration/test_readers.py": _DIRECTORY,
    "integration/test_readme.py": _ITS_OWN,
    "integration/test_reads_at_followers.py": _ITS_OWN,
    "integration/test_replicas.py": _ITS_OWN,
    "integration/test_errors_after_an_append.py": _ITS_OWN,
    "integration/test_quorum_queues.py": _ITS_OWN,
    "integration/test_retention.py": _DIRECTORY,
    "integration/test_site.py": "it has no database",
    "integration/test_snapshots.py": _DIRECTORY,
    "integration/test_table.py": _DIRECTORY,
    "integration/test_table_memory.py": _PROCESS,
    "integration/test_thread_start.py": _PROCESS,
    "integration/test_threads.py": _PROCESS,
    "integration/test_timestamps_before_1970.py": _DIRECTORY,
    "integration/kafka/test_temporary.py": _PROCESS,
    "integration/test_tutorial.py": _ITS_OWN,
    "integration/test_wrong_types.py": _CLIENT,
}
"""What the others are of."""

_ALONE = "it begins with a database that nobody has used"
_CLOCK = "it stops the server's clock"
_COMPACTS = "compact() compacts the replicas of the node that answers"
_KEPT_SESSION = "a node of a cluster keeps no session for requests that are repeated"
_INSIDE = "it looks into the server, which is a process of its own, or one of three"
_MANY_PARTITIONS = "others are waited for half a second: a node that takes longer to make so many partitions is asked too early"
_NODE_0 = "it says what the only broker is, which is number 0"
LEFT_OUT = {
    "test_a_burst_ten_times_the_consumers_speed_in_bounded_memory": _CLIENT,
    "test_a_consumer_beside_the_writer": "it opens a directory twice",
    "test_a_flush_waits_for_the_disk_unless_it_is_told_not_to": _INSIDE,
    "test_a_join_that_is_refused": "the cluster's nodes allow shorter sessions",
    "test_a_large_answer_is_whole": "it compares with the pages of a log in this process",
    "test_a_loop_takes_the_id_over_once": _ALONE,
    "test_a_right_that_is_taken_away_is_missed_by_the_next_of_repeated_requests": _KEPT_SESSION,
    "test_a_snapshot_has_tables_too": "a copy is of one node, which may learn later what is committed",
    "test_repeated_requests_of_a_client_that_gets_a_quota_are_delayed": _KEPT_SESSION,
    "test_a_member_that_never_answers_a_rebalance_does_not_hold_it_up": _CLOCK,
    "test_a_server_without_the_codec_refuses_and_a_client_needs_it_for_its_own_batches": _INSIDE,
    "test_a_timeout_that_is_not_allowed": _ALONE,
    "test_a_tombstone_that_compaction_took_along": _COMPACTS,
    "integration/test_aio.py::test_administration": _ALONE,
    "test_an_epoch_before_the_first_one_ends_where_the_log_starts": _INSIDE,
    "test_asking_makes_no_topics": _ALONE,
    "test_configs_of_the_broker": _NODE_0,
    "test_consume_transform_produce": "its topic has one partition where it names no number: a cluster's have six",
    "test_each_record_once_although_the_disk_fills_up_now_and_then": "cluster/test_node_disks.py fills the disks of nodes",
    "test_events_that_there_is_no_memory_for_are_not_kept": _DOOR,
    "test_internal_topics_only_if_asked": _ALONE,
    "test_internal_topics_are_compacted_and_nothing_else": _ALONE,
    "test_members_have_only_so_much_memory": _INSIDE,
    "test_no_thread_is_held_while_idle": _PROCESS,
    "test_nobody_else_writes_to_internal_topics": _ALONE,
    "test_offsets_that_compaction_has_left_out": _COMPACTS,
    "test_partitions_are_added": _NODE_0,
    "integration/kafka/test_administration.py::test_sizes": "it names the directory of the only broker",
    "integration/kafka/test_tools_beside_kafkas.py::test_sizes": _NODE_0,
    "integration/kafka/test_tools_beside_kafkas.py::test_topics": "its nodes have a default of retention.ms, and our kafka-topics none",
    "test_configs_of_brokers_and_users": _NODE_0,
    "test_dumps": "it looks into the files",
    "test_dumps_of_coordinators": "it looks into the files",
    "test_the_server_is_killed_under_it": "it serves a directory of its own; cluster/test_foreign_kills.py has it of a cluster",
    "test_the_program": "it opens a directory of its own",
    "unit/client/test_administration.py::test_transactions": _ALONE,
    "test_transactions_are_listed_and_described": _ALONE,
    "test_who_was_left_behind_is_told_what_still_matters": "a cluster takes half a minute to create and delete 600 topics",
    "test_what_is_sent_is_there_as_it_was": "it asks for a durability per call, which a cluster refuses",
    "test_too_many_partitions_to_be_followed_together": _MANY_PARTITIONS,
    "test_keep_alive": _INSIDE,
    "test_it_is_told[BackupMismatch]": "it compares backups of directories",
    "test_the_exchanges_are_as_documented[v2_topics-by_library]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_clusters-by_library]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_partitions-by_library]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_placed-by_library]": _NODE_0,
    "test_the_exchanges_are_as_documented[v3_topics-by_library]": _ALONE,
    "test_a_remote_watch_ends": _INSIDE,
}


TURN_AUTHENTICATION_ON = {
    "test_a_name_that_was_made_to_lead_here_is_refused_where_nobody_says_who_they_are",
    "test_sasl_is_for_clients_that_are_not_authenticated",
    "test_authentication_begins_with_somebody_who_may_go_on",
    "test_authentication_begins_with_the_first_user_while_the_server_runs",
    "test_what_a_super_user_does_is_as_documented",
    "test_what_was_begun_without_authentication_ends_when_it_is_turned_on",
    "test_who_is_over_a_quota_is_read_from_more_slowly",
}
"""They use a server first without users: the nodes are those of ``clustered``."""


def is_chosen(path: str) -> bool:
    """Whether a suite is for a cluster; ``path``: from ``tests`` on."""
    return path.startswith(SUITES) and path not in SUITES_LEFT_OUT


def choose(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of ``SUITES``; those of ``LEFT_OUT`` are skipped.  An exchange by curl is the one by our library."""
    chosen = [item for item in items if is_chosen(_suite(item)) and "by_curl" not in item.name]
    for item in chosen:
        names = (item.originalname, item.name, f"{_suite(item)}::{item.originalname}")
        if reason := next((LEFT_OUT[name] for name in names if name in LEFT_OUT), None):
            item.add_marker(pytest.mark.skip(reason))
    return chosen


def _suite(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).as_posix()


_MET = {"auto_create_topics", "drain_ms"}
"""Settings of a server with which the cluster of this process does as well."""


class Inside:
    """In place of a server of this process: a test that looks into it is skipped."""

    def __getattr__(self, _: str) -> Any:
        pytest.skip(_INSIDE)


class Shared:
    """The clusters of this process, once a test has asked for them: who once had users is closed to others, so those have another one.

    ``chosen``: whether tests run on them.  Of the present test: ``has_users``; ``is_in_process``: its nodes are those of ``clustered``.
    """

    chosen = has_users = is_in_process = False
    _clusters: ClassVar[dict[bool, ClusterProcess]] = {}

    @classmethod
    def cluster(cls) -> ClusterProcess:
        if cls.has_users not in cls._clusters:
            directory = tempfile.mkdtemp(prefix="logdb-three-")
            flags = ("--auto-create-topics", "--num-partitions=1", "--session-timeout-ms-min=1000")
            cluster = cls._clusters[cls.has_users] = ClusterProcess(Path(directory) / "cluster", 3, *flags, kafka=True)
            atexit.register(_end, cluster, directory)
            cluster.start()
            documents.update(dict.fromkeys(cluster.urls, ClusterDocument(cluster.config(1))))
        return cls._clusters[cls.has_users]

    @classmethod
    def token(cls) -> str | None:
        """The nodes' own, which they take whoever the users are; None: the test has none."""
        config = ClusterConfig.load(cls.cluster().config(1))
        return cluster_token(config.secret, config.cluster) if cls.has_users else None


def _end(cluster: ClusterProcess, directory: str) -> None:
    for process in cluster.processes.values():
        process.kill()
        process.wait(10)
    shutil.rmtree(directory)


class ClusterDocument:
    """``store.protocols.SecurityDocument`` of a cluster, changed at its controllers."""

    name = "the document of the cluster"

    def __init__(self, config_path: str) -> None:
        self._config_path = config_path

    def read(self) -> bytes | None:
        with controllers(self._config_path) as (_, client):
            return cluster_state(client).security

    def change(self, edit: Callable[[bytes | None], tuple[bytes, Any]]) -> Any:
        with controllers(self._config_path) as (_, client):
            state = cluster_state(client)
            document, result = edit(state.security)
            client.propose(ChangeSecurity(state.security_version, document))
            return result


class Nodes(NamedTuple):
    """A cluster: its database, and where its nodes are."""

    database: logdb.Database
    urls: list[str]
    kafka: list[str]


@contextlib.contextmanager
def nodes(path: Path, opening: dict[str, Any], options: dict[str, Any]) -> Iterator[Nodes]:
    """The cluster of this process; a test with settings or a directory of its own has three nodes over one store (``clustered``)."""
    if not (opening or options.keys() - _MET or Path(path).exists() or Shared.is_in_process):
        with opened() as database:
            yield Nodes(database, Shared.cluster().urls, Shared.cluster().kafka)
        return
    if refused := {*opening, *options} & {"mode", "tls_cert", "kafka_advertised", "rack"}:
        pytest.skip(f"its database has settings of its own: {', '.join(refused)}")
    with clustered(path, opening, **options) as three, logdb.open(three.urls, token=TOKEN) as database:
        _by_default_one_partition(database)
        yield Nodes(database, three.urls, [node.kafka for node in three.nodes.values()])


def begins(item: pytest.Item) -> None:
    """Take down what kind of cluster a test needs."""
    Shared.has_users = _uses_users(item)
    Shared.is_in_process = item.originalname in TURN_AUTHENTICATION_ON


def _uses_users(item: pytest.Item) -> bool:
    """Whether a test turns authentication on, by itself or by functions of its module."""
    functions = (one for one in vars(item.module).values() if inspect.isfunction(one) and one.__module__ == item.module.__name__)
    by = {"secure", "add_user"} | {one.__name__ for one in functions if "secure" in _names(inspect.unwrap(one).__code__)}
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
    urls = Shared.cluster().urls
    token = Shared.token()
    for asked in urls if token else [urls]:  # a node is told of the groups and transactions of one node alone
        with logdb.open(asked, token=token) as database:
            _clear(database)
    with logdb.open(urls, clock=clock, token=token) as database:
        if token:
            secure(urls[0])
        cluster_id = ClusterConfig.load(Shared.cluster().config(1)).cluster
        database._session.metadata = SimpleNamespace(database_id=cluster_id)  # a directory's session has it
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
            for member in database.describe_group(group.group_id).members:
                database._session.leave_group(group.group_id, member.member_id)
            database.delete_group(group.group_id)
    for topic in database.topics():
        database.delete_topic(topic.name)


@contextlib.contextmanager
def broker(**options: Any) -> Iterator[Broker]:
    """In place of ``logdb.testing.broker``."""
    options = {"auto_create_topics": True, **options}
    with tempfile.TemporaryDirectory(prefix="logdb-three-") as directory, nodes(Path(directory) / "db", {}, options) as cluster:
        yield Broker(",".join(cluster.kafka), cluster.database)
