"""The five codecs of record batches, bounded.

Reads and writes the streams that Kafka's clients put behind a batch header.

The output is bounded before memory is taken for it: by the size in the stream where its format has one, and piece by piece where
it has none or a wrong one.  ``decompress`` never holds more than ``size_bytes_max`` and a constant (12 MiB at most: a piece,
a codec's own tables, zstd's window).

Accepted: every stream that Kafka's broker (its Java classes) reads as a whole.  Refused: bytes that it would silently ignore,
because other readers refuse them or show other records:

======  =====================================================  ====================================
codec   read                                                   refused
======  =====================================================  ====================================
gzip    any number of members                                  what follows the last one (J)
snappy  xerial blocks, several streams in a row; one raw       1 to 3 bytes after the last block (J)
        block
lz4     one LZ4F frame, blocks of any size, linked (not J)     what follows the frame (J)
        or not, with or without checksums and content size
zstd    any number of frames, skippable ones too               what follows the last one; a window
                                                               over 128 MiB
======  =====================================================  ====================================

(J): Java stops there without an error; (not J): Java cannot read it.  A truncated or empty stream is refused in every codec.

What is written: gzip without a time, so equal batches are equal bytes; snappy in xerial blocks of 32 KiB; lz4 in
independent blocks of 64 KiB without content size; zstd with the content size.

Source: Kafka 4.3.1's classes, given all of these; RFC 1952; RFC 8878; snappy-java's SnappyInputStream; the LZ4 frame
format 1.6.
"""

import importlib
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from logdb.errors import CodecMissing, InvalidBatch
from logdb.model import COMPRESSION_TYPES, Buffer

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_MODULES = {"snappy": "cramjam", "lz4": "lz4.frame", "zstd": "zstandard"}  # the others are in Python itself

_INPUT_STEP = 1 << 16
_PIECE = 1 << 18

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2  # version, least version that can read it
_XERIAL_BLOCK = 32 << 10

_ZSTD_SKIPPABLE = 0x184D2A50  # magic of frames without data, except for the lowest 4 bits
_ZSTD_BLOCK_MAX = 128 << 10
_ZSTD_WINDOW_FREE = 8 << 20  # what every decoder should support (RFC 8878, 3.1.1.1.2); more counts towards the bound


def check_installed(compression_type: str) -> None:
    """Check that batches can be built with a topic's ``compression.type``.

    Raises:
        CodecMissing: The codec's package is not installed.
    """
    if compression_type in _MODULES:
        _package(COMPRESSION_TYPES.index(compression_type))


def compress(codec: int, data: Buffer) -> bytes:
    """Compress as Kafka's own producer does.

    Args:
        codec: The codec's number in a batch's attributes, in [0, 4].
        data: uint8[n], the records of one batch.

    Raises:
        CodecMissing: The codec's package is not installed.
        ValueError: No such codec.
    """
    if not 0 <= codec < len(COMPRESSION_TYPES):
        raise ValueError(f"codec {codec} is not one of 0 to {len(COMPRESSION_TYPES) - 1}: {', '.join(COMPRESSION_TYPES)}")
    return _COMPRESS[codec](memoryview(data))


def decompress(codec: int, data: Buffer, size_bytes_max: int) -> Buffer:
    """Decompress the records of one batch.

    Args:
        codec: The codec's number in a batch's attributes.
        data: uint8[n], hostile or not.
        size_bytes_max: Most bytes that may come out.

    Returns:
        uint8[n], the caller's own; ``data`` itself for codec 0.

    Raises:
        InvalidBatch: At position 0: not a whole stream of that codec, or one of more than ``size_bytes_max`` bytes.
        CodecMissing: The codec's package is not installed.
    """
    if not 0 <= codec < len(COMPRESSION_TYPES):
        raise InvalidBatch(0, f"codec {codec} is unknown; known are 0 to {len(COMPRESSION_TYPES) - 1}")
    return _DECOMPRESS[codec](memoryview(data), size_bytes_max)


# ---------------------------------------------------------------- what the codecs share


def _package(codec: int) -> Any:
    """The module of a codec."""
    name = _MODULES[COMPRESSION_TYPES[codec]]
    try:
        return importlib.import_module(name)
    except ImportError:
        raise CodecMissing(COMPRESSION_TYPES[codec], name.partition(".")[0]) from None


def _bad(codec: int, reason: object) -> InvalidBatch:
    return InvalidBatch(0, f"{COMPRESSION_TYPES[codec]}: {reason}")


def _too_large(codec: int, size_bytes: int | None, size_bytes_max: int) -> InvalidBatch:
    size = "more" if size_bytes is None else f"{size_bytes} bytes"
    return _bad(codec, f"at most {size_bytes_max} bytes may be decompressed, there are {size}")


def _truncated(codec: int, size_bytes: int) -> InvalidBatch:
    return _bad(codec, f"the stream does not end within its {size_bytes} bytes")


def _pull(
    codec: int, data: memoryview, at: int, out: bytearray, size_bytes_max: int, step: Callable[[memoryview, int], tuple[bytes, int, bool]]
) -> int:
    """Add one stream, which begins at ``at``, to ``out``, piece by piece; returns where it ends.

    ``step(input, room)`` takes some of the input and returns at most ``room`` bytes, the count of bytes it took, and
    whether the stream has ended.
    """
    ended = False
    while not ended:
        if at == len(data):
            raise _truncated(codec, len(data))
        room = min(_PIECE, size_bytes_max + 1 - len(out))
        piece, taken, ended = step(data[at : at + _INPUT_STEP], room)
        if not piece and not taken and not ended:
            raise _bad(codec, f"the stream is stuck at byte {at}")
        at += taken
        out += piece
        if len(out) > size_bytes_max:
            raise _too_large(codec, None, size_bytes_max)
    return at


# ---------------------------------------------------------------- none


def _keep(data: memoryview) -> bytes:
    return bytes(data)


def _pass(data: memoryview, size_bytes_max: int) -> Buffer:
    if len(data) > size_bytes_max:
        raise _too_large(0, len(data), size_bytes_max)
    return data


# ---------------------------------------------------------------- gzip


def _gzip(data: memoryview) -> bytes:
    stream = zlib.compressobj(wbits=31)  # 31: with a gzip header, which zlib leaves without a time
    return stream.compress(data) + stream.flush()


def _gunzip(data: memoryview, size_bytes_max: int) -> bytearray:
    out, at = bytearray(), 0
    while at < len(data) or not at:
        member = zlib.decompressobj(wbits=31)

        def step(piece: memoryview, room: int, member: Any = member) -> tuple[bytes, int, bool]:
            output = member.decompress(piece, room)
            left = member.unused_data if member.eof else member.unconsumed_tail  # at the end both may be set
            return output, len(piece) - len(left), member.eof

        try:
            at = _pull(GZIP, data, at, out, size_bytes_max, step)
        except zlib.error as error:
            raise _bad(GZIP, f"the member at byte {at} of {len(data)}: {error}") from None
    return out


# ---------------------------------------------------------------- snappy


def _snappy(data: memoryview) -> bytes:
    raw = _package(SNAPPY).snappy
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(raw.compress_raw(data[at : at + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _unsnappy(data: memoryview, size_bytes_max: int) -> bytearray:
    cramjam = _package(SNAPPY)
    declared = sum(size for _, size in _snappy_blocks(data))
    if declared > size_bytes_max:
        raise _too_large(SNAPPY, declared, size_bytes_max)
    out, at = bytearray(declared), 0
    room = memoryview(out)
    try:
        for block, size in _snappy_blocks(data):
            if cramjam.snappy.decompress_raw_into(block, room[at : at + size]) != size:
                raise _bad(SNAPPY, f"a block does not hold the {size} bytes it declares")
            at += size
    except cramjam.DecompressionError as error:
        raise _bad(SNAPPY, f"{at} of {declared} bytes: {error}") from None
    return out


def _snappy_blocks(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Each block and the size that it declares; one block where there is no xerial header."""
    if data[:8] != _XERIAL_MAGIC:
        yield data, _snappy_size(data)
        return
    at = 0
    while at < len(data):
        if data[at : at + 8] == _XERIAL_MAGIC:  # its version fields are ignored: some writers have them little-endian
            at += len(_XERIAL_HEADER)
        else:
            size = int.from_bytes(data[at : at + 4], "big")
            block = data[at + 4 : at + 4 + size]
            at += 4 + size
            if at <= len(data):
                yield block, _snappy_size(block)
    if at != len(data):
        raise _truncated(SNAPPY, len(data))


def _snappy_size(block: memoryview) -> int:
    """The size that a raw block declares: a varint of at most 32 bits before it."""
    size = 0
    for count, byte in enumerate(block[:5]):
        size |= (byte & 127) << 7 * count
        if byte < 128:
            return size
    raise _bad(SNAPPY, f"a block of {len(block)} bytes does not say how much it holds")


# ---------------------------------------------------------------- lz4


def _lz4(data: memoryview) -> bytes:
    frame = _package(LZ4)
    compressed: bytes = frame.compress(data, block_size=frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False)
    return compressed


def _unlz4(data: memoryview, size_bytes_max: int) -> bytearray:
    frame = _package(LZ4)
    out = bytearray()
    try:
        declared = frame.get_frame_info(data)["content_size"]
        if declared > size_bytes_max:
            raise _too_large(LZ4, declared, size_bytes_max)
        context = frame.create_decompression_context()
        end = _pull(LZ4, data, 0, out, size_bytes_max, lambda piece, room: frame.decompress_chunk(context, piece, max_length=room))
    except (RuntimeError, ValueError) as error:  # the package has no error class of its own
        raise _bad(LZ4, f"{len(out)} bytes into the frame of {len(data)}: {error}") from None
    if end != len(data):
        raise _bad(LZ4, f"the frame ends at byte {end} of {len(data)}")
    return out


# ---------------------------------------------------------------- zstd


def _zstd(data: memoryview) -> bytes:
    compressed: bytes = _package(ZSTD).ZstdCompressor().compress(data)
    return compressed


def _unzstd(data: memoryview, size_bytes_max: int) -> Buffer:
    zstandard = _package(ZSTD)
    try:
        sizes = _zstd_sizes(zstandard, data)
        if sizes.declared > size_bytes_max:
            raise _too_large(ZSTD, sizes.declared, size_bytes_max)
        decompressor = zstandard.ZstdDecompressor()
        if sizes.frame_count == sizes.declared_count == 1:  # the one case that needs no window beside the output
            return bytes(decompressor.decompress(data))
        if sizes.window > _ZSTD_WINDOW_FREE:  # as much of it is used as comes out
            size_bytes_max = min(size_bytes_max, (size_bytes_max + _ZSTD_WINDOW_FREE) // 2)
        if sizes.frame_count == 1 and 0 < sizes.most <= size_bytes_max:
            return bytes(decompressor.decompress(data, max_output_size=sizes.most))
        return _zstd_stream(decompressor.stream_reader(data, read_across_frames=True), size_bytes_max)
    except zstandard.ZstdError as error:
        raise _bad(ZSTD, f"{len(data)} bytes: {error}") from None


def _zstd_stream(stream: Any, size_bytes_max: int) -> bytearray:
    out = bytearray()
    while piece := stream.read(min(_PIECE, size_bytes_max + 1 - len(out))):
        out += piece
        if len(out) > size_bytes_max:
            raise _too_large(ZSTD, None, size_bytes_max)
    return out


class _ZstdSizes(NamedTuple):
    frame_count: int
    declared_count: int  # frames that say how much they hold
    declared: int  # what those say, together
    most: int  # bytes that can come out of all frames
    window: int  # the largest


def _zstd_sizes(zstandard: ModuleType, data: memoryview) -> _ZstdSizes:
    """Walk the block headers of all frames, without decompressing.

    Raises:
        InvalidBatch: A frame does not end within ``data``.
    """
    frame_count = declared_count = declared = most = window = at = 0
    while at < len(data) or not at:
        frame_count += 1
        if int.from_bytes(data[at : at + 4], "little") & ~15 == _ZSTD_SKIPPABLE:
            at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            continue
        frame = zstandard.get_frame_parameters(data[at:])
        at += zstandard.frame_header_size(data[at:])
        last = held = 0
        while not last:
            if at + 3 > len(data):
                raise _truncated(ZSTD, len(data))
            block = int.from_bytes(data[at : at + 3], "little")
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            at += 4 if kind == 1 else 3 + size  # 1: one byte, repeated; 2: compressed
            held += min(frame.window_size, _ZSTD_BLOCK_MAX) if kind == 2 else size
        at += 4 * frame.has_checksum
        window = max(window, frame.window_size)
        if frame.content_size != zstandard.CONTENTSIZE_UNKNOWN:
            declared_count += 1
            declared += frame.content_size
            held = frame.content_size
        most += held
    if at > len(data):
        raise _truncated(ZSTD, len(data))
    return _ZstdSizes(frame_count, declared_count, declared, most, window)


_COMPRESS = (_keep, _gzip, _snappy, _lz4, _zstd)
_DECOMPRESS = (_pass, _gunzip, _unsnappy, _unlz4, _unzstd)
