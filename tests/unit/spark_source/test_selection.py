"""Which topics are read."""

import pytest

from logdb_spark_source.selection import Selection


@pytest.mark.parametrize(("pattern", "topic", "selected"), [("u.*", "cut", True), ("^u", "cut", False), ("^u$", "u", True)])
def test_a_pattern_is_found_anywhere_in_a_name(pattern, topic, selected):
    assert Selection(option="subscribePattern", pattern=pattern).names(topic) is selected
