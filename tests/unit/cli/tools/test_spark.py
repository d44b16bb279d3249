import subprocess
import sys

import pytest


def test_a_program_that_is_not_there_is_refused_before_spark_is_started(logdb_command, tmp_path):
    refused = logdb_command("spark", "run", str(tmp_path / "missing.py"), code=2)
    assert "missing.py" in refused.stderr
    refused = logdb_command("spark", "run", "--conf", "novalue", __file__, code=2)
    assert "novalue" in refused.stderr


@pytest.mark.local
def test_the_command_knows_no_spark_before_it_runs_a_program():
    told = "import sys, logdb.cli.tools.spark; print(sorted({'pyspark', 'logdb_spark_source', 'pyarrow'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_spark_that_is_not_installed_is_named(logdb_command, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "pyspark.errors", raising=False)
    refused = logdb_command("spark", "run", __file__, code=1)
    assert "pip install 'pyspark>=4.2'" in refused.stderr
