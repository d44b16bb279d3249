"""What README.md shows works as it stands there, in the order in which it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_python_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for program in blocks("python"):
        exec(compile(program, "README.md", "exec"), namespace)
    assert capsys.readouterr().out.endswith("b'100'\n")


def test_the_shell_example(tmp_path: Path) -> None:
    (commands,) = [block for block in blocks("sh") if "logdb produce" in block]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    shell = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(shell, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sum(line.strip().isdigit() for line in done.stdout.splitlines()) >= 5


def test_every_linked_page_is_there() -> None:
    root = Path(__file__).parents[2]
    for page in [root / "README.md", root / "ARCHITECTURE.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page} links to {target}"
