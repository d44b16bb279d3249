import gzip
import os

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from logdb_http_api.door import encoding
from logdb_http_api.errors import ApiError

COMPRESS = {"gzip": gzip.compress, "zstd": zstandard.compress}


def undone(coding, pieces):
    decoder = encoding.decoder(coding)
    out = b"".join(piece for data in pieces for piece in decoder.feed(data))
    decoder.finish()
    return out


@given(st.sampled_from(["gzip", "zstd"]), st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 50))
def test_what_was_compressed_comes_out_in_whatever_pieces_it_comes(coding, parts, step):
    whole = b"".join(map(COMPRESS[coding], parts))
    assert undone(coding, [whole[at : at + step] for at in range(0, len(whole), step)]) == b"".join(parts)


@given(st.sampled_from(["gzip", "zstd"]), st.binary(min_size=1, max_size=300))
def test_any_bytes_are_of_the_coding_or_refused(coding, data):
    try:
        status = len(undone(coding, [data])) and 200
    except ApiError as error:
        status = error.status
    assert status in {0, 200, 400}


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_bomb_comes_out_in_small_pieces(coding):
    bomb = COMPRESS[coding](bytes(64 << 20))
    assert len(bomb) < 70_000
    sizes = [len(piece) for piece in encoding.decoder(coding).feed(bomb)]
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= 8 << 20


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_what_goes_out_can_be_undone(coding):
    data = os.urandom(1000) + bytes(10_000)
    assert undone(coding, [encoding.encode(coding, data)]) == data


@pytest.mark.parametrize("coding", ["", "identity", "IDENTITY"])
def test_nothing_to_undo(coding):
    assert encoding.decoder(coding) is None


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, zstd", "x"])
def test_a_coding_that_is_not_known(coding):
    with pytest.raises(ApiError) as caught:
        encoding.decoder(coding)
    assert (caught.value.status, caught.value.headers) == (415, {"Accept-Encoding": "gzip, zstd"})


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip", "gzip"), ("zstd", "zstd"), ("gzip,zstd", "zstd"), ("GZIP ; q=0.9, zstd;q=0.8", "gzip"), ("*", None), ("gzip;q=", "gzip"),
        ("gzip;q=nan", None), (",,;", None),
    ],
)  # fmt: skip
def test_what_is_chosen(accepted, chosen):
    assert encoding.negotiate(accepted) == chosen
