"""crc32c.c: known answers, and every implementation against the others."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb import codec
from logdb._native import ffi, lib
from support import batches

# RFC 3720, appendix B.4, and the check value of the CRC catalogue.
KNOWN = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]

# Around the sizes at which the interleaved streams change over: 3 * 64, 3 * 512 and 3 * 4096 bytes.
SIZES = [*range(40), *(3 * block * times + more for block in (64, 512, 4096) for times in (1, 2) for more in (-9, -1, 0, 1, 7))]


def crc32c(data: bytes, crc: int = 0) -> int:
    return lib.logdb_crc32c(crc, data, len(data))


def select(portable: int) -> str:
    return ffi.string(lib.logdb_crc32c_select(portable)).decode()


@pytest.fixture(params=[0, 1], ids=["best", "portable"], autouse=True)
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    yield select(request.param)
    select(0)


def test_select_names_what_is_in_use(implementation: str, request: pytest.FixtureRequest) -> None:
    assert implementation in ({"portable"} if "portable" in request.node.name else {"sse4.2", "armv8", "portable"})


@pytest.mark.parametrize(("data", "crc"), KNOWN)
def test_known_answers(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc == batches.crc32c(data)


@pytest.mark.parametrize("size", SIZES)
def test_agrees_with_a_byte_at_a_time(size: int) -> None:
    data = bytes((at * 131 >> 3) & 255 for at in range(size + 3))
    for begin in range(3):  # unaligned buffers
        assert crc32c(data[begin : begin + size]) == batches.crc32c(data[begin : begin + size])


def test_continues() -> None:
    data = bytes(range(256)) * 100
    for cut in (0, 1, 8, 191, 192, 12_288, len(data)):
        assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)


@given(data=st.binary(max_size=2_000), crc=st.integers(0, 2**32 - 1))
def test_any_bytes_from_any_state(data: bytes, crc: int) -> None:
    for portable in (0, 1):
        select(portable)
        assert crc32c(data, crc) == batches.crc32c(data, crc)


@pytest.mark.parametrize("size", [0, 9, (1 << 16) - 1, 1 << 16, 1 << 17])
def test_that_of_the_library_agrees(size: int) -> None:
    data = bytes((at * 131 >> 3) & 255 for at in range(size))
    assert codec.crc32c(data) == codec.crc32c(memoryview(bytearray(data))) == crc32c(data)
    assert codec.crc32c(data[size // 2 :], codec.crc32c(data[: size // 2])) == crc32c(data)


def test_that_of_the_library_takes_bytes_and_a_number() -> None:
    for wrong in ((), ("text",), (None,), (b"", "1"), (b"", -1), (b"", 1, 2)):
        with pytest.raises((TypeError, OverflowError)):
            codec.crc32c(*wrong)  # type: ignore[arg-type]


def test_every_bit_counts() -> None:
    data = bytearray(4 * 4096 * 3)
    whole = crc32c(bytes(data))
    for bit in range(0, 8 * len(data), 1009):
        data[bit >> 3] ^= 1 << (bit & 7)
        assert crc32c(bytes(data)) != whole
        data[bit >> 3] ^= 1 << (bit & 7)
