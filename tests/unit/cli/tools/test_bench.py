import os


def test_a_quick_bench_leaves_nothing_behind(logdb_command, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    results = logdb_command.json("bench", "-n", "2000", "-s", "10", "--scratch", str(scratch))
    assert [result["records"] for result in results[:2]] == [2000, 2000]
    assert results[-1]["records"] == 2000
    assert all(result["seconds"] > 0 and result["size_bytes"] == result["records"] * 26 for result in results)
    assert os.listdir(scratch) == []
    assert "M RECORDS/S" in logdb_command.out("bench", "-n", "1000", "--scratch", str(scratch))
