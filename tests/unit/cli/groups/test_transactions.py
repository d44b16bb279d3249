import contextlib

import pytest

import logdb


def states(command, *args):
    return {info["transactional_id"]: info["state"] for info in command.json("transactions", *args)}


def test_none_yet(filled):
    result = filled("transactions", "list")
    assert (result.stdout, "no transactions yet" in result.stderr) == ("", True)
    assert filled.json("transactions") == []
    assert "unknown transactional id" in filled("transactions", "describe", "x", code=2).stderr


def test_list_and_describe(transacted):
    assert states(transacted) == {"done": "CompleteCommit", "left": "Ongoing"}
    assert states(transacted, "list", "--open") == {"left": "Ongoing"}
    assert transacted.out("transactions", "list").splitlines()[2].split()[:2] == ["left", "Ongoing"]
    (described,) = transacted.json("transactions", "describe", "left")
    assert described["partitions"] == ["three-1"]
    assert described["timeout_ms"] == 60_000
    assert described["start_ms"] > 1_700_000_000_000
    assert transacted.out("transactions", "describe").splitlines()[1].split()[0] == "done"
    line = transacted.out("transactions", "describe", "--transactional-id", "left").splitlines()[1]
    assert (line.split()[-1], line.split()[-2][:2]) == ("three-1", "20")


def test_abort_shows_first(transacted):
    result = transacted("transactions", "abort", "left")
    assert "'left' is Ongoing on 1 partition: would be aborted" in result.stderr
    assert states(transacted)["left"] == "Ongoing"
    (after,) = transacted.json("transactions", "abort", "left", "--yes")["transactions"]
    assert (after["state"], after["partitions"]) == ("CompleteAbort", [])
    with logdb.open(transacted.data_dir, mode="r") as db:
        log = db.log("three", 1)
        assert log.last_stable_offset == log.end_offset
        assert b"y" not in [record.value for record in log.read(0, isolation_level="read_committed")]


@pytest.mark.local
def test_in_a_running_process(filled):
    with filled.open() as db, contextlib.suppress(ZeroDivisionError), db.transaction("live") as tx:
        tx.send("one", b"x")
        tx.flush()
        assert states(filled) == {"live": "Ongoing"}
        assert "open for writing" in filled("transactions", "abort", "live", "--yes", code=2).stderr
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("args", "words"), [(["abort"], "which"), (["abort", "done"], "nothing to abort"), (["abort", "nosuch"], "unknown")]
)
def test_refused(transacted, args, words):
    assert words in transacted("transactions", *args, code=2).stderr
