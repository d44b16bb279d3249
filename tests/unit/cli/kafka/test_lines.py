from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.cli.kafka.lines import Columns, LineFormat, Splitter


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5), st.sampled_from([b"\n", b"\0", b"ab"]))
def test_splitter_cuts_the_same_lines_wherever_chunks_end(data, cuts, delimiter):
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    splitter = Splitter(delimiter)
    lines = [line for begin, end in pairwise(bounds) for line in splitter.feed(data[begin:end])]
    whole = data.split(delimiter)
    assert lines + splitter.finish() == (whole if whole[-1] else whole[:-1])
    assert splitter.finish() == []


def test_plain_lines_are_values():
    lines = [b"a", b"", b"b:c"]
    assert LineFormat().parse(lines) == Columns(lines, None, None)


def test_key_separator_is_cut_at_its_first_place():
    assert LineFormat(key_separator=b"::").parse([b"k::v::w", b"::v", b"k::"]) == Columns([b"v::w", b"v", b""], [b"k", b"", b"k"], None)


def test_line_without_separator_is_refused_with_its_number():
    with pytest.raises(ValueError, match="line 12 has no key separator ':'"):
        LineFormat(key_separator=b":").parse([b"a:b", b"c"], 11)
    assert LineFormat(key_separator=b":", lenient=True).parse([b"c"]) == Columns([b"c"], [None], None)


def test_headers_before_key_and_value():
    line_format = LineFormat(parse_headers=True, key_separator=b":", headers=(("all", b"x"),))
    assert line_format.parse([b"h1:v1,h2:\tk:v", b"\tk:v"]) == Columns(
        [b"v", b"v"], [b"k", b"k"], [(("all", b"x"), ("h1", b"v1"), ("h2", b"")), (("all", b"x"),)]
    )


@pytest.mark.parametrize(
    ("line", "reason"), [(b"k:v", "headers delimiter"), (b"h\tv", "header 'h' has no separator"), (b"\xff:1\tv", "not UTF-8")]
)
def test_bad_headers_are_refused(line, reason):
    with pytest.raises(ValueError, match=f"line 1.*{reason}"):
        LineFormat(parse_headers=True).parse([line])


def test_null_marker_for_keys_values_and_headers():
    line_format = LineFormat(parse_headers=True, key_separator=b":", null_marker=b"NULL")
    assert line_format.parse([b"a:NULL\tNULL:v", b"NULL\tk:NULL"]) == Columns([b"v", None], [None, b"k"], [(("a", None),), ()])
    assert LineFormat(null_marker=b"").parse([b"", b"a"]) == Columns([None, b"a"], None, None)


def test_key_and_headers_of_every_record():
    line_format = LineFormat(key=b"k", headers=(("h", b"1"),))
    assert line_format.parse([b"a", b"b"]) == Columns([b"a", b"b"], [b"k", b"k"], [(("h", b"1"),)] * 2)
    assert LineFormat(key=b"k", key_separator=b":").parse([b"x:a"]).keys == [b"x"]
