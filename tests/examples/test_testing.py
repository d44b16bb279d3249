"""examples/testing: the tests of an application in Python, JavaScript and Go, each on a logdb of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.franz_go import fetched

EXAMPLES = Path(__file__).parents[2] / "examples" / "testing"
FOUND = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}


def run(command, directory, tmp_path):
    environment = {**FOUND, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [*tmp_path.glob("logdb-*")]
    return done.stdout


def test_pytest(tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "shop", ignore=shutil.ignore_patterns("node", "go"))
    assert "3 passed" in run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "shop"], tmp_path, tmp_path)


@pytest.mark.foreign
def test_npm(tmp_path):
    shutil.copytree(EXAMPLES / "node", tmp_path / "node")
    fetched(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], tmp_path / "node")
    assert "# pass 1" in run(["npm", "test"], tmp_path / "node", tmp_path)


@pytest.mark.foreign
def test_go(tmp_path):
    shutil.copytree(EXAMPLES / "go", tmp_path / "go")
    fetched(["go", "mod", "download", "-modcacherw"], tmp_path / "go")
    assert run(["go", "test", "./..."], tmp_path / "go", tmp_path).startswith("ok")
