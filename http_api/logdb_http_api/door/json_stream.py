"""A stream of JSON objects, which come over a wire in pieces of any size.

An object that lies whole in a piece is parsed at once.  An object that continues in the next piece is not parsed again and again: a
scanner follows the begin and end of strings, objects and arrays, each character once, until the object is whole.
"""

import codecs
import json
import re
from typing import Any

from logdb_http_api.door import documents
from logdb_http_api.errors import ApiError

OBJECT_LENGTH_MAX = 8 << 20
_space = re.compile(r"[ \t\r\n]*").match
_STRUCTURE, _STRING = re.compile(r'["{}\[\]]'), re.compile(r'["\\]')
_parse = json.JSONDecoder(parse_constant=documents.refuse_constant).raw_decode


class _Nesting:
    """The nesting of an unfinished value in strings, objects and arrays."""

    __slots__ = ("_depth", "_escaped", "_in_string")

    def __init__(self) -> None:
        self._depth, self._in_string, self._escaped = 0, False, False

    def end(self, text: str) -> int | None:
        """The end of the value in the following text; None: later."""
        at = 1 if self._escaped and text else 0
        self._escaped = self._escaped and not text
        while (found := (_STRING if self._in_string else _STRUCTURE).search(text, at)) is not None:
            at, sign = found.end(), found[0]
            if sign == "\\":
                self._escaped = at == len(text)
                at += 1
            elif sign == '"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if sign in "{[" else -1
                if self._depth <= 0:
                    return at
        return None


class JsonStream:
    """Takes pieces, returns objects.

    Attributes:
        failure: The error that ended the stream: behind it the begin of an object cannot be found.
        held_length: Characters of the object that continues in the next piece.
    """

    def __init__(self, length_max: int = OBJECT_LENGTH_MAX) -> None:
        self.failure: ApiError | None = None
        self._length_max = length_max
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._unfinished: list[str] = []
        self.held_length = 0
        self._nesting = _Nesting()

    def feed(self, piece: "bytes | bytearray", *, last: bool = False) -> list[Any]:
        """The values that end in this piece; ``last``: it is the last piece."""
        found: list[Any] = []
        try:
            text = self._decode(piece, last)
            at = self._finish(text, found) if self._unfinished else 0
            if at is not None:
                self._take(text, at, found)
            if last and self._unfinished:
                raise ValueError("it ends in the middle of an object")
        except ApiError as error:
            self._fail(error.status, str(error))
        except ValueError as error:
            self._fail(400, f"Bad Request: Error processing JSON: {error}")
        except RecursionError:  # each Python says it in other words
            self._fail(400, "Bad Request: Error processing JSON: an object is nested too deeply")
        return found

    def _finish(self, text: str, found: list[Any]) -> int | None:
        """Continue the unfinished object; returns the begin of the next one, None: not in this piece."""
        end = self._nesting.end(text)
        self._keep(text if end is None else text[:end])
        if end is not None and self.failure is None:
            whole = "".join(self._unfinished)
            self._let_go()
            documents.check_memory(whole.encode())
            found.append(_parse(whole)[0])
        return None if self.failure is not None else end

    def _take(self, text: str, at: int, found: list[Any]) -> None:
        """Parse all whole objects."""
        length = len(text)
        try:
            while (at := _space(text, at).end()) < length:  # type: ignore[union-attr]  # the pattern matches an empty text, too
                value, at = _parse(text, at)
                found.append(value)
        except ValueError:
            if text[at] != "{":
                raise
            self._begin(text[at:])

    def _begin(self, text: str) -> None:
        """Keep an object that continues in the next piece.

        Raises:
            ValueError: The object is whole, but not JSON.
        """
        self._nesting = _Nesting()
        if self._nesting.end(text) is not None:
            _parse(text)
        self._keep(text)

    def _keep(self, text: str) -> None:
        self._unfinished.append(text)
        self.held_length += len(text)
        if self.held_length > self._length_max:
            self._fail(413, f"an object is too large: must be at most {self._length_max} characters")

    def _fail(self, status: int, message: str) -> None:
        self.failure = self.failure or ApiError(status, status, message)
        self._let_go()

    def _let_go(self) -> None:
        self._unfinished, self.held_length = [], 0
