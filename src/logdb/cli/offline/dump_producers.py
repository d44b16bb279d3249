"""``logdb dump`` of the files beside a partition's log: indexes of aborted transactions, snapshots of producers."""

from collections.abc import Iterator

from logdb.cli.terminal.output import emit_line, line
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.segment import transaction_index

SUFFIXES = (transaction_index.SUFFIX, producer_snapshot.SUFFIX)


def aborted_documents(path: str) -> Iterator[dict[str, object]]:
    for entry in transaction_index.entries(transaction_index.load(IO(), path)):
        yield {"kind": "aborted", **entry._asdict()}


def aborted_line(entry: dict[str, object]) -> str:
    """As kafka-dump-log prints it."""
    return (
        f"version: 0 producerId: {entry['producer_id']} firstOffset: {entry['first_offset']} "
        f"lastOffset: {entry['last_offset']} lastStableOffset: {entry['last_stable_offset']}"
    )


def producer_documents(path: str) -> Iterator[dict[str, object]]:
    snapshot = producer_snapshot.decode(producer_snapshot.read(IO(), path), path)
    for producer in snapshot.states.producers.values():
        yield {
            "kind": "producer",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_first_offset": producer.first_offset if producer.first_offset >= 0 else None,
            "timestamp_ms": producer.timestamp_ms,
            "batches": [{"first_sequence": batch.first_sequence, **batch._asdict()} for batch in producer.batches],
        }


def producer_line(entry: dict[str, object]) -> str:
    first, batches = entry["transaction_first_offset"], entry["batches"]
    assert isinstance(batches, list)
    line = (
        f"producerId: {entry['producer_id']} producerEpoch: {entry['producer_epoch']} coordinatorEpoch: {entry['coordinator_epoch']} "
        f"currentTxnFirstOffset: {'OptionalLong.empty' if first is None else f'OptionalLong[{first}]'} "
        f"lastTimestamp: {entry['timestamp_ms']} "
    )
    if batches:
        last = batches[-1]
        line += (
            f"firstSequence: {last['first_sequence']} lastSequence: {last['last_sequence']} lastOffset: {last['last_offset']} "
            f"offsetDelta: {last['offset_delta']} timestamp: {entry['timestamp_ms']}"
        )
    return line


def dump_producers(path: str, *, as_json: bool, quiet: bool) -> None:
    """Print one of the files; ``quiet``: only read it.  Raises CorruptionError."""
    is_index = path.endswith(transaction_index.SUFFIX)
    for entry in aborted_documents(path) if is_index else producer_documents(path):
        if as_json and not quiet:
            emit_line({"file": path, **entry})
        elif not quiet:
            line(aborted_line(entry) if is_index else producer_line(entry))
