"""Files of records: CSV, JSON lines and Parquet, for ``import``, ``export`` and ``produce -J``.

A file has one of two forms.  In the form of records its columns are fields of records: ``value``, and any of topic, partition, offset,
timestamp, timestamp_type, key and headers; in JSON lines the fields of ``consume --json``.  Every other file has rows, each of which
becomes the JSON object of a value.
"""

import base64
import binascii
import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import click

from logdb.cli.kafka.formats import Record, envelope
from logdb.cli.kafka.lines import BadLine
from logdb.cli.kafka.lines import Columns as LineColumns
from logdb.cli.terminal.params import is_timestamp, parse_time

_CELL_SIZE_MAX = 64 << 20

FORMATS = {"csv": (".csv",), "jsonl": (".jsonl", ".ndjson", ".json"), "parquet": (".parquet",)}
_FIELDS = frozenset(("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"))
_ENVELOPE = frozenset(("topic", "partition", "offset", "tstype", "ts", "headers", "key", "payload"))
_CSV_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
_NULL = r"\N"  # in a cell of CSV, which has no other
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?")  # the text stays as it is, and any reader of JSON can hold it

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """One record to append."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


class BadRow(ValueError):
    """A row, or a line, has another form; the message names it."""


def is_envelope_line(line: bytes) -> bool:
    """Whether a line looks like one that ``consume --json`` prints."""
    return line.startswith(b'{"topic":') and b'"tstype":' in line and b'"payload":' in line


def format_of(path: str, given: str | None) -> str:
    """The format of a file, by its name unless it is given.

    Raises:
        click.UsageError: The name does not say.
    """
    if given is not None:
        return given
    ending = os.path.splitext(path)[1].lower()
    for name, endings in FORMATS.items():
        if ending in endings:
            return name
    raise click.UsageError(f"{path!r}: give --format csv, jsonl or parquet, or a name that ends so")


# ---------------------------------------------------------------- reading


class Columns(NamedTuple):
    """Which columns of a file of rows are key and timestamp.

    ``as_values``: rows, also if the columns are fields of records.  ``null``: in CSV, a cell with this text is null, too.
    """

    key: str | None = None
    timestamp: str | None = None
    as_values: bool = False
    null: str | None = None

    @property
    def are_rows(self) -> bool:
        return self.as_values or self.key is not None or self.timestamp is not None


def rows_of(path: str, kind: str, columns: Columns) -> Iterator[Row]:
    """The records of a file; ``-``: of stdin.

    Raises:
        BadRow: A row has another form.
        OSError: The file cannot be read.
    """
    if kind == "parquet":
        return _parquet_rows(path, columns)
    return _csv_rows(path, columns) if kind == "csv" else _json_rows(path, columns)


def _lines_of(path: str) -> IO[str]:
    return click.open_file(path, encoding="utf-8", errors="strict")


def _csv_rows(path: str, columns: Columns) -> Iterator[Row]:
    with _lines_of(path) as file:
        csv.field_size_limit(_CELL_SIZE_MAX)
        table = csv.reader(file, strict=True)
        try:
            names = [name.removeprefix("\ufeff") for name in next(table, [])]
            make = _maker(names, columns)
            for cells in table:
                if not cells:
                    continue
                if len(cells) != len(names):
                    raise BadRow(f"line {table.line_num}: {len(cells)} cells, the header has {len(names)}")
                given = cells if columns.null is None else [_NULL if cell == columns.null else cell for cell in cells]
                try:
                    yield make(dict(zip(names, given, strict=True)))
                except ValueError as error:
                    raise BadRow(f"line {table.line_num}: {error}") from None
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadRow(f"line {table.line_num + 1}: {error}") from None


def _maker(names: Sequence[str], columns: Columns) -> Callable[[Mapping[str, str]], Row]:
    """What makes a record of the cells of a row of CSV."""
    _check_names(names, columns)
    if not columns.are_rows and "value" in names and set(names) <= _FIELDS:
        if columns.null is not None:  # an empty value would become a tombstone
            raise BadRow("--null is for rows, and the header is that of records as logdb export writes them: add --values to store rows")
        return _record_of_cells

    def row(cells: Mapping[str, str]) -> Row:
        document = "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{_cell(text)}" for name, text in cells.items()) + "}"
        key = None if columns.key is None else _bytes_of(cells[columns.key])
        time = None if columns.timestamp is None or cells[columns.timestamp] == _NULL else cells[columns.timestamp]
        return Row(document.encode(), key, (), _time_of(columns.timestamp, time))

    return row


def _check_names(names: Sequence[str], columns: Columns) -> None:
    if len(set(names)) != len(names):
        raise BadRow(f"the header names a column twice: {', '.join(names)}")
    for name in (columns.key, columns.timestamp):
        if name is not None and name not in names:
            raise BadRow(f"no column {name!r}; there are {', '.join(names)}")


def _cell(text: str) -> str:
    if text == _NULL:
        return "null"
    return text if _NUMBER.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _bytes_of(text: str) -> bytes | None:
    return None if text == _NULL else text.encode()


def _record_of_cells(cells: Mapping[str, str]) -> Row:
    given = {name: text for name, text in cells.items() if text not in ("", _NULL)}
    headers = tuple((str(name), None if text is None else str(text).encode()) for name, text in json.loads(given.get("headers", "[]")))
    timestamp = _time_of("timestamp", given.get("timestamp"))
    return Row(_bytes_of(cells["value"]), _bytes_of(cells.get("key", _NULL)), headers, timestamp)


def _json_rows(path: str, columns: Columns) -> Iterator[Row]:
    with _lines_of(path) as file:
        as_records: bool | None = None
        number = 0
        try:
            for line in file:
                number += 1
                if not line.strip():
                    continue
                document = json.loads(line, parse_constant=_refuse_constant)
                if as_records is None:
                    as_records = not columns.are_rows and is_envelope(document)
                yield record_of(document) if as_records else _row_of(line.strip(), document, columns)
        except (ValueError, TypeError) as error:
            raise BadRow(f"line {number if not isinstance(error, UnicodeDecodeError) else number + 1}: {error}") from None


def _refuse_constant(name: str) -> object:
    raise BadRow(f"{name} is not JSON")


def is_envelope(document: object) -> bool:
    """Whether it has the fields of ``consume --json`` and no others."""
    return isinstance(document, dict) and "payload" in document and document.keys() <= _ENVELOPE


def record_of(document: object) -> Row:
    """The record of a line of ``consume --json``.

    Raises:
        BadRow: It is none.
    """
    if not is_envelope(document):
        raise BadRow("it is no record of consume --json: fields must be payload, and any of key, headers, ts, topic, partition, offset")
    assert isinstance(document, dict)
    parts, ts = document.get("headers", []), document.get("ts")
    if not isinstance(parts, list) or len(parts) % 2 or not all(isinstance(name, str) for name in parts[::2]):
        raise BadRow("headers must be a list of names and values in turn")
    if ts is not None and (isinstance(ts, bool) or not isinstance(ts, int) or not is_timestamp(ts)):
        raise BadRow(f"ts={ts!r}: must be milliseconds since 1970, in 64 bits")
    headers = tuple((name, _decoded(value)) for name, value in zip(parts[::2], parts[1::2], strict=True))
    return Row(_decoded(document["payload"]), _decoded(document.get("key")), headers, ts)


class EnvelopeFormat:
    """Lines of ``consume --json``: key, value, headers and timestamp are those of the records, offsets are new."""

    def parse(self, lines: Sequence[bytes], first_number: int = 1) -> LineColumns:
        """Parse lines.

        Raises:
            BadLine: A line is no such record.
        """
        rows = []
        for number, line in enumerate(lines, first_number):
            try:
                rows.append(record_of(json.loads(line)))
            except ValueError as error:
                raise BadLine(number, f": {error}") from None
        return LineColumns(
            [row.value for row in rows], [row.key for row in rows], [row.headers for row in rows], [row.timestamp_ms for row in rows]
        )


def _decoded(given: object) -> bytes | None:
    """Bytes of their form in JSON: see ``output.text_or_base64``."""
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode(errors="surrogatepass")
    if isinstance(given, dict) and list(given) == ["base64"] and isinstance(given["base64"], str):
        try:
            return base64.b64decode(given["base64"], validate=True)
        except binascii.Error as error:
            raise BadRow(f"base64: {error}") from None
    raise BadRow(f"{given!r:.80}: must be a string, null, or an object with base64")


def _row_of(line: str, document: Any, columns: Columns) -> Row:
    def of(name: str | None) -> Any:
        if name is None:
            return None
        if not isinstance(document, dict) or name not in document:
            raise BadRow(f"no field {name!r}")
        return document[name]

    key, timestamp = of(columns.key), of(columns.timestamp)
    text = key if key is None or isinstance(key, str) else json.dumps(key, ensure_ascii=False)
    return Row(line.encode(), None if text is None else text.encode(), (), _time_of(columns.timestamp, timestamp))


def _parquet_rows(path: str, columns: Columns) -> Iterator[Row]:
    try:
        yield from _rows_of_parquet(path, columns)
    except BadRow:
        raise
    except ValueError as error:  # also ArrowInvalid
        raise BadRow(str(error)) from None


def _rows_of_parquet(path: str, columns: Columns) -> Iterator[Row]:
    from logdb.codec import parquet  # needs pyarrow

    with parquet.reading(path) as (names, documents):
        _check_names(names, columns)
        as_records = not columns.are_rows and "value" in names and set(names) <= _FIELDS
        for document in documents:
            if as_records:
                headers = tuple((pair["key"], pair["value"]) for pair in document.get("headers") or ())
                yield Row(_raw(document["value"]), _raw(document.get("key")), headers, _time_of("timestamp", document.get("timestamp")))
                continue
            text = json.dumps(document, ensure_ascii=False, default=_plain)
            key = None if columns.key is None else document[columns.key]
            raw = _raw(key) if isinstance(key, str | bytes | None) else json.dumps(key, default=_plain).encode()
            time = None if columns.timestamp is None else document[columns.timestamp]
            yield Row(text.encode(), raw, (), _time_of(columns.timestamp, time))


def _raw(given: object) -> bytes | None:
    return given if given is None or isinstance(given, bytes) else str(given).encode()


def _plain(given: Any) -> Any:
    """A cell of Parquet that JSON lacks."""
    if isinstance(given, bytes):
        try:
            return given.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(given).decode()}
    return given.isoformat() if hasattr(given, "isoformat") else str(given)


def _time_of(name: str | None, given: Any) -> int | None:
    """Milliseconds of a time, or of its text or number, in a column or field; None of null.

    Raises:
        BadRow: It is no time; the message names the column.
    """
    if given is None:
        return None
    text = given.isoformat() if hasattr(given, "isoformat") else str(given)
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        raise BadRow(f"{name}={text!r:.200}: must be a whole number of ms since 1970, or a time like 2013-07-04T12:00:00") from None


# ---------------------------------------------------------------- writing


def write_json(out: IO[bytes], records: Iterable[Record], timestamp_type: str, topic: str) -> int:
    """Write the lines of ``consume --json``; returns their number."""
    render, count = envelope({topic: timestamp_type}), 0
    for record in records:
        out.write(render(record))
        count += 1
    return count


def write_csv(out: IO[str], records: Iterable[Record]) -> int:
    r"""Write a header and a row for each record; null is ``\N``.  Returns the number of records.

    Raises:
        BadRow: A key, value or header is not UTF-8, or is the text ``\N``.
    """
    table, count = csv.writer(out, lineterminator="\n"), 0
    table.writerow(_CSV_COLUMNS)
    for record in records:
        try:
            headers = [[name, None if value is None else value.decode()] for name, value in record.headers]
            shown = json.dumps(headers, ensure_ascii=False) if headers else ""
            cells = (record.partition, record.offset, record.timestamp_ms, _shown(record.key), _shown(record.value), shown)
        except ValueError as error:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            raise BadRow(f"{where}: CSV cannot hold it: {error}; use jsonl or parquet") from None
        table.writerow(cells)
        count += 1
    return count


def _shown(data: bytes | None) -> str:
    if data is None:
        return _NULL
    text = data.decode()
    if text == _NULL:
        raise ValueError(rf"the text {_NULL} stands for null")
    return text
