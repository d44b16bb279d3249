"""examples/fastapi_orders: an application of FastAPI, and its own tests."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_orders"


def test_its_suite_passes(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "shop")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "shop"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
