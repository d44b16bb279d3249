"""``logdb dump``: the content of a partition's files, batch by batch, as kafka-dump-log prints it."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from logdb.cli.kafka import dump_state, formats
from logdb.cli.offline import dump_producers, offline
from logdb.cli.offline.offline import Batch, Gap
from logdb.cli.terminal.output import emit_line, line, text_or_base64, visible_bytes
from logdb.cli.terminal.session import Session, here, pass_session
from logdb.cli.terminal.units import WholeNumber
from logdb.codec import Record, Status, control, explain
from logdb.codec.batch import CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from logdb.errors import CodecMissing, CorruptionError, InvalidBatch, InvalidMessage
from logdb.model import COMPRESSION_TYPES

SUFFIXES = (".log", ".index", ".timeindex", *dump_producers.SUFFIXES)


def files_of(path: str) -> list[str]:
    """The segment files of a path: a file, or all in a partition's directory, segment by segment.

    Raises:
        click.UsageError: The path is neither, or the directory has no such file.
    """
    if not os.path.isdir(path):
        if not os.path.exists(path):
            raise click.UsageError(f"no file or directory {path!r}")
        if not path.endswith(SUFFIXES):
            raise click.UsageError(f"{path!r} is none of *{', *'.join(SUFFIXES)}")
        return [path]
    names = [name for name in os.listdir(path) if name.endswith(SUFFIXES)]
    if not names:
        inside = [name for name in sorted(os.listdir(path)) if os.path.isdir(os.path.join(path, name)) and "-" in name]
        hint = f"; a partition's is {os.path.join(path, inside[0])}" if inside else ""
        raise click.UsageError(f"{path!r} holds no segment files{hint}")
    names.sort(key=lambda name: (name.split(".")[0], SUFFIXES.index("." + name.rsplit(".", 1)[1])))
    return [os.path.join(path, name) for name in names]


# ---------------------------------------------------------------- log files


def batch_document(path: str, batch: Batch) -> dict[str, object]:
    head = batch.header
    sequenced = head.base_sequence >= 0
    return {
        "file": path,
        "kind": "batch",
        "position": batch.position,
        "size_bytes": head.size_bytes,
        "base_offset": head.base_offset,
        "last_offset": head.last_offset,
        "record_count": head.record_count,
        "base_sequence": head.base_sequence,
        "last_sequence": (head.base_sequence + head.last_offset - head.base_offset) % 2**31 if sequenced else -1,
        "producer_id": head.producer_id,
        "producer_epoch": head.producer_epoch,
        "leader_epoch": head.leader_epoch,
        "transactional": bool(head.attributes & TRANSACTIONAL),
        "control": bool(head.attributes & CONTROL),
        "delete_horizon_ms": head.base_timestamp if head.attributes & DELETE_HORIZON else None,
        "timestamp_type": "LogAppendTime" if head.attributes & LOG_APPEND_TIME else "CreateTime",
        "base_timestamp": head.base_timestamp,
        "max_timestamp": head.max_timestamp,
        "magic": head.magic,
        "compression": COMPRESSION_TYPES[head.attributes & CODEC_MASK],
        "crc": head.crc,
        "computed_crc": batch.computed_crc,
        "valid": batch.status is Status.OK,
    }


def batch_line(batch: Batch) -> str:
    """One batch, as kafka-dump-log prints it."""
    d = batch_document("", batch)

    def flag(name: str) -> str:
        return str(d[name]).lower()

    horizon = "OptionalLong.empty" if d["delete_horizon_ms"] is None else f"OptionalLong[{d['delete_horizon_ms']}]"
    line = (
        f"baseOffset: {d['base_offset']} lastOffset: {d['last_offset']} count: {d['record_count']} "
        f"baseSequence: {d['base_sequence']} lastSequence: {d['last_sequence']} producerId: {d['producer_id']} "
        f"producerEpoch: {d['producer_epoch']} partitionLeaderEpoch: {d['leader_epoch']} isTransactional: {flag('transactional')} "
        f"isControl: {flag('control')} deleteHorizonMs: {horizon} position: {d['position']} "
        f"{d['timestamp_type']}: {d['max_timestamp']} size: {d['size_bytes']} magic: {d['magic']} "
        f"compresscodec: {d['compression']} crc: {d['crc']} isvalid: {flag('valid')}"
    )
    return line if batch.status is Status.OK else f"{line} ({explain(batch.status, batch.header, computed_crc=batch.computed_crc)})"


def record_document(path: str, batch: Batch, record: Record, *, print_data: bool) -> dict[str, object]:
    head = batch.header
    sequence = -1 if head.base_sequence < 0 else (head.base_sequence + record.offset - head.base_offset) % 2**31
    document: dict[str, object] = {
        "file": path,
        "kind": "record",
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key_size_bytes": -1 if record.key is None else len(record.key),
        "value_size_bytes": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headers": [[name, text_or_base64(value)] for name, value in record.headers],
    }
    if print_data:
        document |= {"key": text_or_base64(record.key), "value": text_or_base64(record.value)}
    return document


class Contents(NamedTuple):
    """What is printed of a log's batches: of the ``deep`` ones the records, and of those their data and metadata.

    ``size_bytes_max``: of the batches together; the next one is not read.
    """

    deep: bool = False
    data: bool = False
    metadata: bool = True
    key: Callable[[bytes], bytes] = bytes
    value: Callable[[bytes], bytes] = bytes
    state: Callable[[bytes, bytes | None], dump_state.Text] | None = None  # of an internal topic
    size_bytes_max: int | None = None
    as_kafka: bool = False


def record_line(batch: Batch, record: Record, contents: Contents) -> bytes:
    """One record, as kafka-dump-log prints it."""
    d = record_document("", batch, record, print_data=False)
    stamped = "LogAppendTime" if batch.header.attributes & LOG_APPEND_TIME else "CreateTime"
    line = (
        f"| offset: {record.offset} {stamped}: {record.timestamp_ms} keySize: {d['key_size_bytes']} "
        f"valueSize: {d['value_size_bytes']} sequence: {d['sequence']} headerKeys: [{','.join(name for name, _ in record.headers)}]"
    ).encode()
    if not contents.metadata:
        line = b"|"
    if contents.data:
        key, value = _shown(record, contents)
        line += b"" if key is None else b" key: " + key
        line += b"" if value is None else b" payload: " + value
    return line


def _shown(record: Record, contents: Contents) -> tuple[bytes | None, bytes | None]:
    """Key and value as text; bytes that are no state of a coordinator are shown as they are."""
    key, value = record.key, record.value
    if contents.state is not None and key is not None:
        with contextlib.suppress(InvalidMessage):
            said, told = contents.state(key, value)
            return _encoded(said), _encoded(told)
    return key if key is None else contents.key(key), value if value is None else contents.value(value)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def control_line(batch: Batch, marker: Mapping[str, object], contents: Contents) -> str:
    """The record of a control batch; kafka-dump-log prints its metadata too, or an empty line without."""
    if not contents.metadata:
        return ""
    line = f"| offset: {marker['offset']}"
    if contents.as_kafka:
        line += f" CreateTime: {batch.header.base_timestamp} keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
    return f"{line} endTxnMarker: {marker['type']} coordinatorEpoch: {marker['coordinator_epoch']}"


def control_document(path: str, batch: Batch) -> dict[str, object]:
    """The record of a control batch."""
    marker = control.parse(batch.data)
    name = marker.type.name if isinstance(marker.type, control.ControlType) else str(marker.type)
    offset, epoch = batch.header.base_offset, marker.coordinator_epoch
    return {"file": path, "kind": "control", "offset": offset, "type": name, "coordinator_epoch": epoch}


def dump_records(path: str, batch: Batch, contents: Contents, *, as_json: bool) -> bool:
    """Print the records of a batch; False if they cannot be read."""
    is_control = batch.header.attributes & CONTROL
    try:
        marker = control_document(path, batch) if is_control else {}
        records = [] if is_control else offline.read_records(batch)
    except (InvalidBatch, CodecMissing) as error:
        if as_json:
            emit_line({"file": path, "kind": "damage", "position": batch.position, "reason": str(error)})
        else:
            line(f"| {error}")
        return False
    if is_control:
        if as_json:
            emit_line(marker)
        else:
            line(control_line(batch, marker, contents))
    for record in records:
        if as_json:
            emit_line(record_document(path, batch, record, print_data=contents.data))
        else:
            line(visible_bytes(record_line(batch, record, contents)))
    return True


def dump_gap(path: str, gap: Gap, *, as_json: bool) -> bool:
    """Print bytes that are not a batch; False if they are damage."""
    reserved = gap.status is Status.ZERO
    if as_json:
        kind = "reserved" if reserved else "damage"
        emit_line({"file": path, "kind": kind, "position": gap.position, "size_bytes": gap.size_bytes, "reason": gap.reason})
    elif reserved:
        line(f"{gap.size_bytes} zeroes at the end of the file, from position {gap.position}: preallocated")
    else:
        where = f"at the end of {os.path.basename(path)}" if gap.at_end else "before the next whole batch"
        line(f"Found {gap.size_bytes} invalid bytes {where}, from position {gap.position}: {gap.reason}")
    return reserved


def dump_log(path: str, contents: Contents, *, as_json: bool) -> bool:
    """Print a ``.log`` file; False if it is damaged."""
    good = True
    if not as_json:
        line(f"Log starting offset: {offline.base_offset_of(path)}")
    for found in offline.read_batches(path):
        if isinstance(found, Gap):
            good &= dump_gap(path, found, as_json=as_json)
            continue
        if contents.size_bytes_max is not None and found.position + found.header.size_bytes > contents.size_bytes_max:
            break
        if as_json:
            emit_line(batch_document(path, found))
        else:
            line(batch_line(found))
        good &= found.status is Status.OK
        if contents.deep and found.status is Status.OK:
            good &= dump_records(path, found, contents, as_json=as_json)
    return good


# ---------------------------------------------------------------- index files


def index_lines(path: str) -> Iterator[dict[str, object]]:
    if path.endswith(".timeindex"):
        for timestamp, offset in offline.read_time_index(path):
            yield {"timestamp": timestamp, "offset": offset}
    else:
        for offset, position in offline.read_index(path):
            yield {"offset": offset, "position": position}


def dump_index(path: str, *, as_json: bool, sanity_only: bool, verify_only: bool, as_kafka: bool = False) -> bool:
    """Print an index file and its problems; False if there are any.

    Args:
        sanity_only: Check only the file itself, and print no entries.
        verify_only: Compare with the log, and print no entries.
    """
    if as_kafka and next(index_lines(path), None) is None and not any(offline.check_sanity(path)):
        line(f"{path} is empty.")
        return True
    if not (sanity_only or verify_only):
        for entry in index_lines(path):
            if as_json:
                emit_line({"file": path, "kind": "entry", **entry})
            else:
                line(" ".join(f"{name}: {value}" for name, value in entry.items()))
    good = True
    for problem in itertools.chain(offline.check_sanity(path), () if sanity_only else offline.check_index(path)):
        good = False
        if as_json:
            emit_line({"file": path, "kind": "damage", "reason": problem})
        else:
            line(f"{os.path.basename(path)}: {problem}")
    if good and sanity_only and not as_json:
        line(f"{path} passed sanity check.")
    return good


# ---------------------------------------------------------------- the verb


@click.command(short_help="Print batches, records, index entries of files.")
@here
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path())
@click.option("--files", metavar="FILE,...", help="Files, separated by commas.")
@click.option("--deep-iteration", "deep", is_flag=True, help="Also the records: offset, time, sizes, header keys.")
@click.option("--print-data-log", "print_data", is_flag=True, help="Also the records with their keys and values.")
@click.option("--index-sanity-check", "sanity_only", is_flag=True, help="Only check that index files are whole and in order.")
@click.option("--verify-index-only", "verify_only", is_flag=True, help="Only compare index files with their logs.")
@click.option("--skip-record-metadata", "skips", is_flag=True, hidden=True)
@click.option("--offsets-decoder", "state", flag_value="offsets", help="Decode records of __consumer_offsets.")
@click.option("--transaction-log-decoder", "state", flag_value="transactions", help="Decode records of __transaction_state.")
@click.option("--max-bytes", type=WholeNumber(min=0), hidden=True)
@click.option("--key-decoder-class", "key_class", is_flag=False, flag_value="", hidden=True)
@click.option("--value-decoder-class", "value_class", is_flag=False, flag_value="", hidden=True)
@pass_session
def dump(
    session: Session,
    paths: Sequence[str],
    files: str | None,
    deep: bool,
    print_data: bool,
    sanity_only: bool,
    verify_only: bool,
    skips: bool,
    state: str | None,
    max_bytes: int | None,
    key_class: str | None,
    value_class: str | None,
) -> None:
    """Print the content of segment files: batches, records, index entries, aborted transactions, producers.

    PATH is a .log, .index, .timeindex, .txnindex or .snapshot file, or the directory of a partition.
    The database is not opened: any copy of the files works.  Exits with 1
    after finding damage.
    """
    session.refuse_servers("dump reads local files")
    wanted = [*paths, *(files.split(",") if files else ())]
    if not wanted:
        raise click.UsageError("name a file, or a partition's directory")
    data = print_data or key_class is not None or value_class is not None or state is not None
    try:
        key, value = formats.decoded("--key-decoder-class", key_class), formats.decoded("--value-decoder-class", value_class)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    contents = Contents(
        deep or data, data, not skips, key, value, dump_state.DECODERS.get(state or ""), max_bytes, session.kafka and not session.as_json
    )
    for path in [file for one in wanted for file in files_of(one)]:
        is_log = path.endswith(".log")
        if is_log and (sanity_only or verify_only):
            continue
        if not session.as_json:
            line(f"Dumping {path}")
        try:
            if path.endswith(dump_producers.SUFFIXES):
                dump_producers.dump_producers(path, as_json=session.as_json, quiet=sanity_only or verify_only)
                good = True
            elif is_log:
                good = dump_log(path, contents, as_json=session.as_json)
            else:
                good = dump_index(
                    path, as_json=session.as_json, sanity_only=sanity_only, verify_only=verify_only, as_kafka=contents.as_kafka
                )
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        except CorruptionError as error:
            good = False
            if session.as_json:
                emit_line({"file": path, "kind": "damage", "position": error.position, "reason": error.reason})
            else:
                line(str(error))
        if not good:
            session.exit_code = 1
