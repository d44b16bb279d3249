"""Kafka's message schemas: tables of fields with versions, and an encoder and decoder that follow them.

Covers Kafka's primitive types, flexible versions and tagged fields (KIP-482).  A message's table is written where the message
is used, in the spelling of Kafka's own message files::

    KEY = Message("OffsetCommitKey", "0-1", "none", Field("group", STRING), Field("topic", STRING), Field("partition", INT32))
    KEY.decode(KEY.encode({"group": "g", "topic": "t", "partition": 0}, 1), 1)

Values are dicts by field name; a struct is a dict, an array a list.  Decoding returns every field of the table, with the default
of those that the version lacks; encoding omits fields that the version lacks and uses the default of those that are missing.

Each version of a message becomes two flat functions at its first use: a type adds the lines that write, or read, its value.  Lines that
read know ``data``, the position ``at``, ``end`` behind the last byte that they may read, and ``left``, how many elements are allowed.

Hostile bytes raise InvalidMessage: every length is compared with the remaining bytes before memory is taken, and the bytes cannot
cause recursion.

Threading: tables are immutable.
"""

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias

from logdb._native import ffi
from logdb.codec.source import Source
from logdb.errors import InvalidMessage
from logdb.model import Buffer

Write: TypeAlias = Callable[[bytearray, Mapping[str, Any]], None]
Read: TypeAlias = Callable[[Buffer, int, int], tuple[dict[str, Any], int]]
_ANY_NUMBER = 1 << 62


class Scattered(bytearray):
    """What is written, but for ``RECORDS``: they are borrowed, and come between the bytes that lie here."""

    def __init__(self) -> None:
        super().__init__()
        self._borrowed: list[tuple[int, Buffer]] = []
        self._borrowed_bytes = 0

    def borrow(self, data: Buffer) -> None:
        if data:
            self._borrowed.append((len(self), data))
            self._borrowed_bytes += len(data)

    @property
    def size_bytes(self) -> int:
        return len(self) + self._borrowed_bytes

    def buffers(self) -> list[Buffer]:
        """All bytes in their order; nothing may be written afterwards."""
        if not self._borrowed:
            return [self]
        own, begin, found = memoryview(self), 0, list[Buffer]()
        for end, data in self._borrowed:
            found += own[begin:end], data
            begin = end
        return [*found, own[begin:]] if begin < len(own) else found


# ---------------------------------------------------------------- what the lines call


def write_uvarint(out: bytearray, number: int) -> None:
    """Append an unsigned varint."""
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position behind it."""
    number = 0
    for shift, byte in enumerate(data[at : at + 5]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            if number >= 1 << 32:
                raise InvalidMessage(at, f"the varint {number} is over 32 bits")
            return number, at + shift + 1
    raise InvalidMessage(at, "a varint does not end within 5 bytes")


def position_in(data: Buffer, borrowed: memoryview) -> int:
    """Where what was borrowed of ``data`` begins in it."""
    return int(ffi.cast("uintptr_t", ffi.from_buffer(borrowed))) - int(ffi.cast("uintptr_t", ffi.from_buffer(data)))


def _tagged(tag: int, value: Buffer) -> bytes:
    """A tagged field."""
    out = bytearray((tag,))
    write_uvarint(out, len(value))
    return bytes(out + value)


def _cut(text: str) -> str:
    return text.encode()[:STRING_BYTES_MAX].decode(errors="ignore")


_OBJECTS = {
    "InvalidMessage": InvalidMessage,
    "Scattered": Scattered,
    "StructError": struct.error,
    "cut": _cut,
    "pack": struct.pack,
    "read_uvarint": read_uvarint,
    "tagged": _tagged,
    "unpack_from": struct.unpack_from,
    "write_uvarint": write_uvarint,
}
_ERRORS = {
    "(IndexError, StructError)": "the next field is longer than the {end - at} bytes that are left",
    "UnicodeDecodeError": "a string is not UTF-8: {error.reason}",
}
"""What Python raises for bytes that are none of the message, and the reason that is given for it."""


def _refuse_if(source: Source, condition: str, at: str, what: str) -> None:
    """``what``: as in an f-string of the lines."""
    source.add(f"if {condition}: raise InvalidMessage({at}, f{what!r})")


def _take_elements(source: Source, count: str) -> None:
    source.add(f"left -= {count}")
    _refuse_if(source, "left < 0", "at", f"too many elements: {{{count}}} elements, must be at most {{left + {count}}}")


def _read_uvarint(source: Source, number: str) -> None:
    source.add(f"{number} = data[at]", f"if {number} < 128: at += 1", f"else: {number}, at = read_uvarint(data, at)")  # most have a byte


# ---------------------------------------------------------------- types


class Form(NamedTuple):
    """The version, and whether it is flexible: together they decide the encoding of a type."""

    version: int
    flexible: bool
    nullable: bool = False


class Type(Protocol):
    """The type of a field."""

    default: Any

    def write(self, source: Source, value: str, form: Form) -> None:
        """Add lines that append the variable ``value`` to ``out``."""

    def read(self, source: Source, value: str, form: Form) -> None:
        """Add lines that set the variable ``value`` to what lies at ``at``, and move that behind it."""


class _Fixed:
    """A number, as ``struct`` packs it; the same in every form."""

    def __init__(self, layout: str, default: Any = 0) -> None:
        self.layout, self.default = layout, default

    def write(self, source: Source, value: str, _: Form) -> None:
        source.add(f"out += {_pack(source, self.layout)}({value})")

    def read(self, source: Source, value: str, _: Form) -> None:
        _unpack(source, (value,), self.layout)


def _pack(source: Source, layout: str) -> str:
    return source.object(struct.Struct(">" + layout).pack)


def _unpack(source: Source, values: Sequence[str], layout: str) -> None:
    whole = struct.Struct(">" + layout)
    source.add(f"{', '.join(values)}, = {source.object(whole.unpack_from)}(data, at)", f"at += {whole.size}")


@contextmanager
def _written(source: Source, value: str, form: Form, kind: str, layout: str) -> Iterator[None]:
    """The block of a value that is not null, behind lines that append null; ``layout``: of the length where it is not compact."""
    if not form.nullable:
        _refuse_if(source, f"{value} is None", "len(out)", f"{kind} cannot be null here")
        yield
        return
    source.add(f"if {value} is None: {'out.append(0)' if form.flexible else f'out += {_pack(source, layout)}(-1)'}")
    with source.block("else:"):
        yield


def _write_length(source: Source, value: str, form: Form, kind: str, layout: str) -> None:
    length, most = source.name(), (1 << 8 * struct.calcsize(layout) - 1) - 1
    source.add(f"{length} = len({value})")
    if form.flexible:
        source.add(f"if {length} < 127: out.append({length} + 1)", f"else: write_uvarint(out, {length} + 1)")
    else:
        _refuse_if(source, f"{length} > {most}", "len(out)", f"{kind} of length {{{length}}}, the limit is {most}")
        source.add(f"out += {_pack(source, layout)}({length})")


@contextmanager
def _sized(source: Source, value: str, form: Form, kind: str, layout: str) -> Iterator[str]:
    """The block of a value that is not null; gives the variable that has its length, which fits into the bytes that are left.

    Of an array it does because every element takes at least a byte.
    """
    length = source.name()
    if form.flexible:
        _read_uvarint(source, length)
        source.add(f"{length} -= 1")
    else:
        _unpack(source, (length,), layout)
    outside = f"not {-form.nullable} <= {length} <= end - at"
    _refuse_if(source, outside, "at", f"{kind} of length {{{length}}} where {{end - at}} bytes are left")
    if form.nullable:
        source.add(f"if {length} < 0: {value} = None")
        with source.block("else:"):
            yield length
    else:
        yield length


STRING_BYTES_MAX = (1 << 15) - 1  # of one that is not compact; Kafka's clients read no longer one of either kind
_CUT_LENGTH = STRING_BYTES_MAX // 4  # a character has four bytes at most


class _String:
    default = ""

    def write(self, source: Source, value: str, form: Form) -> None:
        data = source.name()
        with _written(source, value, form, "a string", "h"):
            source.add(f"{data} = {value}.encode()")
            _write_length(source, data, form, "a string", "h")
            source.add(f"out += {data}")

    def read(self, source: Source, value: str, form: Form) -> None:
        with _sized(source, value, form, "a string", "h") as length:
            source.add(f"{value} = str(data[at : at + {length}], 'utf-8')", f"at += {length}")


class _ErrorMessage(_String):
    def write(self, source: Source, value: str, form: Form) -> None:
        source.add(f"if {value} is not None and len({value}) > {_CUT_LENGTH}: {value} = cut({value})")
        super().write(source, value, form)


class _Bytes:
    default = b""

    def __init__(self, *, borrowed: bool = False) -> None:
        self._borrowed = borrowed

    def write(self, source: Source, value: str, form: Form) -> None:
        with _written(source, value, form, "bytes", "i"):
            _write_length(source, value, form, "bytes", "i")
            if self._borrowed:
                source.add(f"if isinstance(out, Scattered): out.borrow({value})", f"else: out += {value}")
            else:
                source.add(f"out += {value}")

    def read(self, source: Source, value: str, form: Form) -> None:
        with _sized(source, value, form, "bytes", "i") as length:
            data = f"memoryview(data)[at : at + {length}]" if self._borrowed else f"bytes(data[at : at + {length}])"
            source.add(f"{value} = {data}", f"at += {length}")


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

    @property
    def _number(self) -> str:
        """The layout of elements that ``struct`` packs many of at once; empty: they are others."""
        return self._element.layout if isinstance(self._element, _Fixed) and len(self._element.layout) == 1 else ""

    def write(self, source: Source, value: str, form: Form) -> None:
        with _written(source, value, form, "an array", "i"):
            _write_length(source, value, form, "an array", "i")
            if self._number:
                source.add(f"out += pack(f'>{{len({value})}}{self._number}', *{value})")
                return
            element = source.name()
            with source.block(f"for {element} in {value}:"):
                self._element.write(source, element, form._replace(nullable=False))

    def read(self, source: Source, value: str, form: Form) -> None:
        with _sized(source, value, form, "an array", "i") as length:
            _take_elements(source, length)
            if self._number:
                source.add(f"{value} = list(unpack_from(f'>{{{length}}}{self._number}', data, at))")
                source.add(f"at += {length} * {struct.calcsize(self._number)}")
                return
            element = source.name()
            source.add(f"{value} = []")
            with source.block(f"for _ in range({length}):"):
                self._element.read(source, element, form._replace(nullable=False))
                source.add(f"{value}.append({element})")


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
        tag: Its number among the struct's tagged fields, below 128.
    """

    __slots__ = ("default", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self, name: str, kind: Type, versions: str = "0+", *, nullable: str = "none", default: Any = _REQUIRED, tag: int | None = None
    ) -> None:
        self.name, self.kind, self.tag = name, kind, tag
        self.versions, self.nullable = _range(versions), _range(nullable)
        self.default = kind.default if default is _REQUIRED else default

    def form(self, form: Form) -> Form:
        """That of its value, in a struct of that form."""
        return form._replace(nullable=form.version in self.nullable)


class Struct:
    """Fields one after the other; in flexible versions its tagged fields follow.

    If the struct may be null, a byte before it says so: -1 null, 1 present (KIP-893).
    """

    default: Any = None

    def __init__(self, *fields: Field) -> None:
        self._fields = fields

    def write(self, source: Source, value: str, form: Form) -> None:
        if not form.nullable:
            self._write(source, value, form)
            return
        source.add(f"if {value} is None: out += b'\\xff'")
        with source.block("else:"):
            source.add("out.append(1)")
            self._write(source, value, form)

    def _write(self, source: Source, value: str, form: Form) -> None:
        for run in self._runs(form):
            values = [_value(value, field) for field in run]
            if layout := _layout(run):
                source.add(f"out += {_pack(source, layout)}({', '.join(values)})")
            else:
                one = source.name()
                source.add(f"{one} = {values[0]}")
                run[0].kind.write(source, one, run[0].form(form))
        if form.flexible:
            self._write_tagged(source, value, form)

    def _write_tagged(self, source: Source, value: str, form: Form) -> None:
        count, fields, outer = source.name(), source.name(), source.name()
        tagged = self._tagged(form)
        if not tagged:
            source.add("out.append(0)")
            return
        source.add(f"{count}, {fields}, {outer} = 0, b'', out")
        for tag, field in tagged.items():
            one = source.name()
            source.add(f"{one} = {_value(value, field)}")
            with source.block(f"if {one} not in ({field.default!r}, []):"):  # of an array, () is the default
                source.add(f"{count} += 1")
                if layout := _layout([field]):
                    source.add(f"{fields} += {_pack(source, 'BB' + layout)}({tag}, {struct.calcsize('>' + layout)}, {one})")
                    continue
                source.add("out = bytearray()")
                field.kind.write(source, one, field.form(form))
                source.add(f"{fields} += tagged({tag}, out)", f"out = {outer}")
        source.add(f"out.append({count})", f"out += {fields}")

    def read(self, source: Source, value: str, form: Form) -> None:
        if not form.nullable:
            self._read(source, value, form)
            return
        mark = source.name()
        _unpack(source, (mark,), "b")
        source.add(f"if {mark} < 0: {value} = None")
        with source.block("else:"):
            self._read(source, value, form)

    def _read(self, source: Source, value: str, form: Form) -> None:
        values = {field.name: source.name() if form.version in field.versions else repr(field.default) for field in self._fields}
        for run in self._runs(form):
            if layout := _layout(run):
                _unpack(source, [values[field.name] for field in run], layout)
            else:
                run[0].kind.read(source, values[run[0].name], run[0].form(form))
        if form.flexible:
            self._read_tagged(source, values, form)
        source.add(f"{value} = {{{', '.join(f'{name!r}: {one}' for name, one in values.items())}}}")

    def _read_tagged(self, source: Source, values: Mapping[str, str], form: Form) -> None:
        count, last, tag, size, outer = (source.name() for _ in range(5))
        tagged = self._tagged(form)
        source.add(*(f"{values[field.name]} = {field.default!r}" for field in tagged.values()))
        _read_uvarint(source, count)
        with source.block(f"if {count}:"):
            source.add(f"{last}, {outer} = -1, end")
            with source.block(f"for _ in range({count}):"):
                _read_uvarint(source, tag)
                _refuse_if(source, f"{tag} <= {last}", "at", f"the tagged field {{{tag}}} follows {{{last}}}")
                _read_uvarint(source, size)
                source.add(f"{last}, end = {tag}, at + {size}")
                _refuse_if(source, f"end > {outer}", "at", f"a tagged field of {{{size}}} bytes where {{{outer} - at}} are left")
                for number, field in tagged.items():
                    with source.block(f"if {tag} == {number}:"):
                        field.kind.read(source, values[field.name], field.form(form))
                with source.block(f"if {tag} not in {tuple(tagged)}:"):  # newer writers may have others
                    _take_elements(source, "1")
                    source.add("at = end")
                _refuse_if(source, "at != end", "at", f"the tagged field {{{tag}}} of {{{size}}} bytes does not end with its value")
            source.add(f"end = {outer}")

    def _runs(self, form: Form) -> list[list[Field]]:
        """The fields without tags: numbers that follow one another together, as ``struct`` packs them at once."""
        found: list[list[Field]] = []
        there = [field for field in self._fields if form.version in field.versions and field.tag is None]
        for are_numbers, group in itertools.groupby(there, lambda field: isinstance(field.kind, _Fixed)):
            fields = list(group)
            found += [fields] if are_numbers else [[field] for field in fields]
        return found

    def _tagged(self, form: Form) -> dict[int, Field]:
        """The fields with tags, in the order of their tags."""
        there = {field.tag: field for field in self._fields if form.version in field.versions and field.tag is not None}
        return dict(sorted(there.items()))


def structs(*fields: Field) -> Array:
    """An array of structs."""
    return Array(Struct(*fields))


def _value(values: str, field: Field) -> str:
    """That of a field in the variable of its struct."""
    return f"{values}[{field.name!r}] if {field.name!r} in {values} else {field.default!r}"


def _layout(run: Sequence[Field]) -> str:
    """The layout of numbers that follow one another; empty: the field is no number."""
    return "".join(field.kind.layout for field in run if isinstance(field.kind, _Fixed))


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
        self._writer, self._reader = lru_cache(maxsize=None)(self._writer_of), lru_cache(maxsize=None)(self._reader_of)

    def _writer_of(self, version: int) -> Write:
        source = Source(_OBJECTS)
        with source.block("def write(out, values):"):
            self._struct.write(source, "values", self._form(version))
        return source.function("write")

    def _reader_of(self, version: int) -> Read:
        source = Source(_OBJECTS)
        with source.block("def read(data, at, left):"):
            source.add("end = len(data)")
            with source.block("try:"):
                self._struct.read(source, "values", self._form(version))
                source.add("return values, at")
            for error, what in _ERRORS.items():
                source.add(f"except {error} as error: raise InvalidMessage(at, f{what!r}) from None")
        return source.function("read")

    def _form(self, version: int) -> Form:
        if version not in self.versions:
            raise InvalidMessage(0, f"{self.name} has versions {self.versions[0]} to {self.versions[-1]}, not {version}")
        return Form(version, version in self._flexible)

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
            self._writer(version)(out, values)
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
        return self._reader(version)(data, position, elements_max)
