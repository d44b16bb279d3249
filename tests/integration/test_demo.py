"""The demo, on a few flights: it checks its own answers, and fails where they are wrong."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "demo" / "flights.py"


def test_the_demo_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--count", "20000", "--data-dir", str(tmp_path / "flights")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "All three are equal." in done.stdout
    assert "bytes were given back" in done.stdout
    assert "no problem" in done.stdout
