"""The five codecs of record batches, bounded.

Reads and writes the streams that Kafka's clients put behind a batch header.

The output is bounded before memory is taken for it: by the size in the stream where its format has one, and piece by piece where
it has none or a wrong one.  ``decompress`` never holds more than ``size_bytes_max`` and a constant (12 MiB at most: a piece,
a codec's own tables, zstd's window).
``pieces`` holds less: see ``held_bytes``.

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
import threading
import zlib
from collections.abc import Callable, Generator, Iterator
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

_of_this_thread = threading.local()

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
    found = pieces(codec, data, size_bytes_max)
    first, second = next(found, b""), next(found, None)
    if second is None:
        return first
    out = bytearray(first)
    out += second
    del first, second
    for piece in found:
        out += piece
    return out


def pieces(codec: int, data: Buffer, size_bytes_max: int) -> Iterator[Buffer]:
    """As ``decompress``, in pieces of 256 KiB at most; a larger block of snappy is one, and a single zstd frame with its size."""
    if not 0 <= codec < len(COMPRESSION_TYPES):
        raise InvalidBatch(0, f"codec {codec}: must be 0 to {len(COMPRESSION_TYPES) - 1}")
    return _PIECES[codec](memoryview(data), size_bytes_max)


def held_bytes(codec: int, data: Buffer) -> int:
    """A bound, by the headers of blocks, on what ``pieces`` has to hold beside a constant: a block, a window, or what is not in pieces.

    0 where it will not come to that: the stream is damaged, or the codec's package is not installed.
    """
    if codec == ZSTD:
        sizes = _zstd_known(memoryview(data))
        return 0 if sizes is None else sizes.in_blocks if sizes.is_whole else min(sizes.in_blocks, sizes.window)
    try:
        return max((size for _, size in _snappy_blocks(memoryview(data))), default=0) if codec == SNAPPY else 0
    except InvalidBatch:
        return 0


def expanded_bytes(codec: int, data: Buffer) -> int:
    """A bound, by the headers of blocks, on what comes out of a stream of snappy or zstd; 0 as ``held_bytes``, and for the other codecs."""
    if codec == ZSTD:
        sizes = _zstd_known(memoryview(data))
        return 0 if sizes is None else sizes.in_blocks
    try:
        return sum(size for _, size in _snappy_blocks(memoryview(data))) if codec == SNAPPY else 0
    except InvalidBatch:
        return 0


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
    codec: int, data: memoryview, at: int, count: int, size_bytes_max: int, step: Callable[[memoryview, int], tuple[bytes, int, bool]]
) -> Generator[Buffer, None, tuple[int, int]]:
    """The pieces of one stream, which begins at ``at``, after ``count`` bytes of others; returns where it ends, and the count then.

    ``step(input, room)`` takes some of the input and returns at most ``room`` bytes, the count of bytes it took, and
    whether the stream has ended.
    """
    ended = False
    while not ended:
        if at == len(data):
            raise _truncated(codec, len(data))
        piece, taken, ended = step(data[at : at + _INPUT_STEP], min(_PIECE, size_bytes_max + 1 - count))
        if not piece and not taken and not ended:
            raise _bad(codec, f"the stream is stuck at byte {at}")
        at += taken
        count += len(piece)
        if count > size_bytes_max:
            raise _too_large(codec, None, size_bytes_max)
        if piece:
            yield piece
    return at, count


# ---------------------------------------------------------------- none


def _keep(data: memoryview) -> bytes:
    return bytes(data)


def _pass(data: memoryview, size_bytes_max: int) -> Iterator[Buffer]:
    if len(data) > size_bytes_max:
        raise _too_large(0, len(data), size_bytes_max)
    yield data


# ---------------------------------------------------------------- gzip


def _gzip(data: memoryview) -> bytes:
    stream = zlib.compressobj(wbits=31)  # 31: with a gzip header, which zlib leaves without a time
    return stream.compress(data) + stream.flush()


def _gunzip(data: memoryview, size_bytes_max: int) -> Iterator[Buffer]:
    at = count = 0
    while at < len(data) or not at:
        member = zlib.decompressobj(wbits=31)

        def step(piece: memoryview, room: int, member: Any = member) -> tuple[bytes, int, bool]:
            output = member.decompress(piece, room)
            left = member.unused_data if member.eof else member.unconsumed_tail  # at the end both may be set
            return output, len(piece) - len(left), member.eof

        try:
            at, count = yield from _pull(GZIP, data, at, count, size_bytes_max, step)
        except zlib.error as error:
            raise _bad(GZIP, f"the member at byte {at} of {len(data)}: {error}") from None


# ---------------------------------------------------------------- snappy


def _snappy(data: memoryview) -> bytes:
    raw = _package(SNAPPY).snappy
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(raw.compress_raw(data[at : at + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _unsnappy(data: memoryview, size_bytes_max: int) -> Iterator[Buffer]:
    cramjam = _package(SNAPPY)
    declared = sum(size for _, size in _snappy_blocks(data))
    if declared > size_bytes_max:
        raise _too_large(SNAPPY, declared, size_bytes_max)
    at, piece, filled = 0, memoryview(bytearray(min(declared, _PIECE))), 0
    try:
        for block, size in _snappy_blocks(data):
            if filled + size > len(piece):
                if filled:
                    yield piece[:filled]
                piece, filled = memoryview(bytearray(max(size, min(declared - at, _PIECE)))), 0
            if cramjam.snappy.decompress_raw_into(block, piece[filled : filled + size]) != size:
                raise _bad(SNAPPY, f"a block does not hold the {size} bytes it declares")
            at, filled = at + size, filled + size
    except cramjam.DecompressionError as error:
        raise _bad(SNAPPY, f"{at} of {declared} bytes: {error}") from None
    if filled:
        yield piece[:filled]


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


def _unlz4(data: memoryview, size_bytes_max: int) -> Iterator[Buffer]:
    frame = _package(LZ4)
    try:
        declared = frame.get_frame_info(data)["content_size"]
        if declared > size_bytes_max:
            raise _too_large(LZ4, declared, size_bytes_max)
        context = frame.create_decompression_context()
        end, _ = yield from _pull(
            LZ4, data, 0, 0, size_bytes_max, lambda piece, room: frame.decompress_chunk(context, piece, max_length=room)
        )
    except (RuntimeError, ValueError) as error:  # the package has no error class of its own
        raise _bad(LZ4, f"the frame of {len(data)} bytes: {error}") from None
    if end != len(data):
        raise _bad(LZ4, f"the frame ends at byte {end} of {len(data)}")


# ---------------------------------------------------------------- zstd


def _zstd(data: memoryview) -> bytes:
    compressed: bytes = _package(ZSTD).ZstdCompressor().compress(data)
    return compressed


def _unzstd(data: memoryview, size_bytes_max: int) -> Iterator[Buffer]:
    zstandard = _package(ZSTD)
    try:
        sizes = _zstd_sizes(zstandard, data)
        if sizes.declared > size_bytes_max:
            raise _too_large(ZSTD, sizes.declared, size_bytes_max)
        if sizes.is_whole:  # the one case that needs no window beside the output
            yield _zstd_decompressor(zstandard).decompress(data)
            return
        if sizes.window > _ZSTD_WINDOW_FREE:  # as much of it is used as comes out
            size_bytes_max = min(size_bytes_max, (size_bytes_max + _ZSTD_WINDOW_FREE) // 2)
        if sizes.frame_count == 1 and 0 < sizes.most <= min(size_bytes_max, _PIECE):
            yield _zstd_decompressor(zstandard).decompress(data, max_output_size=sizes.most)
            return
        yield from _zstd_stream(zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True), size_bytes_max)
    except zstandard.ZstdError as error:
        raise _bad(ZSTD, f"{len(data)} bytes: {error}") from None


def _zstd_decompressor(zstandard: Any) -> Any:
    """The decompressor of this thread, for whole frames: to make one takes as long as a batch."""
    found = getattr(_of_this_thread, "zstd", None)
    if found is None:
        found = _of_this_thread.zstd = zstandard.ZstdDecompressor()
    return found


def _zstd_stream(stream: Any, size_bytes_max: int) -> Iterator[Buffer]:
    count = 0
    while piece := stream.read(min(_PIECE, size_bytes_max + 1 - count)):
        count += len(piece)
        if count > size_bytes_max:
            raise _too_large(ZSTD, None, size_bytes_max)
        yield piece


class _ZstdSizes(NamedTuple):
    frame_count: int
    declared_count: int  # frames that say how much they hold
    declared: int  # what those say, together
    most: int  # bytes that can come out of all frames
    in_blocks: int  # by their blocks alone, whatever they say
    window: int  # the largest

    @property
    def is_whole(self) -> bool:
        """Whether it is decompressed at once."""
        return self.frame_count == self.declared_count == 1


def _zstd_known(data: memoryview) -> _ZstdSizes | None:
    """None: The stream is damaged, or the codec's package is not installed."""
    try:
        zstandard = _package(ZSTD)
        try:
            return _zstd_sizes(zstandard, data)
        except zstandard.ZstdError:
            return None
    except (InvalidBatch, CodecMissing):
        return None


def _zstd_sizes(zstandard: ModuleType, data: memoryview) -> _ZstdSizes:
    """Walk the block headers of all frames, without decompressing.

    Raises:
        InvalidBatch: A frame does not end within ``data``.
    """
    frame_count = declared_count = declared = most = total = window = at = 0
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
        window, total = max(window, frame.window_size), total + held
        if frame.content_size != zstandard.CONTENTSIZE_UNKNOWN:
            declared_count += 1
            declared += frame.content_size
            held = frame.content_size
        most += held
    if at > len(data):
        raise _truncated(ZSTD, len(data))
    return _ZstdSizes(frame_count, declared_count, declared, most, total, window)


_COMPRESS = (_keep, _gzip, _snappy, _lz4, _zstd)
_PIECES = (_pass, _gunzip, _unsnappy, _unlz4, _unzstd)
