"""The program of docs/how-to/exactly-once.md after a power cut that removed records it had copied.

The power cut is a copy of the directory from before those records.
"""

import contextlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import logdb
from support.how_to import DIRECTORY, fences


def pay(db: logdb.Database, *numbers: int) -> None:
    db.log("payments").append_many([json.dumps({"id": number, "cents": 250}).encode() for number in numbers])


def test_the_rows_of_lost_records_go_as_the_page_says(tmp_path: Path) -> None:
    def copied() -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "to_sqlite.py"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    (program,) = [fence.body for fence in fences("exactly-once") if fence.title == "to_sqlite.py"]
    (tmp_path / "to_sqlite.py").write_text(program.replace("timeout_ms=1000", "timeout_ms=50"), encoding="utf-8")
    with logdb.open(tmp_path / "events") as db:
        db.create_topic("payments", partitions=2)
        pay(db, 0, 1, 2)
        shutil.copytree(tmp_path / "events", tmp_path / "cut")
        pay(db, 3, 4)
        assert copied().stdout == "5 5\n"
    shutil.rmtree(tmp_path / "events")
    (tmp_path / "cut").rename(tmp_path / "events")
    for new in ((5,), (6, 7, 8)):  # the log is shorter than the position, and then longer
        with logdb.open(tmp_path / "events") as db:
            pay(db, *new)
        failed = copied()
        assert failed.returncode == 1
        assert "LogTruncated: " in failed.stderr
        assert "that epoch ends at 3," in failed.stderr
    page = (DIRECTORY / "exactly-once.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `LogTruncated`")]
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as ledger:
        statements = re.findall("`((?:DELETE|UPDATE) [^`]+)`", row)
        assert len(statements) == 2
        for statement in statements:
            ledger.execute(re.sub(r"\bE\b", "3", re.sub(r"\bP\b", "0", statement)))
        ledger.commit()
        assert copied().stdout == "7 7\n"
        assert ledger.execute("SELECT id FROM payments ORDER BY log_offset").fetchall() == [(n,) for n in (0, 1, 2, 5, 6, 7, 8)]
