"""v2/options.py: patterns cannot hold the server up."""

import time

import pytest

from logdb_http_api.errors import ApiError
from logdb_http_api.v2 import options as v2_options

LONGEST_NAMES = ["a" * 249, "a" * 248 + "b", "ab" * 124]


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("trades", "trades", "trade"),
        (r"logs\..+", "logs.a", "logsXa"),
        ("(orders|trades)-eu", "trades-eu", "trades-us"),
        ("a|b", "b", "c"),
        (r"[a-z]+-\d{2,4}", "shard-12", "shard-1"),
        ("[(*+?]x{", "?x{", "xx{"),
        (r".*\.[^.]*", "a.b", "ab"),
    ],
)
def test_the_usual_patterns_are_taken(text: str, matching: str, other: str) -> None:
    pattern = v2_options.pattern(text)
    assert pattern.fullmatch(matching)
    assert not pattern.fullmatch(other)


@pytest.mark.parametrize("text", ["(", "[", "*", "", "x" * 250, "a**", "\\", "a\\", "[]", "(a){9}{9}", "\ud800", 7, None, ["a"]])
def test_what_is_no_pattern_is_refused(text: object) -> None:
    refused(text)


@pytest.mark.parametrize("text", [r"(a)\1", "(?=a)a", "(?<=a)b", "(?>a+)b", "((a{10}){10}){9}" * 15, r"\pL+" * 60])
def test_what_is_not_matched_in_linear_time_or_is_large_is_refused(text: str) -> None:
    refused(text)


def refused(text: object) -> None:
    with pytest.raises(ApiError, match="topic_pattern") as caught:
        v2_options.pattern(text)
    assert (caught.value.status, caught.value.code) == (422, 422)


@pytest.mark.parametrize(
    "text",
    [
        *(".*.*.*c", "(a|b|ab).*a*[ab]*c", "a{0,249}a{0,249}a{0,249}c", "(aa|a).+.+.+c", "a*?a*?a*?c"),
        *("{|(.+)+!|}", "(a+)+c", "(a*)*c", "(a|aa)+c", "(?:a+)+c", "a?" * 30 + "a" * 30 + "c", "(a|b)*a" + "(a|b)" * 40 + "c"),
        *("(((((.*)*)*)*)*)*c" * 10, "{0|(.+)+!|0}", "[{](a+)+c|(.*a.{30}){4}c"),
    ],
)
def test_the_worst_that_is_taken_ends_soon(text: str) -> None:
    """Each of them takes ``re`` longer than the world lasts, or would if it were a little longer."""
    pattern = v2_options.pattern(text)
    began = time.process_time()
    assert not any(pattern.fullmatch(name) for name in LONGEST_NAMES)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("text", "matching"), [("[^]]", "x"), ("[]]+", "]"), ("{}", "{}"), ("a{1", "a{1"), ("\n", "\n"), ("(?P<n>a)", "a"), (r"\p{L}", "a")]
)
def test_what_looks_odd_is_compiled(text: str, matching: str) -> None:
    assert v2_options.pattern(text).fullmatch(matching)
