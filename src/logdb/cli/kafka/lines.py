"""Lines of text become records: key, value and headers, as the console producer and kcat read them.

Source: Kafka's LineMessageReader.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from logdb.cli.terminal.output import quoted

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Columns(NamedTuple):
    """Records in the form of ``append_many``; None if no record has one."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Headers] | None
    timestamps_ms: Sequence[int | None] | None = None


class BadLine(ValueError):
    """A line has another form; ``number``: of the line, from 1."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}{reason}")
        self.number = number


class Splitter:
    """Splits chunks of bytes into lines; the bytes after the last delimiter wait for more.

    ``strip``: left out at the end of each line.
    """

    def __init__(self, delimiter: bytes = b"\n", *, strip: bytes = b"") -> None:
        self._delimiter, self._strip = delimiter, strip
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their delimiters."""
        *lines, self._rest = (self._rest + chunk).split(self._delimiter)
        return self._stripped(lines)

    def finish(self) -> list[bytes]:
        """The last line, if it lacked a delimiter."""
        lines = [self._rest] if self._rest else []
        self._rest = b""
        return self._stripped(lines)

    def _stripped(self, lines: list[bytes]) -> list[bytes]:
        return [line.removesuffix(self._strip) for line in lines] if self._strip else lines


@dataclass(frozen=True, kw_only=True)
class LineFormat:
    """The form of a line: ``[headers HEADERS-DELIMITER] [key KEY-SEPARATOR] value``."""

    key_separator: bytes | None = None  # None: lines have no keys
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None  # a key, value or header value equal to it is null
    lenient: bool = False  # a line without separator is a value without key, instead of an error
    key: bytes | None = None  # of every record whose line has none
    headers: Headers = ()  # of every record, before its own

    def parse(self, lines: Sequence[bytes], first_number: int = 1) -> Columns:
        """Parse lines.

        Args:
            first_number: Number of the first line, for messages.

        Raises:
            BadLine: A line lacks a separator.
        """
        if self.key_separator is None and not self.parse_headers:
            values = lines if self.null_marker is None else [self._null(line) for line in lines]
            keys = None if self.key is None else [self.key] * len(lines)
            return Columns(values, keys, [self.headers] * len(lines) if self.headers else None)
        parsed = [self._one(line, number) for number, line in enumerate(lines, first_number)]
        with_keys = self.key_separator is not None or self.key is not None
        with_headers = self.parse_headers or bool(self.headers)
        return Columns(
            [value for _, value, _ in parsed],
            [key for key, _, _ in parsed] if with_keys else None,
            [headers for _, _, headers in parsed] if with_headers else None,
        )

    def _one(self, line: bytes, number: int) -> tuple[bytes | None, bytes | None, Headers]:
        headers, key, rest = self.headers, self.key, line
        if self.parse_headers:
            head, delimiter, after = rest.partition(self.headers_delimiter)
            if delimiter:
                headers, rest = headers + self._headers(head, number), after
            elif not self.lenient:
                raise BadLine(number, f" has no headers delimiter {quoted(self.headers_delimiter)}")
        if self.key_separator is not None:
            head, separator, after = rest.partition(self.key_separator)
            if separator:
                key, rest = self._null(head), after
            elif not self.lenient:
                raise BadLine(number, f" has no key separator {quoted(self.key_separator)}")
        return key, self._null(rest), headers

    def _headers(self, text: bytes, number: int) -> Headers:
        if self._null(text) is None or not text:
            return ()
        headers = []
        for pair in text.split(self.headers_separator):
            name, separator, value = pair.partition(self.headers_key_separator)
            if not separator and not self.lenient:
                raise BadLine(number, f": header {quoted(pair)} has no separator {quoted(self.headers_key_separator)}")
            try:
                headers.append((name.decode(), self._null(value) if separator else None))
            except UnicodeDecodeError:
                raise BadLine(number, f": the header name {quoted(name)} is not UTF-8") from None
        return tuple(headers)

    def _null(self, data: bytes) -> bytes | None:
        return None if data == self.null_marker else data


class LineParser(Protocol):
    """Makes records of lines."""

    def parse(self, lines: Sequence[bytes], first_number: int = 1) -> Columns:
        """Parse lines; raises BadLine."""


PROPERTIES = (
    "parse.key",
    "key.separator",
    "parse.headers",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
    "null.marker",
    "ignore.error",
)
