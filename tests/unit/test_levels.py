"""What each level runs is said in tables that name tests which exist."""

import re
from pathlib import Path

import pytest

from support.levels import CHECK, NOT_QUICK, QUICK, is_named
from support.order import ORDER, SPREAD, share

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("name", [*QUICK, *NOT_QUICK, *CHECK, *SPREAD, *ORDER])
def test_each_name_is_that_of_a_test(name):
    path, _, test = name.partition("::")
    assert (TESTS / path).is_dir() if path.endswith("/") else (TESTS / path).is_file()
    assert not test or re.search(rf"^(async )?def {test}\(", (TESTS / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_what_is_named():
    names = ["unit/a/", "unit/test_b.py", "unit/test_c.py::test_one"]
    assert all(is_named(key, names) for key in ("unit/a/test_x.py::test_y", "unit/test_b.py::test_y", "unit/test_c.py::test_one[1]"))
    assert not any(
        is_named(key, names) for key in ("unit/ab/test_x.py::test_y", "unit/test_bc.py::test_y", "unit/test_c.py::test_one_more")
    )


def test_who_shares_a_worker():
    assert share("tests/unit/test_x.py::test_y[a::b]") == share("tests/unit/test_x.py::test_z") == "unit/test_x.py"
    assert share("tests/integration/spark/test_x.py::test_y") == share("tests/integration/spark/pipelines/test_z.py::test_y")
    assert share("tests/crash/test_x.py::test_y[1]") != share("tests/crash/test_x.py::test_y[2]")
