"""v2_options.py: patterns that nobody can hold the server up with."""

import re
import time

import pytest

from logdb_http_api import v2_options
from logdb_http_api.errors import ApiError

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


@pytest.mark.parametrize(
    "text",
    [
        *("(a+)+b", "(a*)*", "(a|aa)+c", "(a|a)(a|a)", "a*a*a*a*b", "a?" * 30 + "a" * 30, r"(a)\1", "(?=a)a", "(a){9}{9}", "(?:a+)+"),
        *("(", "[", "*", "", "x" * 250, r"\p{L}", "a{99999999999999999999}", "a**"),
    ],
)
def test_what_may_take_forever_or_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        v2_options.pattern(text)
    assert (refused.value.status, refused.value.code) == (422, 422)


@pytest.mark.parametrize("text", [".*.*.*c", "(a|b|ab).*a*[ab]*c", "a{0,249}a{0,249}a{0,249}c", "(aa|a).+.+.+c", "a*?a*?a*?c"])
def test_the_worst_that_is_taken_ends_soon(text: str) -> None:
    pattern = v2_options.pattern(text)
    began = time.process_time()
    assert not any(pattern.fullmatch(name) for name in LONGEST_NAMES)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["\\", "a\\", "[]", "(?P<n>a)"])
def test_what_is_no_pattern_at_all_is_refused(text: str) -> None:
    with pytest.raises(ApiError):
        v2_options.pattern(text)


@pytest.mark.parametrize("text", ["[^]]", "[]]+", "a{,3}", "{}", "a{1", "\n", "\ud800"])
def test_what_looks_odd_is_compiled(text: str) -> None:
    assert isinstance(v2_options.pattern(text), re.Pattern)
