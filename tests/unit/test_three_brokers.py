"""Each suite of a database or a server either runs on a cluster, or it is said why not."""

from pathlib import Path

from support.three_brokers import SUITES_LEFT_OUT, is_chosen

TESTS = Path(__file__).parents[1]
FOLDERS = ("examples", "integration", "integration/http", "integration/kafka")


def test_each_suite_has_been_decided_on():
    suites = {path.relative_to(TESTS).as_posix() for folder in FOLDERS for path in (TESTS / folder).glob("test_*.py")}
    assert {path for path in suites if not is_chosen(path)} == SUITES_LEFT_OUT.keys()
