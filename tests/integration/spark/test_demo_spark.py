"""The demo of Spark, on a few flights: it checks its own answers, and fails where they are wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

import logdb

DEMO = Path(__file__).parents[3] / "demo" / "flights_spark.py"

pytestmark = [pytest.mark.foreign]


def test_the_demo_runs(tmp_path):
    command = [sys.executable, str(DEMO), "--count", "20000", "--data-dir", str(tmp_path / "db"), "--lake", f"file://{tmp_path}/lake"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "plain Python agree on each." in " ".join(done.stdout.split())
    rows = parquet.read_table(tmp_path / "lake", columns=["flights"]).column("flights").to_pylist()
    assert sum(rows) == 20_000
    with logdb.open(tmp_path / "db", mode="r") as db:
        assert len(db.table("delays")) == len(rows)
