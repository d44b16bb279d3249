import pytest

from logdb_http_api.door.boundaries import Boundaries

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"5;a=b\r\n12345\r\n10\r\n0123456789abcdef\r\n0\r\nTrailer: x\r\n\r\n"


def followed(stream, cut, body_bytes):
    """What is known once a request has come in two parts: the first with its head, or more."""
    boundaries = Boundaries()
    boundaries.came(stream[:cut])
    if cut < len(HEAD):
        boundaries.came(stream[cut:])
        boundaries.begin(body_bytes)
    else:
        boundaries.begin(body_bytes)
        boundaries.came(stream[cut:])
    boundaries.end()
    return boundaries.has_more


@pytest.mark.parametrize(("body", "body_bytes"), [(b"", 0), (b"12345", 5), (CHUNKED, None), (b"0\r\n\r\n", None)])
def test_however_a_request_is_cut_its_end_is_known(body, body_bytes):
    stream = HEAD + body
    for cut in range(len(stream) + 1):
        assert not followed(stream, cut, body_bytes)
        assert followed(stream + b"G", cut, body_bytes)
        if cut < len(stream):
            assert followed(stream[:-1], min(cut, len(stream) - 1), body_bytes), (
                "it was answered before its end: where that is stays unknown"
            )


def test_requests_behind_one_another_are_told_apart():
    boundaries = Boundaries()
    boundaries.came(HEAD + b"123" + HEAD + CHUNKED + b"\r\n" + HEAD)
    for body_bytes, has_more in ((3, True), (None, True), (0, False)):
        boundaries.begin(body_bytes)
        boundaries.end()
        assert boundaries.has_more == has_more


@pytest.mark.parametrize("wrong", [b"xyz\r\n", b"\r\n", b"5" * 5000, b"-1\r\n", b"5\r\n1234567\r\n"])
def test_what_is_no_chunk(wrong):
    boundaries = Boundaries()
    boundaries.came(HEAD)
    boundaries.begin(None)
    with pytest.raises(ValueError, match="size of a chunk"):
        boundaries.came(wrong)


def test_what_is_kept_is_bounded():
    boundaries = Boundaries()
    for _ in range(100):
        boundaries.came(bytes(1000))
    assert boundaries.has_more
    assert len(boundaries._kept) < 100_000
    boundaries.begin(0)
    boundaries.end()
    assert boundaries.has_more, "the place is lost"
