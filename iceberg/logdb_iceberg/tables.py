"""Brings the table of a topic up to date with its sealed segments (docs/inside/iceberg.md, "A commit")."""

import errno
import json
import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, SetCurrentSchemaUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.typedef import Record

from logdb.codec.times import EARLIEST_MS, LATEST_MS, is_within
from logdb.io import IO
from logdb.model import RAW_TABLE, ConfigValue
from logdb.store.tables import TablePartition, TableSegment, UpdatedTable, current_metadata, mode_of, schema_versions
from logdb_iceberg.bounds import bounds_of, statistics_of, times_of
from logdb_iceberg.catalogue import TableCatalogue, properties_of
from logdb_iceberg.columns import Columns, columns_of
from logdb_iceberg.files import (
    DataFileName,
    is_link,
    link,
    location_of,
    make_directory,
    opened,
    path_of,
    size_bytes_of,
    sync_directory,
    write_through,
)
from logdb_iceberg.tails import ENDS, SCHEMA, end_offsets

logger = logging.getLogger(__name__)

SNAPSHOT_COUNT, SNAPSHOT_AGE_MS = 100, 86_400_000
_STARTS = "logdb.start-offsets"
_VERSIONS = "logdb.schemas"
"""A property: the schemas of the values, each with the first offset of each partition that has it."""
_FORMAT = "1"
_PROPERTIES = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "commit.retry.num-retries": "0",
    "commit.manifest.min-count-to-merge": "50",
}
_TRIES = 3


class _Plan(NamedTuple):
    """The data files that a table shall have, each with its segment if it is new, and the offsets that they cover."""

    files: Mapping[DataFileName, TableSegment | None]
    starts: Mapping[int, int]
    ends: Mapping[int, int]


class _Change(NamedTuple):
    """What a snapshot changes; ``schema``: None if it stays."""

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    schema: Schema | None
    properties: dict[str, str]


def update(
    directory: str, topic: str, topic_id: str, config: Mapping[str, ConfigValue], partitions: Sequence[TablePartition]
) -> UpdatedTable:
    """See ``logdb.store.tables.Updater``.

    If another commit comes first, the difference is computed again: a retry of the same commit would add its files twice.
    """
    for tries in range(1, _TRIES + 1):
        try:
            return _update(directory, topic, topic_id, config, partitions)
        except CommitFailedException:
            if tries == _TRIES:
                raise
    raise AssertionError


def _update(
    directory: str, topic: str, topic_id: str, config: Mapping[str, ConfigValue], partitions: Sequence[TablePartition]
) -> UpdatedTable:
    catalogue, mode, versions = TableCatalogue(directory, topic), mode_of(config), schema_versions(config)
    own = {"logdb.format": _FORMAT, "logdb.topic": topic, "logdb.topic-id": topic_id, "logdb.mode": mode}
    table = _opened(catalogue, own)
    columns = columns_of(mode, topic, versions, versions[-1].text)
    known = {} if mode == RAW_TABLE else {SCHEMA: versions[-1].text, _VERSIONS: json.dumps(versions)}
    properties = columns.properties | known
    if table is None:
        _make_directories(catalogue)
        table = catalogue.create(columns.schema, columns.spec, properties | own | _PROPERTIES)
    columns.follow(table)
    present = _present(table)
    if known.items() <= table.properties.items():
        plan = _plan(partitions, present, end_offsets(table), columns)
    else:  # no file stays: its values were read in another way
        plan = _plan(partitions, {}, {}, columns)
        _check_space(directory, sum(file.file_size_in_bytes for file in present.values()))
    change = _Change(
        *_changed_files(table, columns, plan, present),
        None if columns.schema == table.schema() else columns.schema,
        {name: value for name, value in properties.items() if table.properties.get(name) != value},
    )
    if any(change) or table.current_snapshot() is None or plan.ends != end_offsets(table):
        _commit(table, change, plan)
    catalogue.hint()
    _remove_unnamed(table, catalogue)
    return _result(table, topic, len(change.added), len(change.removed), plan.ends)


def _opened(catalogue: TableCatalogue, own: dict[str, str]) -> Table | None:
    """The table in the directory; None if there is none of this topic, mode and place."""
    wanted = own | {"location": location_of(catalogue.directory)}
    found = current_metadata(IO(), catalogue.directory)
    if found is None:
        return None
    try:
        properties = properties_of(found[1])
        if properties.get("logdb.topic-id", topic_id := own["logdb.topic-id"]) != topic_id:
            shutil.rmtree(catalogue.directory)  # at once: this topic may have no table
            return None
        if not wanted.items() <= properties.items():
            return None
        make_directory(os.path.join(catalogue.directory, "data"))
        return catalogue.load_table()
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{found[1]} is damaged ({error}): remove {catalogue.directory}, and the table is made again") from error


def _make_directories(catalogue: TableCatalogue) -> None:
    """Make room for a new table, in place of one that is of another topic, mode or place."""
    if os.path.lexists(catalogue.directory):
        shutil.rmtree(catalogue.directory)
    make_directory(os.path.join(catalogue.directory, "data"))


def _present(table: Table) -> dict[DataFileName, DataFile]:
    """The data files of the current snapshot."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]
    return {DataFileName.of(os.path.basename(entry.data_file.file_path)): entry.data_file for entry in entries}


# ---------------------------------------------------------------- which files


def _plan(
    partitions: Sequence[TablePartition], present: Mapping[DataFileName, DataFile], ends: Mapping[int, int], columns: Columns
) -> _Plan:
    files: dict[DataFileName, TableSegment | None] = {}
    new_starts, new_ends = {}, {}
    for partition in partitions:
        number, start = partition.partition, partition.start_offset
        reach = partition.segments[-1].next_offset if partition.segments else start
        new_starts[number] = start
        if reach >= min(ends.get(number, 0), partition.end_offset):
            files |= {_name(number, segment, start, columns): segment for segment in partition.segments}
            new_ends[number] = reach
        else:  # a file is still missing: what is there stays, so that no record is away for a while
            files |= {name: None for name in present if name.partition == number and name.next_offset > start}
            new_ends[number] = ends[number]
    return _Plan(files, new_starts, new_ends)


def _name(partition: int, segment: TableSegment, start_offset: int, columns: Columns) -> DataFileName:
    inside = segment.base_offset < start_offset
    crc = columns.crc(segment.crc)
    return DataFileName(partition, segment.base_offset, segment.next_offset, crc, start_offset if inside else None)


# ---------------------------------------------------------------- data files


def _check_space(directory: str, size_bytes: int) -> None:
    """Raise OSError if files of this size, beside those of earlier snapshots, would take more than half of the free space."""
    free_bytes = shutil.disk_usage(directory).free
    if size_bytes > free_bytes // 2:
        reason = f"the files of the new schema would take about {size_bytes} of {free_bytes} free bytes; at most half is used: free space"
        raise OSError(errno.ENOSPC, reason, directory)


def _changed_files(
    table: Table, columns: Columns, plan: _Plan, present: Mapping[DataFileName, DataFile]
) -> tuple[list[DataFile], list[DataFile]]:
    """Make the data files that are new, lost or damaged; returns the entries that a snapshot adds and those that it removes.

    A file that was made again keeps its entry if it has the same size.
    """
    made = {
        name: _made(table, columns, name, segment)
        for name, segment in plan.files.items()
        if segment is not None and (name not in present or not _is_whole(table, name, segment, present[name]))
    }
    if made:
        sync_directory(os.path.join(path_of(table.location()), "data"))
    added = {
        name: file
        for name, file in made.items()
        if file.record_count and (name not in present or file.file_size_in_bytes != present[name].file_size_in_bytes)
    }
    return list(added.values()), [file for name, file in present.items() if name in added or name not in plan.files]


def _made(table: Table, columns: Columns, name: DataFileName, segment: TableSegment) -> DataFile:
    """Link or write a data file, durably but for its name; returns its entry in a manifest."""
    path = os.path.join(path_of(table.location()), "data", str(name))
    if (sidecar := _linked(name, segment)) is not None:
        link(sidecar, path)
    else:
        batches = segment.read(segment.base_offset if name.from_offset is None else name.from_offset)
        os.replace(write_through(path, lambda file: columns.write(file, batches, name.partition)), path)
    with opened(path) as opened_file, pq.ParquetFile(opened_file) as file:
        statistics = statistics_of(file.metadata, columns.schema, table.properties)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location_of(path),
        file_format=FileFormat.PARQUET,
        partition=Record(name.partition),
        file_size_in_bytes=os.path.getsize(path),
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )


def _linked(name: DataFileName, segment: TableSegment) -> str | None:
    """The sidecar that the data file is a link to; None if it is a file of its own.

    A sidecar has each timestamp of the log, and a table those that engines can hold.
    """
    if segment.sidecar is None or name.from_offset is not None:
        return None
    with opened(segment.sidecar) as opened_file, pq.ParquetFile(opened_file) as file:
        times = bounds_of(file.metadata, "timestamp")
    return segment.sidecar if times is None or is_within(*times) else None


def _is_whole(table: Table, name: DataFileName, segment: TableSegment, entry: DataFile) -> bool:
    """Whether a data file is a link to its sidecar, or is one of its own with the size that its manifest says."""
    path = os.path.join(path_of(table.location()), "data", str(name))
    if segment.sidecar is not None and is_link(segment.sidecar, path):
        return True
    if size_bytes_of(path) != entry.file_size_in_bytes:
        return False
    return segment.sidecar is None or _is_clamped(table, entry) or _linked(name, segment) is None


def _is_clamped(table: Table, entry: DataFile) -> bool:
    """Whether a data file has the first or the last time that engines can hold: the time of the log may be outside."""
    times = times_of(entry, table.schema().find_field("timestamp").field_id)
    return times is not None and (times[0] == 1000 * EARLIEST_MS or times[1] == 1000 * LATEST_MS)


# ---------------------------------------------------------------- the snapshot


def _commit(table: Table, change: _Change, plan: _Plan) -> None:
    """Commit one snapshot, with its schema, and let old ones expire."""
    summary = {_STARTS: _json(plan.starts), ENDS: _json(plan.ends)}
    with table.transaction() as transaction:
        if change.schema is not None:
            is_current = AssertCurrentSchemaId.model_validate({"current-schema-id": table.schema().schema_id})
            transaction._apply((AddSchemaUpdate(schema=change.schema), SetCurrentSchemaUpdate()), (is_current,))
        if change.properties:
            transaction.set_properties(change.properties)
        producer: Any = transaction.update_snapshot(snapshot_properties=summary)
        producer = producer.overwrite() if change.removed else producer.merge_append()
        for file in change.added:
            producer.append_data_file(file)
        for file in change.removed:
            producer.delete_data_file(file)
        producer.commit()
        if expired := _expired(table):
            ExpireSnapshots(transaction).by_ids(expired).commit()


def _json(offsets: Mapping[int, int]) -> str:
    return json.dumps({str(partition): offset for partition, offset in offsets.items()}, separators=(",", ":"))


def _expired(table: Table) -> list[int]:
    """The snapshots that go with the next commit; the current one stays until then."""
    snapshots = sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0)
    oldest_ms, current = time.time_ns() // 1_000_000 - SNAPSHOT_AGE_MS, table.metadata.current_snapshot_id
    surplus = max(0, len(snapshots) + 1 - SNAPSHOT_COUNT)
    return [
        one.snapshot_id
        for number, one in enumerate(snapshots)
        if one.snapshot_id != current and (number < surplus or one.timestamp_ms < oldest_ms)
    ]


def _remove_unnamed(table: Table, catalogue: TableCatalogue) -> None:
    """Remove the files that no snapshot names: of snapshots that have expired, and of commits that did not happen."""
    data, metadata = set[str](), set[str]()
    for snapshot in table.metadata.snapshots:
        metadata.add(path_of(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            if (path := path_of(manifest.manifest_path)) not in metadata:
                metadata.add(path)
                data |= {path_of(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)}
    catalogue.remove_unnamed(table, data, metadata)


def _result(table: Table, topic: str, added: int, removed: int, ends: Mapping[int, int]) -> UpdatedTable:
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    return UpdatedTable(
        topic, table.metadata_location, snapshot.snapshot_id, added, removed,
        int(summary.get("total-data-files", 0)), int(summary.get("total-records", 0)), dict(ends),
    )  # fmt: skip
