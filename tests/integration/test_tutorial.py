"""docs/tutorial.md, as a reader goes through it: its files are written, its commands run, and they print what the page shows."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from support.ports import free_port
from support.tools import needs

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r'^```(sh|text|python)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
PORTS = ("8080", "9092", "8081", "8082", "8083")


def session_of(page: str) -> str:
    """The shell session of a page; the tests have the packages that its ``pip install`` names."""
    lines = []
    for language, title, content in BLOCK.findall(page):
        if title:
            lines.append(f"cat > {title} <<'END_OF_FILE'\n{content}END_OF_FILE\n")
        elif language == "sh" and "pip install" not in content:
            lines.append(content)
    return "".join(lines)


@needs("curl")
def test_the_tutorial(tmp_path: Path) -> None:
    ports = {port: str(free_port()) for port in PORTS}
    session = re.sub("|".join(PORTS), lambda found: ports[found[0]], session_of(PAGE))
    env = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    shell = ["bash", "-euo", "pipefail", "-c", session]
    with subprocess.Popen(shell, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as running:
        try:
            out, err = running.communicate(timeout=600)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, (out.decode(), err.decode())
    left = out.decode()
    for shown in [content for language, _, content in BLOCK.findall(PAGE) if language == "text"]:
        before, found, left = left.partition(shown)
        assert found, f"{shown}\n-- is not printed after what the page shows before it, but:\n{before}"
