import glob
import os
import shutil

import pytest

pytestmark = pytest.mark.local


def flip(path, position=70):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_verify_a_sound_database(filled):
    document = filled.json("verify")
    assert (document["ok"], document["problems"]) == (True, [])
    assert (document["checked"]["records"], document["checked"]["files"] > 0) == (130, True)
    result = filled("verify")
    assert (result.stdout, "no damage" in result.stderr) == ("", True)


def test_verify_damage(filled):
    path = f"{filled.data_dir}/one-0/{0:020d}.log"
    flip(path)
    document = filled.json("verify", code=1)
    assert document["ok"] is False
    assert any(problem["path"].endswith(f"one-0/{0:020d}.log") for problem in document["problems"])
    result = filled("verify", code=1)
    assert f"{0:020d}.log" in result.stdout
    assert "see 'logdb repair'" in result.stderr


def test_verify_and_repair_of_nothing(logdb_command):
    assert logdb_command.data_dir in logdb_command("verify", code=2).stderr
    assert logdb_command.data_dir in logdb_command("repair", code=2).stderr
    assert not os.path.exists(logdb_command.data_dir)


def test_repair_with_nothing_to_do(filled):
    assert "nothing to repair" in filled("repair").stderr
    assert filled.json("repair")["actions"] == []


def test_repair_of_a_lost_catalogue_shows_first(filled):
    shutil.rmtree(f"{filled.data_dir}/catalogue")
    result = filled("repair", code=1)
    assert result.stdout.count("would: ") >= 1
    assert "--execute" in result.stderr
    assert not glob.glob(f"{filled.data_dir}/catalogue/*")
    document = filled.json("repair", "--execute")
    assert document["executed"] is True
    assert document["actions"]
    assert [topic["topic"] for topic in filled.json("topics", "list")] == ["one", "three"]
    assert filled.out("consume", "one").splitlines() == [str(number) for number in range(100)]
    assert filled.json("verify")["ok"] is True
