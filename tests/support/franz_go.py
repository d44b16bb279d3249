"""The Go program with franz-go beside tests/integration/kafka, compiled; Go keeps what it has compiled in its own cache."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "integration" / "kafka" / "franz_go"


def franz_go(directory: Path) -> list[Path]:
    """The command of the program, once it is compiled into ``directory``."""
    fetched(["go", "mod", "download", "-modcacherw"], SOURCE)
    built = subprocess.run(["go", "build", "-o", directory / "program", "."], capture_output=True, text=True, timeout=300, cwd=SOURCE)
    assert built.returncode == 0, built.stderr
    return [directory / "program"]


def fetched(command: list[str], directory: Path) -> None:
    """Skip without the tool, or where it fetches nothing: the network is out of reach, or Go is older than go.mod says."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=directory)
    if done.returncode:
        pytest.skip(f"{command[0]}: {(done.stderr.strip() or done.stdout.strip())[-300:]}")
