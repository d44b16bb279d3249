"""What each level runs is said in tables that name tests which exist."""

import re
from pathlib import Path

from support.levels import CHECK, FAULT, NOT_QUICK, OTHERS_TIMING, QUICK, is_named, leaves_out
from support.order import ORDER, SPREAD, share

TESTS = Path(__file__).parents[1]


def is_there(name):
    path, _, test = name.partition("[")[0].partition("::")
    if path.endswith("/"):
        return (TESTS / path).is_dir()
    return (TESTS / path).is_file() and (not test or re.search(rf"^(async )?def {test}\(", (TESTS / path).read_text("utf-8"), re.MULTILINE))


def test_each_name_is_that_of_a_test():
    assert [name for name in [*QUICK, *NOT_QUICK, *CHECK, *FAULT, *OTHERS_TIMING, *SPREAD, *ORDER] if not is_there(name)] == []


def test_what_may_run_twice_kills_nothing():
    assert [name for name in OTHERS_TIMING if re.search(r"\bkill\w*\(|SIGKILL", (TESTS / name).read_text("utf-8"))] == []


def test_what_is_named():
    names = ["unit/a/", "unit/test_b.py", "unit/test_c.py::test_one"]
    assert all(is_named(key, names) for key in ("unit/a/test_x.py::test_y", "unit/test_b.py::test_y", "unit/test_c.py::test_one[1]"))
    assert not any(
        is_named(key, names) for key in ("unit/ab/test_x.py::test_y", "unit/test_bc.py::test_y", "unit/test_c.py::test_one_more")
    )


def test_no_file_is_left_out_of_which_a_test_would_run():
    for level, files in {
        "quick": ["unit/test_levels.py"],
        "test": ["unit/test_levels.py", "crash/test_crash_lab.py"],
        "check": [
            "unit/store/check/test_repair.py",
            "integration/spark/test_stream.py",
            "crash/test_kill.py",
            "compat/test_spark_kafka.py",
        ],
        "fault": ["integration/test_many_partitions.py"],
    }.items():
        assert [path for path in files if leaves_out(level, path)] == []
    for level, path in (
        ("quick", "crash/test_kill.py"),
        ("test", "crash/test_kill.py"),
        ("test", "integration/spark/test_stream.py"),
        ("check", "unit/test_levels.py"),
        ("fault", "crash/test_kill.py"),
    ):
        assert leaves_out(level, path)
    marked = [path for path in (TESTS / "unit").rglob("test_*.py") if re.search(r"mark\.foreign", path.read_text("utf-8"))]
    assert marked == [], "make check would not see it"


def test_who_shares_a_worker():
    assert share("tests/unit/test_x.py::test_y[a::b]") == share("tests/unit/test_x.py::test_z") == "unit/test_x.py"
    assert share("tests/integration/spark/test_x.py::test_y") == share("tests/integration/spark/pipelines/test_z.py::test_y")
    assert (
        share("tests/compat/test_spark_kafka.py::test_y")
        == share("tests/integration/test_tutorial.py::test_z")
        != share("tests/compat/test_x.py::test_y")
    )
    assert share("tests/crash/test_x.py::test_y[1]") != share("tests/crash/test_x.py::test_y[2]")
