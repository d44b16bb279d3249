"""What README.md and the pages of docs/ show works as it stands there, in the order in which it stands there."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.ports import free_port
from support.tools import needs

ROOT = Path(__file__).parents[2]
RUN_ELSEWHERE = {
    "docs/reference/spark.md",  # by tests/integration/spark/test_docs.py
    "docs/tutorial.md",  # by tests/integration/test_tutorial.py
}
# page -> what its programs print last
SHOWS_PYTHON = {
    "README.md": "b'100'\n",
    "docs/reference/delivery.md": " 0\n",
    "docs/reference/http.md": "topic_created quotes 1\n",
    "docs/reference/kafka.md": "b'AAPL' b'188.2'\n",
    "docs/reference/security.md": "['orders']\n",
}
# page -> what its session with curl prints, among other things
SHOWS_CURL = {
    "README.md": ('"offset":0', '"payload":"{'),
    "docs/reference/http.md": ('["trades"]', '"offset":0', '"value":188.2', 'data: {"topic":"trades"', "188.2\n"),
    "docs/reference/rest-v2.md": (
        '"instance_id":"one"',
        '[{"topic":"quotes","key":"AAPL","value":{"price":188.2},"partition":0,"offset":0}]',
    ),
    "docs/reference/rest-v3.md": ('"partitions_count":2', '"partition_id":1,"offset":2,"timestamp"', '"latest_offset":3'),
}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", SHOWS_PYTHON)
def test_the_python_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for program in blocks(page, "python"):
        exec(compile(program, page, "exec"), namespace)
    assert capsys.readouterr().out.endswith(SHOWS_PYTHON[page])


def test_the_first_program_runs_as_often_as_one_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(compile(blocks("README.md", "python")[0], "README.md", "exec"), {})


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_no_page_shows_programs_that_are_not_run() -> None:
    run_here = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "how-to"]  # those: test_how_to.py
    pages = [ROOT / "README.md", *run_here, ROOT / "examples/README.md"]
    showing = {str(page.relative_to(ROOT)) for page in pages if "```python" in page.read_text(encoding="utf-8")}
    assert showing == SHOWS_PYTHON.keys() | RUN_ELSEWHERE


def test_the_shell_example(tmp_path: Path) -> None:
    (commands,) = [block for block in blocks("README.md", "sh") if "logdb produce" in block]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    shell = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(shell, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sum(line.strip().isdigit() for line in done.stdout.splitlines()) >= 5


@needs("curl")
@pytest.mark.parametrize("page", SHOWS_CURL)
def test_the_session_with_curl(page: str, tmp_path: Path) -> None:
    (commands,) = [block for block in blocks(page, "sh") if "curl" in block]
    commands = commands.replace("8080", str(free_port())).replace("9092", str(free_port()))
    shell = ["bash", "-euo", "pipefail", "-c", commands]
    env = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    with subprocess.Popen(shell, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as session:
        try:
            out, err = session.communicate(timeout=120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session.pid, signal.SIGKILL)
    assert session.returncode == 0, (out, err)
    for words in ('"status":"ready"', *SHOWS_CURL[page]):
        assert words.encode() in out


@needs("kcat")
def test_the_session_with_kcat(tmp_path: Path) -> None:
    (commands,) = [block for block in blocks("docs/reference/kafka.md", "sh") if "kcat" in block]
    port = free_port()
    shell = ["bash", "-euo", "pipefail", "-c", commands.replace("9092", str(port))]
    env = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    with subprocess.Popen(shell, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as session:
        try:
            out, err = session.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session.pid, signal.SIGKILL)
    assert (session.returncode, out) == (0, f"127.0.0.1:{port}\nhello\n".encode()), err


def test_every_linked_page_is_there() -> None:
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page} links to {target}"
