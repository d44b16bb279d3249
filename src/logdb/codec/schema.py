"""Kafka's message schemas: tables of fields with versions, and an encoder and decoder that follow them.

Covers Kafka's primitive types, flexible versions and tagged fields (KIP-482).  A message's table is written where the message
is used, in the spelling of Kafka's own message files::

    KEY = Message("OffsetCommitKey", "0-1", "none", Field("group", STRING), Field("topic", STRING), Field("partition", INT32))
    KEY.decode(KEY.encode({"group": "g", "topic": "t", "partition": 0}, 1), 1)

Values are dicts by field name; a struct is a dict, an array a list.  Decoding returns every field of the table, with the default
of those that the version lacks; encoding omits fields that the version lacks and uses the default of those that are missing.

Hostile bytes raise InvalidMessage: every length is compared with the remaining bytes before memory is taken, and the bytes cannot
cause recursion.

Threading: tables are immutable; the functions of a version are built at its first use.
"""

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from logdb.errors import InvalidMessage
from logdb.model import Buffer

Write: TypeAlias = Callable[[bytearray, Any], None]
_ANY_NUMBER = 1 << 62


class Reader:
    """A position in unchecked bytes."""

    __slots__ = ("data", "elements_left", "position")

    def __init__(self, data: Buffer, position: int = 0, elements_max: int = _ANY_NUMBER) -> None:
        self.data, self.position, self.elements_left = memoryview(data), position, elements_max

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, size_bytes: int) -> memoryview:
        """The next bytes, borrowed."""
        begin = self.position
        if not 0 <= size_bytes <= len(self.data) - begin:
            raise InvalidMessage(begin, f"{size_bytes} bytes where {self.left} are left")
        self.position = begin + size_bytes
        return self.data[begin : self.position]

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        begin, number = self.position, 0
        if begin < len(self.data) and (byte := self.data[begin]) < 128:  # most are
            self.position = begin + 1
            return byte
        for shift, byte in enumerate(self.data[begin : begin + 5]):
            number |= (byte & 127) << 7 * shift
            if byte < 128:
                self.position = begin + shift + 1
                break
        else:
            raise InvalidMessage(begin, "a varint does not end within 5 bytes")
        if number >= 1 << 32:
            raise InvalidMessage(begin, f"the varint {number} is over 32 bits")
        return number


Read: TypeAlias = Callable[[Reader], Any]


def write_uvarint(out: bytearray, number: int) -> None:
    """Append an unsigned varint."""
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


class Scattered(bytearray):
    """What is written, but for ``RECORDS``: they are borrowed, and come between the bytes that lie here."""

    def __init__(self) -> None:
        super().__init__()
        self._borrowed: list[tuple[int, Buffer]] = []

    def borrow(self, data: Buffer) -> None:
        if data:
            self._borrowed.append((len(self), data))

    @property
    def size_bytes(self) -> int:
        return len(self) + sum(len(data) for _, data in self._borrowed)

    def buffers(self) -> list[Buffer]:
        """All bytes in their order; nothing may be written afterwards."""
        own, begin, found = memoryview(self), 0, list[Buffer]()
        for end, data in self._borrowed:
            found += own[begin:end], data
            begin = end
        return [*found, own[begin:]] if begin < len(own) else found


# ---------------------------------------------------------------- types


class Form(NamedTuple):
    """The version, and whether it is flexible: together they decide the encoding of a type."""

    version: int
    flexible: bool
    nullable: bool = False


class Type(Protocol):
    """The type of a field: its default, and its encoder and decoder for each form."""

    default: Any

    def codec(self, form: Form) -> tuple[Write, Read]: ...


class _Fixed:
    """A number, as ``struct`` packs it; the same in every form."""

    def __init__(self, layout: str, default: Any = 0) -> None:
        self.layout, self.default = layout, default

    def codec(self, _: Form) -> tuple[Write, Read]:
        whole = struct.Struct(">" + self.layout)
        pack, unpack, size = whole.pack, whole.unpack_from, whole.size

        def write(out: bytearray, value: Any) -> None:
            out += pack(value)

        def read(reader: Reader) -> Any:
            return unpack(reader.take(size))[0]

        return write, read


_SHORT = 127
_STRING_BYTES_MAX = (1 << 15) - 1  # of one that is not compact; Kafka's clients read no longer one of either kind
_CUT_LENGTH = _STRING_BYTES_MAX // 4


@cache
def _short_lengths(layout: str, *, flexible: bool) -> tuple[bytes, ...]:
    """The lengths below ``_SHORT`` as they are written: most are."""
    pack = struct.Struct(">" + layout).pack
    return tuple(bytes((length + 1,)) if flexible else pack(length) for length in range(_SHORT))


def _length(kind: str, layout: str, form: Form) -> tuple[Callable[[bytearray, int | None], None], Callable[[Reader], int]]:
    """Writer and reader of the length of a string, of bytes or of an array; -1 is null."""
    fixed = struct.Struct(">" + layout)
    most = (1 << 8 * fixed.size - 1) - 1
    _, flexible, nullable = form

    def write(out: bytearray, length: int | None) -> None:
        if length is None and not nullable:
            raise InvalidMessage(len(out), f"{kind} cannot be null here")
        if length is not None and length > most and not flexible:
            raise InvalidMessage(len(out), f"{kind} of length {length}, the limit is {most}")
        if flexible:
            write_uvarint(out, 0 if length is None else length + 1)
        else:
            out += fixed.pack(-1 if length is None else length)

    def read(reader: Reader) -> int:
        begin = reader.position
        length = reader.uvarint() - 1 if flexible else int(fixed.unpack(reader.take(fixed.size))[0])
        if length < -1 or (length == -1 and not nullable):
            raise InvalidMessage(begin, f"{kind} of length {length}")
        if length > reader.left:  # every element of an array takes at least a byte
            raise InvalidMessage(begin, f"{kind} of length {length} where {reader.left} bytes are left")
        return length

    return write, read


class _String:
    default = ""

    def codec(self, form: Form) -> tuple[Write, Read]:
        write_length, read_length = _length("a string", "h", form)
        short = _short_lengths("h", flexible=form.flexible)

        def write(out: bytearray, value: str | None) -> None:
            data = None if value is None else value.encode()
            if data is not None and len(data) < _SHORT:
                out += short[len(data)]
            else:
                write_length(out, None if data is None else len(data))
            out += data or b""

        def read(reader: Reader) -> str | None:
            length = read_length(reader)
            if length < 0:
                return None
            begin = reader.position
            try:
                return str(reader.take(length), "utf-8")
            except UnicodeDecodeError as error:
                raise InvalidMessage(begin, f"a string is not UTF-8: {error.reason}") from None

        return write, read


class _ErrorMessage(_String):
    def codec(self, form: Form) -> tuple[Write, Read]:
        write_whole, read = super().codec(form)

        def write(out: bytearray, value: str | None) -> None:
            if value is not None and len(value) > _CUT_LENGTH:  # a character has four bytes at most
                value = value.encode()[:_STRING_BYTES_MAX].decode(errors="ignore")
            write_whole(out, value)

        return write, read


class _Bytes:
    default = b""

    def __init__(self, *, borrowed: bool = False) -> None:
        self._borrowed = borrowed

    def codec(self, form: Form) -> tuple[Write, Read]:
        write_length, read_length = _length("bytes", "i", form)
        borrowed = self._borrowed

        def write(out: bytearray, value: Buffer | None) -> None:
            write_length(out, None if value is None else len(value))
            if borrowed and isinstance(out, Scattered):
                out.borrow(value or b"")
            else:
                out += value or b""

        def read(reader: Reader) -> Buffer | None:
            length = read_length(reader)
            if length < 0:
                return None
            data = reader.take(length)
            return data if borrowed else bytes(data)

        return write, read


INT8, INT16, INT32, INT64 = _Fixed("b"), _Fixed("h"), _Fixed("i"), _Fixed("q")
UINT16, UINT32, FLOAT64, BOOL = _Fixed("H"), _Fixed("I"), _Fixed("d", 0.0), _Fixed("?", False)
UUID = _Fixed("16s", bytes(16))
STRING = _String()
ERROR_MESSAGE = _ErrorMessage()
"""A string for people: what is written of it has 32,767 bytes at most, which every client reads in every version."""
BYTES = _Bytes()
RECORDS = _Bytes(borrowed=True)
"""Bytes as a memoryview of the decoded buffer; ``Scattered`` borrows them in its turn."""


class Array:
    """An array of one type, as a list."""

    default: Any = ()

    def __init__(self, element: Type) -> None:
        self._element = element

    def codec(self, form: Form) -> tuple[Write, Read]:
        write_length, read_length = _length("an array", "i", form)
        write_element, read_element = self._element.codec(form._replace(nullable=False))
        short = _short_lengths("i", flexible=form.flexible)
        number = self._element.layout if isinstance(self._element, _Fixed) and len(self._element.layout) == 1 else None

        def write(out: bytearray, values: Any) -> None:
            if values is not None and len(values) < _SHORT:
                out += short[len(values)]
            else:
                write_length(out, None if values is None else len(values))
            if number is not None:
                out += struct.pack(f">{len(values or ())}{number}", *(values or ()))
                return
            for value in values or ():
                write_element(out, value)

        def read(reader: Reader) -> list[Any] | None:
            length = read_length(reader)
            if length < 0:
                return None
            reader.elements_left -= length
            if reader.elements_left < 0:
                raise InvalidMessage(reader.position, f"an array of {length} elements where {reader.elements_left + length} are allowed")
            return [read_element(reader) for _ in range(length)]

        return write, read


# ---------------------------------------------------------------- fields and messages

_REQUIRED = object()


def _range(text: str) -> range:
    """Kafka's spelling of versions: "none", "2", "0-4", "3+"."""
    if text == "none":
        return range(0)
    first, _, last = text.removesuffix("+").partition("-")
    return range(int(first), 1 << 15 if text.endswith("+") else int(last or first) + 1)


class Field:
    """One field of a struct.

    Args:
        name: Key of the value in its dict.
        kind: Its type.
        versions: Those that have the field; with ``tag``, those that have it as a tagged field.
        nullable: Versions in which None is allowed.
        default: The type's (0, "", b"", empty array) unless given.
        tag: Its number among the struct's tagged fields.
    """

    __slots__ = ("default", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self, name: str, kind: Type, versions: str = "0+", *, nullable: str = "none", default: Any = _REQUIRED, tag: int | None = None
    ) -> None:
        self.name, self.kind, self.tag = name, kind, tag
        self.versions, self.nullable = _range(versions), _range(nullable)
        self.default = kind.default if default is _REQUIRED else default

    def codec(self, version: int, *, flexible: bool) -> tuple[Write, Read]:
        return self.kind.codec(Form(version, flexible, version in self.nullable))


class Struct:
    """Fields one after the other; in flexible versions its tagged fields follow.

    If the struct may be null, a byte before it says so: -1 null, 1 present (KIP-893).
    """

    default: Any = None

    def __init__(self, *fields: Field) -> None:
        self._fields = fields

    def codec(self, form: Form) -> tuple[Write, Read]:
        version, flexible, nullable = form
        there = [field for field in self._fields if version in field.versions]
        plain = [(field.name, field.default, *field.codec(version, flexible=flexible)) for field in there if field.tag is None]
        runs = _in_runs([field for field in there if field.tag is None], [write for _, _, write, _ in plain])
        tags = sorted((field.tag, field) for field in there if field.tag is not None)
        tagged = {tag: (field.name, field.default, *field.codec(version, flexible=True)) for tag, field in tags}
        packs = {tag: _tagged_pack(tag, field.kind) for tag, field in tags}
        defaults = {field.name: field.default for field in self._fields}

        def write(out: bytearray, values: Mapping[str, Any]) -> None:
            for pack, names, of_names, write_field in runs:
                if pack is not None:
                    out += pack(*map(values.get, names, of_names))
                else:
                    write_field(out, values.get(names[0], of_names[0]))
            if tagged:
                _write_tagged(out, tagged, packs, values)
            elif flexible:
                out.append(0)

        def read(reader: Reader) -> dict[str, Any]:
            values = defaults.copy()
            for name, _, _, read_field in plain:
                values[name] = read_field(reader)
            if flexible and (count := reader.uvarint()):
                _read_tagged(reader, count, tagged, values)
            return values

        return _nullable(write, read) if nullable else (write, read)


def structs(*fields: Field) -> Array:
    """An array of structs."""
    return Array(Struct(*fields))


class _Run(NamedTuple):
    """Fields that are written at once: consecutive numbers (``pack``), or one field of another type (``write``)."""

    pack: Callable[..., bytes] | None
    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    write: Write


def _in_runs(fields: Sequence[Field], writes: Sequence[Write]) -> list[_Run]:
    found: list[_Run] = []
    for numbers, run in itertools.groupby(zip(fields, writes, strict=True), lambda pair: isinstance(pair[0].kind, _Fixed)):
        if numbers:
            there = [(field, write) for field, write in run]
            layout = "".join(field.kind.layout for field, _ in there if isinstance(field.kind, _Fixed))
            names, defaults = tuple(field.name for field, _ in there), tuple(field.default for field, _ in there)
            found.append(_Run(struct.Struct(">" + layout).pack, names, defaults, there[0][1]))
        else:
            found += [_Run(None, (field.name,), (field.default,), write) for field, write in run]
    return found


def _nullable(write: Write, read: Read) -> tuple[Write, Read]:
    write_mark, read_mark = INT8.codec(Form(0, flexible=False))

    def write_nullable(out: bytearray, value: Any) -> None:
        write_mark(out, -1 if value is None else 1)
        if value is not None:
            write(out, value)

    def read_nullable(reader: Reader) -> Any:
        return None if read_mark(reader) < 0 else read(reader)

    return write_nullable, read_nullable


_Tagged: TypeAlias = Mapping[int, tuple[str, Any, Write, Read]]


def _tagged_pack(tag: int, kind: Type) -> Callable[[Any], bytes] | None:
    """What packs tag, size and value of a tagged number at once; None for other types."""
    if not isinstance(kind, _Fixed) or tag > 127:
        return None
    whole = struct.Struct(">BB" + kind.layout)
    return partial(whole.pack, tag, whole.size - 2)


def _write_tagged(out: bytearray, tagged: _Tagged, packs: Mapping[int, Callable[[Any], bytes] | None], values: Mapping[str, Any]) -> None:
    count, fields = 0, bytearray()
    for tag, (name, default, write, _) in tagged.items():
        value = values.get(name, default)
        if value == default or (default == () and value == []):
            continue
        count += 1
        if (pack := packs[tag]) is not None:
            fields += pack(value)
            continue
        data = bytearray()
        write(data, value)
        write_uvarint(fields, tag)
        write_uvarint(fields, len(data))
        fields += data
    if count < 128:
        out.append(count)
    else:
        write_uvarint(out, count)
    out += fields


def _read_tagged(reader: Reader, count: int, tagged: _Tagged, values: dict[str, Any]) -> None:
    last = -1
    for _ in range(count):
        begin = reader.position
        tag = reader.uvarint()
        if tag <= last:
            raise InvalidMessage(begin, f"the tagged field {tag} follows {last}")
        last = tag
        begin = reader.position
        field = Reader(reader.take(reader.uvarint()), elements_max=reader.elements_left)
        if tag not in tagged:  # newer writers may have others
            reader.elements_left -= 1
            if reader.elements_left < 0:
                raise InvalidMessage(begin, f"too many elements: the tagged field {tag} where none is allowed")
        else:
            name, _, _, read_field = tagged[tag]
            values[name] = read_field(field)
            reader.elements_left = field.elements_left
            if field.left:
                raise InvalidMessage(begin, f"{field.left} bytes follow the value of the tagged field {tag}")


class Message:
    """A message: a struct with a range of versions.

    Args:
        name: Kafka's name of it, for errors.
        versions: Its range of versions ("0-4").
        flexible: Those with compact lengths and tagged fields ("4+", "none").
        fields: Its fields, in their order.
    """

    def __init__(self, name: str, versions: str, flexible: str, *fields: Field) -> None:
        self.name, self.versions = name, _range(versions)
        self._flexible, self._struct = _range(flexible), Struct(*fields)
        self._codec = lru_cache(maxsize=None)(self._codec_of)

    def _codec_of(self, version: int) -> tuple[Write, Read]:
        if version not in self.versions:
            raise InvalidMessage(0, f"{self.name} has versions {self.versions[0]} to {self.versions[-1]}, not {version}")
        return self._struct.codec(Form(version, version in self._flexible))

    def is_flexible(self, version: int) -> bool:
        return version in self._flexible

    def encode(self, values: Mapping[str, Any], version: int, *, prefix: bytes = b"") -> bytes:
        """The message as bytes, behind ``prefix``.

        Raises:
            InvalidMessage: An unknown version, a value out of the field's range, or None where the version does not allow it.
        """
        out = bytearray(prefix)
        self.write(out, values, version)
        return bytes(out)

    def write(self, out: bytearray, values: Mapping[str, Any], version: int) -> None:
        """Append the message to ``out``; raises as ``encode`` does."""
        try:
            self._codec(version)[0](out, values)
        except struct.error as error:
            raise InvalidMessage(len(out), f"{self.name}: {error}") from None

    def decode(self, data: Buffer, version: int, position: int = 0, *, elements_max: int = _ANY_NUMBER) -> tuple[dict[str, Any], int]:
        """The message at ``position`` of ``data``, and the position after it.

        Args:
            elements_max: Limit of the elements of all arrays, and of unknown tagged fields: an element may take a byte here, and 200 times
                that in memory.

        Raises:
            InvalidMessage: An unknown version, invalid bytes, or more elements.
        """
        reader = Reader(data, position, elements_max)
        return self._codec(version)[1](reader), reader.position
