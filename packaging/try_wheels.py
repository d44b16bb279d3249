"""Tries the wheels in dist/, each in an environment without a compiler, and prints a table: where each ran, and which ran nowhere, and why.

    python packaging/try_wheels.py [--cpython 3.N …] [--target NAME …]

Debian has the environments. For glibc on this machine's processor: a root file system of a Debian with that CPython; if Debian lacks
the version, a venv of an interpreter on this machine. For aarch64: Debian's CPython under qemu. For musl: a CPython that is compiled
against musl from sources. In each, ``try_wheel.py`` runs.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import headers
from targets import ROOT, SUITES, TARGETS, VERSIONS, Target, tag_of

INSTALL = "{python} -m venv {venv} && {venv}/bin/pip install -q --disable-pip-version-check --only-binary :all: '{wheel}[cli]'"
SOURCES = Path(os.environ.get("LOGDB_CPYTHON", "/nonexistent"))  # of CPython, beside Debian's: tests/musl/try_wheel
TRY = f"{INSTALL} && {{venv}}/bin/python packaging/try_wheel.py"


class Environment(NamedTuple):
    """Where a wheel is tried.

    Attributes:
        name: What the table says.
        command: Run in this checkout; empty if there is no such environment, and the name says why.
        as_root: It needs root.
    """

    name: str
    command: tuple[str, ...]
    as_root: bool = True


def environment(version: str, target: Target, wheel: Path, scratch: Path) -> Environment:
    suite = SUITES.get(version)
    emulated = target.machine == "aarch64"
    if target.platform.startswith("musllinux"):
        if not suite and not list(SOURCES.glob(f"Python-{version}.*.tar.*")):
            return Environment(f"Debian has no sources of CPython {version}; LOGDB_CPYTHON names others", ())
        command = ("tests/musl/try_wheel", version, suite or "trixie", target.machine)
        return Environment(f"CPython compiled for musl{' (emulated)' if emulated else ''}", command, as_root=emulated)
    if suite and emulated:
        return Environment(f"Debian {suite} (emulated)", ("tests/aarch64/try_wheel", version, suite))
    if suite:
        command = TRY.format(python=f"python{version}", venv="~/try", wheel=wheel.relative_to(ROOT))
        return Environment(f"Debian {suite}", ("tests/debian/run", f"{suite}=python3-venv", command))
    python = headers.interpreter(version)
    if emulated or not python:
        return Environment(f"Debian has no CPython {version}", ())
    command = TRY.format(python=python, venv=scratch / version, wheel=wheel)
    return Environment(f"venv of this machine's CPython {version}", ("bash", "-c", command), as_root=False)


def tried(version: str, target: Target, scratch: Path) -> tuple[str, str]:
    """What the table says of a wheel: its result, and where or why."""
    tag = tag_of(version)
    wheel = next((ROOT / "dist").glob(f"logdb-*-{tag}-{tag}-{target.platform}.whl"), None)
    if wheel is None:
        return "missing", "make wheel builds it"
    where = environment(version, target, wheel, scratch)
    if not where.command:
        return "not tried", where.name
    if where.as_root and os.geteuid() != 0:
        return "not tried", f"{where.name} needs root"
    print(f"{wheel.name}: {where.name}", flush=True)
    done = subprocess.run(where.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    last = (done.stdout.splitlines() or [""])[-1]
    libc = "musl" if target.platform.startswith("musllinux") else "glibc"
    if last.startswith("SKIPPED"):
        return "not tried", last.partition(": ")[2]
    if done.returncode or not re.match(rf"logdb works: CPython {re.escape(version)}\.\d+, {target.machine}, {libc},", last):
        print(done.stdout, file=sys.stderr)
        return "FAILED", where.name
    return "works", where.name


def main() -> None:
    parser = argparse.ArgumentParser(description="Try the wheels in dist/.")
    parser.add_argument("--cpython", nargs="*", choices=VERSIONS, metavar="3.N", help="versions of CPython; all by default")
    parser.add_argument(
        "--target", nargs="+", choices=[target.platform for target in TARGETS], metavar="NAME", help="platforms; all by default"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logdb-try.") as scratch:
        rows = [
            (version, target.platform, *tried(version, target, Path(scratch)))
            for target in TARGETS
            for version in chosen.cpython or VERSIONS
            if not chosen.target or target.platform in chosen.target
        ]
    for version, platform, result, where in rows:
        print(f"{version:5} {platform:23} {result:9}  {where}")
    results = {result for _, _, result, _ in rows}
    raise SystemExit(bool(results & {"FAILED", "missing"}) or "works" not in results)


if __name__ == "__main__":
    main()
