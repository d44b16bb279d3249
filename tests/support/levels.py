"""What ``make quick``, ``make test``, ``make check`` and ``make fault`` run.

``pytest --level quick``: for editing.  ``--level test``: what a contributor runs.  ``--level check``: what ``--level test`` leaves out;
``--level fault``: the longest tests, which only ``make fault`` runs, beside longer runs of others.
Without ``--level`` pytest runs what it is asked for.  A key of the tables is a path below ``tests``, and goes on with the name of a test:
"unit/", "unit/test_x.py", "unit/test_x.py::test_y".
"""

from collections.abc import Iterable

import pytest

from support.order import key_of, place

LEVELS = ("quick", "test", "check", "fault")

QUICK = ("unit/",)
"""On a path: the same behind a URL is for ``make test``."""

_SEARCHES = "hypothesis looks for long"
_PROCESSES = "it starts processes"
_FLIPS = "it damages a database again and again"
_BOMBS = "it makes and reads megabytes"
_THREADS = "threads are let loose on one another"
NOT_QUICK = {
    "unit/broker/test_shards.py::test_what_is_acknowledged_while_coordinators_move_is_there_once": _THREADS,
    "unit/cli/tools/test_completion.py": _PROCESSES,
    "unit/client/consumer/test_assignors.py": _SEARCHES,
    "unit/client/table/test_table.py::test_threads_and_tables": _THREADS,
    "unit/codec/test_arrow.py::test_a_column_that_is_too_large_is_split": _SEARCHES,
    "unit/codec/test_compression.py": _BOMBS,
    "unit/codec/test_convert.py": _BOMBS,
    "unit/connect/converters/test_protobuf.py": _PROCESSES,
    "unit/http_api/door/test_documents.py::test_a_document_is_what_it_says": _SEARCHES,
    "unit/iceberg/": "pyiceberg takes seconds to import",
    "unit/log/test_log.py::test_compression_per_topic": _BOMBS,
    "unit/meta/test_catalogue.py": _PROCESSES,
    "unit/meta/test_catalogue_model.py": _SEARCHES,
    "unit/meta/test_dump.py": _PROCESSES,
    "unit/native/test_hot_append.py::test_lengths_around_where_their_varint_grows": _BOMBS,
    "unit/native/test_hot_builder.py::test_a_model": _SEARCHES,
    "unit/native/test_hot_builder.py::test_nothing_grows_with_time": _BOMBS,
    "unit/native/test_hot_builder.py::test_threads": _THREADS,
    "unit/native/test_hot_send.py::test_nothing_leaks": _BOMBS,
    "unit/replication/controller/test_supervisor.py": _PROCESSES,
    "unit/requests/test_requests.py": _SEARCHES,
    "unit/spark_source/test_commit.py": _PROCESSES,
    "unit/spark_source/test_encoding.py": _BOMBS,
    "unit/spark_source/test_sink.py": _PROCESSES,
    "unit/spark_source/test_streams_store.py": _PROCESSES,
    "unit/store/check/": _FLIPS,
    "unit/store/copy/": _FLIPS,
    "unit/store/test_truncation.py::test_a_log_that_is_cut_off_is_as_if_no_more_had_come": _FLIPS,
}
"""Tests of ``QUICK`` that take too long while one edits, and why."""

_NODES = "it starts and stops nodes; cluster/test_kills_under_clients.py is in make test"
_SPARK = "it runs Spark; unit/spark_source is in make quick"
_KILLS = "it kills a process again and again; crash/test_crash_lab.py and the other stories are in make test"
_ANOTHER_LEVEL = "another level of durability; make test has fsync"
_DATABASES = "it starts PostgreSQL or MariaDB; connect/test_connectors.py is in make test"
_STORIES = "one more story of simulated deaths; crash/test_crash_lab.py is in make test"
_LONG_FLIPS = "it checks a whole database for each flip; crash/test_aborted_index_flips.py is in make test"
_LONG_COPIES = "each call of a copy of all files; the other operations of test_every_call.py are in make test"
_OTHER_FILES = "another file that finds no room; make test has __transaction_state"
_MEASURES = "it measures a process for some time"
_SESSIONS = "it waits for sessions that end; make test has a stop between the offsets and the commit"
_BUILDS = "it builds the package, or its own machine"
CHECK = {
    "crash/test_compaction.py::test_killed_at_every_call": _STORIES,
    "crash/test_copies.py::test_flips_in_the_files_of_a_snapshot_are_found": _LONG_FLIPS,
    "crash/test_crash_lab.py::test_killed_at_every_call[interval]": _ANOTHER_LEVEL,
    "crash/test_crash_lab.py::test_killed_at_every_call[os]": _ANOTHER_LEVEL,
    "crash/test_every_call.py::test_each_failure_has_a_name_and_loses_nothing[backup]": _LONG_COPIES,
    "crash/test_every_call.py::test_each_failure_has_a_name_and_loses_nothing[snapshot]": _LONG_COPIES,
    "crash/test_exactly_once.py": _KILLS,
    "crash/test_faulty_libc.py::test_at_the_calls_of_libc": _KILLS,
    "crash/test_flips.py": _LONG_FLIPS,
    "crash/test_following.py::test_killed_at_every_call[interval]": _ANOTHER_LEVEL,
    "crash/test_following.py::test_killed_at_every_call[os]": _ANOTHER_LEVEL,
    "crash/test_index_flips.py": _LONG_FLIPS,
    "crash/test_kill.py": _KILLS,
    "crash/test_producers.py::test_killed_at_every_call[interval]": _ANOTHER_LEVEL,
    "crash/test_producers.py::test_killed_at_every_call[os]": _ANOTHER_LEVEL,
    "crash/test_sidecars.py": _STORIES,
    "crash/test_spark_commit.py": _KILLS,
    "crash/test_transaction_lab.py::test_killed_at_every_call[interval]": _ANOTHER_LEVEL,
    "crash/test_transaction_lab.py::test_killed_at_every_call[os]": _ANOTHER_LEVEL,
    "crash/test_upload_kills.py": _KILLS,
    "examples/test_exactly_once_sqlite.py": _KILLS,
    "examples/test_totals_per_key.py::test_one_worker_is_stopped_and_one_is_killed[committed-sent]": _SESSIONS,
    "examples/test_totals_per_key.py::test_one_worker_is_stopped_and_one_is_killed[looked up-committed]": _SESSIONS,
    "examples/test_totals_per_key.py::test_one_worker_is_stopped_and_one_is_killed[polled-offsets sent]": _SESSIONS,
    "examples/test_totals_per_key.py::test_one_worker_is_stopped_and_one_is_killed[sent-polled]": _SESSIONS,
    "examples/test_totals_per_key.py::test_the_program": _SESSIONS,
    "fuzz/test_openapi.py": "schemathesis makes many requests; fuzz/test_kafka_frames.py is in make test",
    "integration/cluster/test_assignments.py": _NODES,
    "integration/cluster/test_clients.py": _NODES,
    "integration/cluster/test_damaged_replicas.py": _NODES,
    "integration/cluster/test_faults.py": _NODES,
    "integration/cluster/test_histories.py": _NODES,
    "integration/cluster/test_iceberg.py": _NODES,
    "integration/cluster/test_membership.py": _NODES,
    "integration/cluster/test_membership_under_faults.py": _NODES,
    "integration/cluster/test_mirroring.py": _NODES,
    "integration/cluster/test_node_disks.py": _NODES,
    "integration/cluster/test_nodes.py": _NODES,
    "integration/cluster/test_notices.py": _NODES,
    "integration/cluster/test_power_cuts.py": _NODES,
    "integration/cluster/test_promotion.py": _NODES,
    "integration/cluster/test_racks.py::test_nothing_is_lost_and_nothing_comes_twice_while_a_follower_and_a_leader_are_killed": _NODES,
    "integration/cluster/test_racks_of_our_client.py": _NODES,
    "integration/cluster/test_reassignment.py": _NODES,
    "integration/cluster/test_storm.py": _NODES,
    "integration/connect/test_calls.py::test_a_worker_in_the_background_outlives_a_start_that_has_not_waited_for_its_database": _PROCESSES,
    "integration/connect/test_cluster_id.py::test_of_a_cluster": _NODES,
    "integration/connect/test_connector_kills.py": _KILLS,
    "integration/connect/test_connectors.py::test_a_file_sink_that_is_killed_before_its_first_commit_has_each_line_once": _KILLS,
    "integration/connect/databases/": _DATABASES,
    "integration/connect/test_distributed.py::test_the_work_of_a_killed_worker_goes_to_the_other_one": _KILLS,
    "integration/connect/test_hdfs.py": "it starts an HDFS; integration/connect/test_objects.py is in make test",
    "integration/connect/test_isolation.py::test_a_process_that_is_killed_leaves_no_transaction_open": _KILLS,
    "integration/connect/test_kills.py": _KILLS,
    "integration/connect/test_mirror.py::test_a_mirror_that_is_killed_copies_each_record_once": _KILLS,
    "integration/connect/test_on_a_cluster.py": _NODES,
    "integration/connect/test_rolling_restart.py": _PROCESSES,
    "integration/connect/test_spark.py": _SPARK,
    "integration/connect/test_without_broker.py": _PROCESSES,
    "integration/http/test_connect_in_browser.py": "it drives a browser; integration/http/test_connect_worker.py is in make test",
    "integration/http/test_half_a_head.py": "each request is cut at many places",
    "integration/http/test_honest_client.py": "it measures how fast others are answered; integration/http/test_hostile.py is in make test",
    "integration/http/test_idle.py": _MEASURES,
    "integration/http/test_kill.py": _KILLS,
    "integration/http/test_page_in_browser.py": "it drives a browser; integration/http/test_page.py is in make test",
    "integration/iceberg/test_kills.py": _KILLS,
    "integration/kafka/test_door_memory.py": _MEASURES,
    "integration/kafka/test_quick_start_by_our_names.py": "it starts many commands",
    "integration/kafka/test_reassignments.py": _NODES,
    "integration/spark/": _SPARK,
    "integration/test_controllers.py": _NODES,
    "integration/test_demo.py": "it runs a whole demo",
    "integration/test_deploy.py::test_the_health_check_asks_what_is_served": "it starts many servers",
    "integration/test_how_to.py": "it runs the programs of many pages; integration/test_readme.py is in make test",
    "integration/test_how_to_kills.py": _KILLS,
    "integration/test_idle.py": _MEASURES,
    "integration/test_interrupts.py::test_a_call_that_is_interrupted": "each call is interrupted at each of its lines",
    "integration/test_many_partitions.py": _MEASURES,
    "integration/test_packaging.py": _BUILDS,
    "integration/test_quorum.py": _NODES,
    "integration/test_site.py": "it builds the site",
    "integration/test_table.py": _KILLS,
    "integration/test_table_memory.py": _MEASURES,
    "integration/test_transactions.py::test_each_record_once_although_the_disk_fills_up_now_and_then[__consumer_offsets-0.3]": _OTHER_FILES,
    "integration/test_transactions.py::test_each_record_once_although_the_disk_fills_up_now_and_then[out-0-0.3]": _OTHER_FILES,
    "integration/test_tutorial.py": _SPARK,
    "property/test_quorum_simulation.py::test_the_simulation_finds_what_older_copies_do_that_are_not_refused": "up to 400 storms",
    "unit/client/test_topic_dataset.py::test_a_lazy_frame_gives_what_a_filter_afterwards_gives": _SEARCHES,
    "unit/store/check/test_repair.py::test_killed_at_every_call": _KILLS,
    "unit/store/check/test_repair.py::test_of_a_damaged_batch_only_its_own_records_are_lost": _FLIPS,
    "unit/store/check/test_repair.py::test_the_end_of_a_segment_is_lost": _FLIPS,
    "unit/store/check/test_repair.py::test_what_no_crc_covers_is_put_right": _FLIPS,
    "unit/store/check/test_verify.py::test_no_crash_at_any_call_is_taken_for_damage": _KILLS,
}
"""What ``make check`` runs and ``make test`` does not, beside the tests marked ``foreign``, and why."""

_BESIDE_JDBC = "Spark writes the files; [jdbc] is in make check"
_LONG_STORY = "the calls of libc of a long story; crash/test_every_call.py has its failures in make test"
FAULT = {
    "crash/test_faulty_libc.py::test_at_the_calls_of_libc[backup]": _LONG_STORY,
    "crash/test_faulty_libc.py::test_at_the_calls_of_libc[parquet]": _LONG_STORY,
    "crash/test_faulty_libc.py::test_at_the_calls_of_libc[restore]": _LONG_STORY,
    "compat/test_spark_iceberg.py::test_a_kill_at_each_step_of_a_commit": "Spark reads after each kill; iceberg/ has it in make check",
    "crash/test_faulty_libc.py::test_at_the_calls_of_libc[snapshot]": _LONG_STORY,
    "integration/cluster/test_dead_node.py": "eight clients in four languages; cluster/test_foreign_kills.py is in make check",
    "integration/cluster/test_rolling_restarts.py": "eight clients in four languages; cluster/test_kills_under_clients.py is in make test",
    "integration/cluster/test_starved.py": "it takes five minutes; unit/replication/test_node.py is in make quick",
    "integration/cluster/test_storm.py::test_restarts_and_syncs_that_hang_store_nothing_twice": "30 episodes; test_storm.py::test_a_storm",
    "integration/cluster/test_storm.py::test_a_storm": "other tests of cluster/ have each fault alone in make check",
    "integration/connect/test_kafka.py::test_each_line_arrives_once[standalone]": "[distributed] is in make check, and test_kills.py",
    "integration/connect/test_kafka.py::test_distributed_workers_share_the_work_and_take_over[logdb]": "[kafka] is in make check",
    "integration/connect/test_spark.py::test_each_record_is_stored_once_after_kills_of_the_worker[parquet]": _BESIDE_JDBC,
    "integration/spark/test_machine_kills.py": "Spark starts again after each kill; spark/test_standalone.py is in make check",
    "integration/spark/test_stream_kill.py": "Spark starts again after each kill; spark/test_sinks_kill.py is in make check",
    "integration/test_many_partitions.py::test_created_opened_and_appended_to[10000]": "it takes minutes; make check has 1,000",
}
"""What only ``make fault`` runs, and why."""

OTHERS_TIMING = (
    "compat/test_spark_kafka.py",
    "compat/test_spark_real_time.py",
    "examples/test_testing.py",
    "integration/connect/test_beside_java.py",
    "integration/connect/test_kafka_plugins.py",
    "integration/connect/test_mirror_beside_java.py",
    "integration/connect/test_schema_registry.py",
    "integration/http/test_connect_in_browser.py",
    "integration/http/test_page_in_browser.py",
    "integration/kafka/test_java_tools.py",
    "integration/kafka/test_javascript_and_go.py",
    "integration/kafka/test_platformatic.py",
    "integration/kafka/test_quick_start.py",
    "integration/kafka/test_request_fields.py",
    "integration/kafka/test_tools_beside_kafkas.py",
)
"""What waits for a browser, or for programs of Kafka and Spark, and kills nothing: it may run twice.

What kills, or counts records after a failure, runs once: a record that is lost once is lost.
"""


def level_of(item: pytest.Item) -> str:
    """The first level that runs a test."""
    key = key_of(item.nodeid)
    if is_named(key, FAULT):
        return "fault"
    if item.get_closest_marker("foreign") or is_named(key, CHECK):
        return "check"
    is_quick = is_named(key, QUICK) and not is_named(key, NOT_QUICK) and not item.name.endswith("[url]") and "[url-" not in item.name
    return "quick" if is_quick else "test"


def may_run_twice(item: pytest.Item) -> bool:
    """Whether a test may fail for the timing of a program of others."""
    return is_named(key_of(item.nodeid), OTHERS_TIMING)


def leaves_out(level: str | None, path: str) -> bool:
    """Whether a level has no test of a file; ``path``: below ``tests``.  No unit test is marked ``foreign``."""
    named = any(name.startswith(path) or is_named(path, (name,)) for name in (*CHECK, *FAULT))
    match level:
        case "quick":
            return not is_named(path, QUICK)
        case "test":
            return any(path == name or (name[-1] == "/" and path.startswith(name)) for name in (*CHECK, *FAULT))
        case "check":
            return path.startswith("unit/") and not named
        case "fault":
            return not any(name.startswith(path) for name in FAULT)
    return False


def is_named(key: str, names: Iterable[str]) -> bool:
    """Whether one of the names is that of a test, of its file or of its directory."""
    return any(key.startswith(name) and (name[-1] == "/" or key[len(name) : len(name) + 1] in {"", ":", "["}) for name in names)


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the level that was asked for, in ``order.ORDER``."""
    level = config.getoption("--level")
    if level is None:
        return
    levels = {"quick", "test"} if level == "test" else {level}
    kept = [item for item in items if level_of(item) in levels]
    config.hook.pytest_deselected(items=[item for item in items if level_of(item) not in levels])
    items[:] = sorted(kept, key=lambda item: place(item.nodeid))


def left_out(level: str) -> list[str]:
    """What to say at the end of a run."""
    if level == "quick":
        return ["make test adds the tests outside of tests/unit, and of those:", *(f"  {name}: {why}" for name, why in NOT_QUICK.items())]
    if level == "test":
        return [f"make check adds {len(CHECK)} files and tests (tests/support/levels.py), programs of others, sanitizers and three brokers"]
    return []
