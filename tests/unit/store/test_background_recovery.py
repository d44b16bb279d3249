import logdb
from support.power_cut import die


def test_logs_that_no_call_asks_for_are_recovered_in_the_background(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("t", partitions=5)
    for partition in range(5):
        db.log("t", partition).append_many([b"x"])
    die(db)
    with logdb.open(tmp_path / "db") as db:
        db._store.writer.recovery.join()
        assert len(db._store._state.logs) == 5
    with logdb.open(tmp_path / "db") as db:
        assert [db.log("t", partition).leader_epoch for partition in range(5)] == [1] * 5
