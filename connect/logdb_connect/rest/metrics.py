"""``GET /metrics``: Kafka Connect's metrics in Prometheus' text format.

Names are those that the usual rules of Prometheus' JMX exporter give Kafka Connect's: ``kafka_connect_sink_task_sink_record_read_total``
is ``sink-record-read-total`` of ``kafka.connect:type=sink-task-metrics``.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from logdb_connect.runtime.herder import Herder
from logdb_connect.runtime.tasks import TaskRunner

CONTENT_TYPE = "text/plain; version=0.0.4"
Labels = Mapping[str, object]

METRICS: Mapping[str, tuple[str, str]] = {
    "kafka_connect_worker_connector_count": ("gauge", "Connectors that this worker runs."),
    "kafka_connect_worker_task_count": ("gauge", "Tasks that this worker runs."),
    "kafka_connect_connector_status": ("gauge", "1 for the state of each connector that this worker runs."),
    "kafka_connect_connector_task_status": ("gauge", "1 for the state of each task that this worker runs."),
    "kafka_connect_worker_connector_task_count": ("gauge", "Tasks of a connector that this worker runs, by state."),
    "kafka_connect_source_task_source_record_poll_total": ("counter", "Records that a source task has read."),
    "kafka_connect_source_task_source_record_write_total": ("counter", "Records that a source task has written."),
    "kafka_connect_source_task_transaction_total": ("counter", "Transactions that a source task has committed."),
    "kafka_connect_sink_task_sink_record_read_total": ("counter", "Records that a sink task has read."),
    "kafka_connect_sink_task_sink_record_send_total": ("counter", "Records that a sink task has given to its target."),
    "kafka_connect_sink_task_partition_count": ("gauge", "Partitions that a sink task reads."),
    "kafka_connect_sink_task_offset_commit_completion_total": ("counter", "Commits of offsets by a sink task."),
    "kafka_connect_task_error_total_record_failures": ("counter", "Records that failed."),
    "kafka_connect_task_error_total_records_skipped": ("counter", "Records that were skipped."),
    "kafka_connect_task_error_total_retries": ("counter", "Operations that ran again."),
    "kafka_connect_task_error_total_errors_logged": ("counter", "Errors that were logged."),
    "kafka_connect_task_error_deadletterqueue_produce_requests": ("counter", "Records for the dead letter queue."),
    "kafka_connect_task_error_last_error_timestamp": ("gauge", "Time of the last error, ms since 1970."),
    "kafka_connect_worker_rebalance_completed_rebalances_total": ("counter", "Rebalances that this worker took part in."),
    "kafka_connect_worker_rebalance_rebalancing": ("gauge", "Whether a rebalance goes on."),
}
_OF_HANDLER = {
    "total_record_failures": "failures",
    "total_records_skipped": "skipped",
    "total_retries": "retries",
    "total_errors_logged": "logged",
    "deadletterqueue_produce_requests": "letters",
    "last_error_timestamp": "last_failure_ms",
}


def page(herder: Herder) -> str:
    """All metrics."""
    found: dict[str, list[str]] = {name: [] for name in METRICS}
    for name, labels, value in _samples(herder):
        found[name].append(_line(name, labels, value))
    lines = []
    for name, samples in found.items():
        if samples:
            kind, text = METRICS[name]
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
    return "\n".join(lines) + "\n"


def _samples(herder: Herder) -> Iterator[tuple[str, Labels, float]]:
    connectors, tasks = dict(herder.worker.connectors), dict(herder.worker.tasks)
    yield "kafka_connect_worker_connector_count", {}, len(connectors)
    yield "kafka_connect_worker_task_count", {}, len(tasks)
    for name, connector in sorted(connectors.items()):
        yield "kafka_connect_connector_status", {"connector": name, "status": connector.state.lower()}, 1
        states = Counter(task.state.lower() for one, task in tasks.items() if one.connector == name)
        for state, count in sorted(states.items()):
            yield "kafka_connect_worker_connector_task_count", {"connector": name, "status": state}, count
    for one, task in sorted(tasks.items()):
        labels = {"connector": one.connector, "task": one.task}
        yield "kafka_connect_connector_task_status", {**labels, "status": task.state.lower()}, 1
        yield from _of_task(task, labels)
    if (rebalances := herder.rebalances()) is not None:
        yield "kafka_connect_worker_rebalance_completed_rebalances_total", {}, rebalances[0]
        yield "kafka_connect_worker_rebalance_rebalancing", {}, int(rebalances[1])


def _of_task(task: TaskRunner, labels: Labels) -> Iterator[tuple[str, Labels, float]]:
    for name, value in task.counts.items():
        yield f"kafka_connect_{name}", labels, value
    for name, attribute in _OF_HANDLER.items():
        if task.handler is not None and (value := getattr(task.handler, attribute)) is not None:
            yield f"kafka_connect_task_error_{name}", labels, value


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
