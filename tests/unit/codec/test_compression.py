"""Round trips, streams that other writers make, streams that lie, and bombs with the memory of the process measured."""

import gzip
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from logdb.codec import compression
from logdb.errors import CodecMissing, InvalidBatch
from logdb.model import COMPRESSION_TYPES

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
MIB = 1 << 20
COMPRESSED = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=COMPRESSION_TYPES[1:])
SAMPLE = b"".join(b"%d:" % (i * 7919) for i in range(30_000))  # 270 kB: several blocks of each codec


def xerial(*blocks: bytes, version: int = 1) -> bytes:
    head = b"\x82SNAPPY\0" + version.to_bytes(4, "big", signed=True) + (1).to_bytes(4, "big")
    return head + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def zstd_frame(*blocks: bytes, window_log: int = 20, content_size: int | None = None) -> bytes:
    """A frame by hand (RFC 8878): with a window descriptor, with or without content size, without checksum."""
    descriptor = 0 if content_size is None else 3 << 6
    size = b"" if content_size is None else content_size.to_bytes(8, "little")
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor, (window_log - 10) << 3]) + size + b"".join(blocks)


def zstd_block(kind: int, size: int, payload: bytes, *, last: bool) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + payload


def zstd_zeroes(count: int) -> bytes:
    """Blocks of 128 KiB of zeroes each, in 4 bytes."""
    return zstd_block(1, 128 << 10, b"\0", last=False) * (count - 1) + zstd_block(1, 128 << 10, b"\0", last=True)


# ---------------------------------------------------------------- round trips


@given(codec=st.integers(0, 4), data=st.binary(max_size=3000), repeat=st.integers(0, 60))
def test_what_went_in_comes_out(codec: int, data: bytes, repeat: int) -> None:
    data *= repeat
    assert compression.decompress(codec, compression.compress(codec, data), len(data)) == data


@given(codec=st.integers(0, 7), data=st.binary(max_size=300))
def test_noise_is_refused_or_read_but_never_another_error(codec: int, data: bytes) -> None:
    try:
        out = compression.decompress(codec, data, 10_000)
    except InvalidBatch:
        return
    assert len(out) <= 10_000


@given(codec=st.integers(1, 4), position=st.integers(0, 1 << 20), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_stays_in_bounds(codec: int, position: int, bit: int) -> None:
    stream = bytearray(compression.compress(codec, SAMPLE[:5000]))
    stream[position % len(stream)] ^= 1 << bit
    try:
        out = compression.decompress(codec, stream, 6000)
    except InvalidBatch:
        return
    assert len(out) <= 6000


@COMPRESSED
def test_buffers_of_every_kind(codec: int) -> None:
    stream = compression.compress(codec, memoryview(SAMPLE))
    for given_as in (bytes, bytearray, lambda b: memoryview(b"xx" + b)[2:]):
        assert compression.decompress(codec, given_as(stream), len(SAMPLE)) == SAMPLE


def test_equal_data_is_equal_bytes() -> None:
    for codec in range(5):
        assert compression.compress(codec, SAMPLE) == compression.compress(codec, SAMPLE)


# ---------------------------------------------------------------- what is written


def test_gzip_has_no_time() -> None:
    assert compression.compress(GZIP, b"x")[:8] == b"\x1f\x8b\x08\0\0\0\0\0"


def test_snappy_is_xerial_in_blocks_of_32_kib() -> None:
    stream = compression.compress(SNAPPY, SAMPLE[: (32 << 10) + 1])
    assert stream[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    first = int.from_bytes(stream[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(stream[20 : 20 + first])) == SAMPLE[: 32 << 10]
    assert bytes(cramjam.snappy.decompress_raw(stream[24 + first :])) == SAMPLE[32 << 10 : (32 << 10) + 1]


def test_lz4_is_what_kafka_reads() -> None:
    info = lz4.frame.get_frame_info(compression.compress(LZ4, SAMPLE))
    assert (info["block_size"], info["block_linked"], info["content_size"]) == (65536, False, 0)


def test_zstd_says_how_much_it_holds() -> None:
    assert zstandard.frame_content_size(compression.compress(ZSTD, SAMPLE)) == len(SAMPLE)


# ---------------------------------------------------------------- what others write


def test_gzip_members_in_a_row() -> None:
    assert compression.decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"


@pytest.mark.parametrize("version", [1, 0, 1 << 24], ids=["java", "none", "little-endian"])
def test_xerial_versions(version: int) -> None:
    assert compression.decompress(SNAPPY, xerial(raw_snappy(b"a"), raw_snappy(b"b"), version=version), 2) == b"ab"


def test_xerial_streams_in_a_row() -> None:
    assert compression.decompress(SNAPPY, xerial(raw_snappy(b"one ")) + xerial(raw_snappy(b"two")), 7) == b"one two"


def test_raw_snappy() -> None:
    assert compression.decompress(SNAPPY, raw_snappy(SAMPLE), len(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("extras", [False, True])
def test_lz4_frames(block_size: int, linked: bool, extras: bool) -> None:
    frame = lz4.frame.compress(
        SAMPLE, block_size=block_size, block_linked=linked, store_size=extras, content_checksum=extras, block_checksum=extras
    )
    assert compression.decompress(LZ4, frame, len(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("level", [1, 3, 19])
def test_zstd_streamed_without_content_size(level: int) -> None:
    stream = zstandard.ZstdCompressor(level=level).compressobj()
    frame = stream.compress(SAMPLE) + stream.flush()
    assert zstandard.frame_content_size(frame) == -1
    assert compression.decompress(ZSTD, frame, len(SAMPLE)) == SAMPLE
    with pytest.raises(InvalidBatch, match=f"at most {len(SAMPLE) - 1} bytes"):
        compression.decompress(ZSTD, frame, len(SAMPLE) - 1)


def test_zstd_window_of_128_mib() -> None:
    """What Java writes at level 22; more than it holds, so the memory is not taken."""
    frame = zstd_frame(zstd_zeroes(3), window_log=27)
    assert compression.decompress(ZSTD, frame, 3 << 17) == bytes(3 << 17)


def test_zstd_frames_in_a_row() -> None:
    one = zstandard.ZstdCompressor(write_checksum=True).compress(b"one ")
    skipped = b"\x5f\x2a\x4d\x18\x03\0\0\0abc"
    streamed = zstandard.ZstdCompressor().compressobj()
    two = streamed.compress(b"two") + streamed.flush()
    empty = zstd_frame(zstd_block(0, 0, b"", last=True))
    assert compression.decompress(ZSTD, one + skipped + two + empty, 7) == b"one two"
    assert compression.decompress(ZSTD, empty + skipped + empty + one, 4) == b"one "
    assert compression.decompress(ZSTD, empty, 0) == compression.decompress(ZSTD, skipped, 0) == b""


# ---------------------------------------------------------------- what is refused


@COMPRESSED
def test_every_truncation_is_refused(codec: int) -> None:
    stream = compression.compress(codec, SAMPLE[:40_000])
    block_ends = {16, 20 + int.from_bytes(stream[16:20], "big")} if codec == SNAPPY else set()  # a shorter stream, whole
    for size in {*range(40), *range(40, len(stream), 97), *range(len(stream) - 12, len(stream))} - block_ends:
        with pytest.raises(InvalidBatch):
            compression.decompress(codec, stream[:size], 40_000)


@COMPRESSED
def test_bytes_after_the_stream_are_refused(codec: int) -> None:
    stream = compression.compress(codec, b"value")
    for garbage in (b"\0", b"\0\0\0", b"garbage!"):
        with pytest.raises(InvalidBatch):
            compression.decompress(codec, stream + garbage, 100)


def test_lz4_frames_in_a_row_are_refused_because_java_stops_after_the_first() -> None:
    one = compression.compress(LZ4, b"one")
    with pytest.raises(InvalidBatch, match=f"ends at byte {len(one)} of {2 * len(one)}"):
        compression.decompress(LZ4, one + one, 100)


def test_wrong_checksums_are_refused() -> None:
    framed = bytearray(lz4.frame.compress(b"value" * 20, content_checksum=True))
    framed[-1] ^= 1
    header = bytearray(compression.compress(LZ4, b"value"))
    header[6] ^= 1
    zipped = bytearray(compression.compress(GZIP, b"value"))
    zipped[-5] ^= 1
    frame = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"value"))
    frame[-1] ^= 1
    for codec, stream in ((LZ4, framed), (LZ4, header), (GZIP, zipped), (ZSTD, frame)):
        with pytest.raises(InvalidBatch):
            compression.decompress(codec, stream, 1000)


def test_sizes_that_lie_are_refused() -> None:
    told = lz4.frame.compress(b"v" * 100, store_size=True)
    rest = told[15:]
    for size in (99, 101):
        head = bytearray(told[:14])
        head[6:14] = size.to_bytes(8, "little")
        with pytest.raises(InvalidBatch):  # the header's checksum, or the size, is wrong
            compression.decompress(LZ4, bytes(head) + told[14:15] + rest, 1000)
        with pytest.raises(InvalidBatch):
            compression.decompress(ZSTD, zstd_frame(zstd_block(0, 100, b"v" * 100, last=True), content_size=size), 1000)
        with pytest.raises(InvalidBatch):
            compression.decompress(SNAPPY, bytes([size]) + raw_snappy(b"v" * 100)[1:], 1000)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD], ids=COMPRESSION_TYPES)
def test_the_bound_is_exact(codec: int) -> None:
    stream = compression.compress(codec, SAMPLE)
    assert compression.decompress(codec, stream, len(SAMPLE)) == SAMPLE
    with pytest.raises(InvalidBatch, match=f"{COMPRESSION_TYPES[codec]}: at most {len(SAMPLE) - 1} bytes"):
        compression.decompress(codec, stream, len(SAMPLE) - 1)


def test_a_decoder_that_is_stuck_ends_in_an_error() -> None:
    with pytest.raises(InvalidBatch, match="gzip: the stream is stuck at byte 1"):
        list(compression._pull(GZIP, memoryview(b"xyz"), 1, 0, 10, lambda piece, room: (b"", 0, False)))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=COMPRESSION_TYPES[1:])
def test_pieces_are_bounded(codec: int) -> None:
    data = bytes(3 << 20)
    compressed = compression.compress(codec, data)
    if codec == ZSTD:  # as Kafka's clients write it, without the size; with it, it is one piece
        stream = zstandard.ZstdCompressor().compressobj()
        compressed = stream.compress(data) + stream.flush()
    pieces = list(compression.pieces(codec, compressed, len(data)))
    assert max(map(len, pieces)) <= 256 << 10
    assert b"".join(pieces) == data


def test_what_is_held_as_a_whole_is_known_by_the_headers_of_blocks() -> None:
    data = bytes(5 << 20)
    held = compression.held_bytes
    assert held(GZIP, compression.compress(GZIP, data)) == held(LZ4, compression.compress(LZ4, data)) == 0
    assert held(SNAPPY, compression.compress(SNAPPY, data)) == 32 << 10
    assert held(SNAPPY, raw_snappy(data)) == held(ZSTD, compression.compress(ZSTD, data)) == 5 << 20
    assert held(ZSTD, zstd_frame(zstd_zeroes(512), content_size=1)) == 64 << 20  # whatever it says itself
    unsaid = zstd_frame(zstd_zeroes(512))
    assert (held(ZSTD, unsaid), compression.expanded_bytes(ZSTD, unsaid)) == (1 << 20, 64 << 20)  # its window
    for damaged in (b"", b"x", compression.compress(ZSTD, data)[:-1]):
        assert held(ZSTD, damaged) == compression.expanded_bytes(ZSTD, damaged) == 0


def test_unknown_codecs() -> None:
    for codec in (-1, 5, 6, 7):
        with pytest.raises(InvalidBatch, match=f"codec {codec}: "):
            compression.decompress(codec, b"", 10)
        with pytest.raises(ValueError, match=f"codec {codec} "):
            compression.compress(codec, b"")


@pytest.mark.parametrize(("codec", "package"), [(SNAPPY, "cramjam"), (LZ4, "lz4"), (ZSTD, "zstandard")])
def test_a_missing_package_is_named(codec: int, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = compression.compress(codec, b"value")
    for name in (package, f"{package}.frame"):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (lambda: compression.compress(codec, b"value"), lambda: compression.decompress(codec, stream, 10)):
        with pytest.raises(CodecMissing) as caught:
            call()
        assert (caught.value.codec, caught.value.package) == (COMPRESSION_TYPES[codec], package)


def test_no_package_is_imported_before_it_is_needed() -> None:
    script = """if 1:
        import sys
        from logdb.codec import compression
        compression.decompress(1, compression.compress(1, b"x"), 1)
        assert not {"zstandard", "lz4", "cramjam"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", script], check=True)


# ---------------------------------------------------------------- bombs

BOUND = 24 * MIB
HELD = 192 * MIB
CONSTANT = 12 * MIB  # what the module promises

CHILD = """if 1:
    import sys
    from logdb.codec import compression
    from logdb.errors import InvalidBatch

    def peak():
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) << 10

    codec, bound = int(sys.argv[1]), int(sys.argv[2])
    stream = sys.stdin.buffer.read()
    compression.decompress(codec, compression.compress(codec, b"warm"), 4)
    before = peak()
    try:
        print(len(compression.decompress(codec, stream, bound)), peak() - before)
    except InvalidBatch as error:
        print("refused", peak() - before, error.reason)
"""


def decompress_measured(codec: int, stream: bytes, bound: int) -> tuple[str, int, str]:
    """What came of it in a process of its own: size or "refused", how far its resident memory grew, and why."""
    command = [sys.executable, "-c", CHILD, str(codec), str(bound)]
    done = subprocess.run(command, input=stream, stdout=subprocess.PIPE, check=True)
    result, growth, *reason = done.stdout.decode().split(maxsplit=2)
    return result, int(growth), "".join(reason)


def gzip_of_zeroes(size: int) -> bytes:
    stream = zlib.compressobj(level=1, wbits=31)
    return b"".join([*(stream.compress(bytes(MIB)) for _ in range(size // MIB)), stream.flush()])


def snappy_of_zeroes(size: int) -> bytes:
    return xerial(*[raw_snappy(bytes(64 << 10))] * (size >> 16))


def lz4_of_zeroes(size: int) -> bytes:
    one = lz4.frame.compress(bytes(4 * MIB), block_size=7, block_linked=False, store_size=False)
    return one[:7] + one[7:-4] * (size // (4 * MIB)) + one[-4:]


BOMBS = {
    "gzip": (GZIP, gzip_of_zeroes),
    "gzip-members": (GZIP, lambda size: gzip_of_zeroes(2 * MIB) * (size // (2 * MIB))),
    "snappy-xerial": (SNAPPY, snappy_of_zeroes),
    "snappy-raw": (SNAPPY, lambda size: raw_snappy(bytes(size))),
    "lz4": (LZ4, lz4_of_zeroes),
    "lz4-linked": (LZ4, lambda size: lz4.frame.compress(bytes(size), block_size=7, block_linked=True, store_size=True)),
    "zstd-told": (ZSTD, lambda size: zstd_frame(zstd_zeroes(size >> 17), content_size=size)),
    "zstd-untold": (ZSTD, lambda size: zstd_frame(zstd_zeroes(size >> 17), window_log=23)),
    "zstd-window": (ZSTD, lambda size: zstd_frame(zstd_zeroes(size >> 17), window_log=27)),
    "zstd-frames": (ZSTD, lambda size: zstd_frame(zstd_zeroes(16), window_log=23) * (size >> 21)),
}
LIES = {
    "snappy-4-gib": (SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 20, "there are 4294967295 bytes"),
    "snappy-many": (SNAPPY, xerial(*[b"\xff\xff\xff\x07" + b"\0" * 20] * 50), f"there are {50 * ((1 << 24) - 1)} bytes"),
    "lz4-2^62": (LZ4, lz4.frame.compress_begin(lz4.frame.create_compression_context(), source_size=1 << 62), f"there are {1 << 62} bytes"),
    "zstd-2^62": (ZSTD, zstd_frame(zstd_zeroes(1), content_size=1 << 62), f"there are {1 << 62} bytes"),
    "zstd-too-little": (ZSTD, zstd_frame(zstd_zeroes(HELD >> 17), content_size=8), "too small"),
    "zstd-window-too-large": (ZSTD, zstd_frame(zstd_zeroes(HELD >> 17), window_log=31), "too much memory"),
}
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")


@needs_proc
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_no_more_than_the_bound(name: str) -> None:
    codec, make = BOMBS[name]
    result, growth, reason = decompress_measured(codec, make(HELD), BOUND)
    assert result == "refused"
    # A large window counts towards the bound.
    assert f"at most {(BOUND + 8 * MIB) // 2 if name == 'zstd-window' else BOUND} bytes may be decompressed" in reason
    assert growth <= BOUND + CONSTANT


@needs_proc
@pytest.mark.parametrize("name", BOMBS)
def test_what_just_fits_takes_no_more_either(name: str) -> None:
    codec, make = BOMBS[name]
    fits = 14 * MIB if name == "zstd-window" else BOUND
    result, growth, _ = decompress_measured(codec, make(fits), BOUND)
    assert result == str(fits)
    assert growth <= BOUND + CONSTANT


@needs_proc
@pytest.mark.parametrize("name", LIES)
def test_a_lie_about_the_size_takes_nothing(name: str) -> None:
    codec, stream, why = LIES[name]
    result, growth, reason = decompress_measured(codec, stream, BOUND)
    assert (result, why in reason) == ("refused", True)
    assert growth <= MIB


@needs_proc
@pytest.mark.parametrize(
    ("codec", "stream"),
    [
        (GZIP, gzip.compress(b"") * 30_000),
        (SNAPPY, xerial(*[b"\0"] * 150_000)),
        (ZSTD, zstd_frame(zstd_block(0, 0, b"", last=True)) * 80_000),
    ],
    ids=["gzip", "snappy", "zstd"],
)
def test_many_blocks_of_nothing_take_no_memory(codec: int, stream: bytes) -> None:
    result, growth, _ = decompress_measured(codec, stream, BOUND)
    assert result == "0"
    assert growth <= CONSTANT
