import logdb


def test_a_write_that_is_being_synced_is_not_taken_for_seen(tmp_path, monkeypatch):
    """LMDB counts a write once its page is there, and lets readers see it once that is synced."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"x"] * 10)
        db.log("t").flush()
        with logdb.open(db.path, mode="r") as reader:
            log, catalogue = reader.log("t"), reader._store.catalogue
            number = catalogue.number()
            with monkeypatch.context() as patched:
                patched.setattr(catalogue, "number", lambda: number + 1)
                assert log.start_offset == 0
            db._store.writer.begin_at(db.log("t"), 5)
            assert catalogue.number() == number + 1
            assert log.start_offset == 5
