"""The programs and commands of the pages in docs/how-to/ work as they stand there.

A fence with a title is a file of that name. The ``sh`` fences are one session, in the order of the page. A ``text`` fence is what
the commands before it print; "…" stands for anything. A ``console`` fence is for another machine, and is not run.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import logdb
from support.how_to import DIRECTORY, fences
from support.ports import free_port
from support.postgres import open_to_its_user
from support.tools import needs

PAGES = sorted(page.stem for page in DIRECTORY.glob("*.md") if page.stem != "index")
LONG = ("boards", "job-queue", "totals-per-key", "upgrading")
PORTS = ("6379", "8080", "8081", "8082", "8083", "8443", "9092")
PROGRAMS = {
    "connect": "curl",
    "exactly-once": "psql",
    "full-disk": "unshare",
    "monitoring": "curl",
    "from-redis-streams": "redis-server",
    "tls-and-users": "openssl",
}
NOT_RUN = {"console", "properties", "text", "toml"}


@contextlib.contextmanager
def environment(page: str) -> Iterator[dict[str, str]]:
    """Variables for the session of a page; a PostgreSQL for the page that writes to one."""
    variables = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    variables = {name: value for name, value in variables.items() if not name.startswith("LOGDB_")}
    if page == "exactly-once":
        with open_to_its_user() as where:
            yield variables | {"SHOP": where}
    else:
        yield variables


def may_mount() -> bool:
    """Whether a command gets a mount namespace of its own; some systems give one to root alone."""
    return subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True).returncode == 0


def run(commands: str, directory: Path, variables: dict[str, str]) -> str:
    """What a session prints, stderr too; every process of it is gone afterwards."""
    shell = ["bash", "-euo", "pipefail", "-c", commands]
    with (
        (directory / "printed").open("w+b") as printed,
        subprocess.Popen(
            shell, cwd=directory, env=variables, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, start_new_session=True
        ) as session,
    ):
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                session.wait(300)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session.pid, signal.SIGKILL)
        session.wait()
        text = (directory / "printed").read_text(encoding="utf-8")
        assert session.returncode == 0, text  # -9: it did not end
        return text


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=needs(PROGRAMS[page]) if page in PROGRAMS else ()) for page in PAGES if page not in LONG]
)
def test_a_page(page: str, tmp_path: Path) -> None:
    check(page, tmp_path)


@pytest.mark.parametrize("page", LONG)
def test_a_page_that_takes_long(page: str, tmp_path: Path) -> None:
    check(page, tmp_path)


def check(page: str, directory: Path) -> None:
    """Run the commands of a page, and look for the lines that it shows in what they print."""
    if page == "full-disk" and not may_mount():
        pytest.skip("the system gives no mount namespace to this user")
    ports = {port: str(free_port()) for port in PORTS}

    def moved(text: str) -> str:
        return re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: ports[found[0]], text)

    shown = [fence._replace(body=moved(fence.body)) for fence in fences(page)]
    for fence in shown:
        if fence.title:
            (directory / fence.title).write_text(fence.body, encoding="utf-8")
    commands = "\n".join(fence.body for fence in shown if (fence.language, fence.title) == ("sh", ""))
    with environment(page) as variables:
        printed = run(commands, directory, variables) if commands else ""
    at = 0
    for line in (line for fence in shown if fence.language == "text" for line in fence.body.splitlines() if line.strip()):
        pattern = ".*".join(map(re.escape, line.split("…")))
        found = re.compile(rf"^{pattern}$", re.MULTILINE).search(printed, at)
        assert found, f"not printed, or too early: {line}\n{printed}"
        at = found.end()


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_a_page_is_run(page: str) -> None:
    shown = fences(page)
    commands = "".join(fence.body for fence in shown if fence.language in {"sh", "bash"})
    imports = "".join(fence.body for fence in shown if fence.language == "python")
    for fence in shown:
        assert fence.title or fence.language in {"sh", *NOT_RUN}, f"a fence without a title: {fence.body}"
        is_called = re.search(rf"\b{re.escape(fence.title)}\b", commands) or f"from {Path(fence.title).stem} import" in imports
        is_used = fence.title == "conftest.py" or is_called
        assert fence.language != "python" or is_used, f"{fence.title} is not run"


def test_the_rules_and_the_table_name_metrics_that_there_are(tmp_path: Path) -> None:
    with (
        logdb.open(tmp_path) as db,
        logdb.serve(db, http="127.0.0.1:0") as server,
        urllib.request.urlopen(f"{server.addresses[0]}/metrics") as answer,
    ):
        known = set(re.findall(r"^# TYPE (\S+)", answer.read().decode(), re.MULTILINE))
    page = (DIRECTORY / "monitoring.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bkafka_\w+_\w+\b|\bkafka_brokers\b", page)) <= known


def test_each_alert_has_a_first_step() -> None:
    rules = yaml.safe_load((DIRECTORY.parents[1] / "deploy" / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    page = (DIRECTORY / "monitoring.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (Logdb\w+) \| .+ \| .+ \|$", page, re.MULTILINE) == [rule["alert"] for rule in rules]


@needs("systemd-analyze")
@pytest.mark.parametrize("page", ["backup", "boards"])
def test_systemd_takes_the_units(page: str, tmp_path: Path) -> None:
    units = [fence for fence in fences(page) if fence.language == "ini"]
    for unit in units:
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.body, flags=re.MULTILINE)
        (tmp_path / unit.title).write_text(text, encoding="utf-8")
    command = ["systemd-analyze", "verify", *(str(tmp_path / unit.title) for unit in units)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")
