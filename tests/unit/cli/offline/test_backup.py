import os

import pytest

import logdb
from support.power_cut import die, quiet


def values(path, topic="one"):
    with logdb.open(path, mode="r") as db:
        return [record.value for record in db.log(topic).read(0)]


def test_snapshot(filled, tmp_path):
    done = filled("snapshot", str(tmp_path / "monday"))
    assert done.stdout == ""
    assert f"snapshot {tmp_path / 'monday'}: 4 partitions, " in done.stderr
    assert values(tmp_path / "monday") == [b"%d" % n for n in range(100)]
    document = filled.json("snapshot", str(tmp_path / "tuesday"))
    assert (document["path"], document["partitions"]) == (str(tmp_path / "tuesday"), 4)
    assert document["written_bytes"] > 0
    assert filled.url or document["size_bytes"] >= document["written_bytes"], "what is linked is not written"
    assert "already exists" in filled("snapshot", str(tmp_path / "monday"), code=2).stderr


def test_backup_and_restore(filled, tmp_path):
    full, more, target = (str(tmp_path / name) for name in ("full", "more", "restored"))
    assert f"backup {full}: 4 partitions, " in filled("backup", full).stderr
    filled("produce", "one", stdin="another\n")
    done = filled("backup", more, "--base", full)
    assert "a restore needs" in done.stderr
    filled("restore", full, more, target)
    assert values(target) == [*(b"%d" % n for n in range(100)), b"another"]
    assert filled.json("restore", full, str(tmp_path / "first"))["partitions"] == 4
    assert len(values(tmp_path / "first")) == 100
    document = filled.json("backup", str(tmp_path / "third"), "--base", more)
    assert (document["base"], document["written_bytes"]) == (more, os.path.getsize(tmp_path / "third"))
    filled("verify")


@pytest.mark.local
def test_of_a_snapshot(filled, tmp_path):
    filled("snapshot", str(tmp_path / "monday"))
    filled("--data-dir", str(tmp_path / "monday"), "backup", str(tmp_path / "file"))
    filled("restore", str(tmp_path / "monday"), str(tmp_path / "a"))
    filled("restore", str(tmp_path / "file"), str(tmp_path / "b"))
    assert values(tmp_path / "a") == values(tmp_path / "b") == values(tmp_path / "monday")
    assert "restore" in filled("--data-dir", str(tmp_path / "monday"), "produce", "one", stdin="x\n", code=2).stderr
    filled("--data-dir", str(tmp_path / "monday"), "verify")


@pytest.mark.local
def test_what_is_refused(filled, tmp_path):
    full, more = str(tmp_path / "full"), str(tmp_path / "more")
    filled("backup", full)
    filled("backup", more, "--base", full)
    assert "already exists: a backup needs a new file" in filled("backup", full, code=2).stderr
    assert "does not fit" in filled("restore", more, str(tmp_path / "restored"), code=2).stderr
    with open(full, "r+b") as file:
        file.seek(200)
        file.write(b"\0\0\0\0")
    assert "damaged at byte" in filled("restore", full, str(tmp_path / "restored"), code=1).stderr
    assert not (tmp_path / "restored").exists()
    assert "does not exist" in filled("restore", "no such file", str(tmp_path / "restored"), code=2).stderr
    assert "'no such file' does not exist" in filled("backup", str(tmp_path / "other"), "--base", "no such file", code=2).stderr
    for verb in ("snapshot", "backup"):
        inside = os.path.join(filled.data_dir, "copy")
        assert "lies inside the database" in filled(verb, inside, code=2).stderr
        assert not os.path.exists(inside)
    with logdb.open(filled.data_dir):
        refusal = filled("snapshot", str(tmp_path / "other"), code=2).stderr
        assert "open for writing" in refusal
        assert "db.snapshot" in refusal
    assert not (tmp_path / "other").exists()


@pytest.mark.local
def test_a_backup_beside_the_writer(filled, tmp_path):
    with logdb.open(filled.data_dir) as db:
        db.log("one").append(b"while it is open", durability="os")
        db.flush(sync=False)
        filled("backup", str(tmp_path / "file"))
    filled("restore", str(tmp_path / "file"), str(tmp_path / "restored"))
    assert values(tmp_path / "restored")[-1] == b"while it is open"


@pytest.mark.local
def test_what_a_crash_left_is_recovered_first(filled, tmp_path):
    db = quiet(logdb.open(filled.data_dir))
    db.log("one").append(b"the last one", durability="fsync")
    die(db)
    for verb in ("backup", "snapshot"):
        filled(verb, str(tmp_path / verb))
        logdb.restore(tmp_path / verb, tmp_path / f"restored {verb}")
        assert values(tmp_path / f"restored {verb}")[-1] == b"the last one"
