"""The C headers of each CPython that wheels are built for.

They come from a directory that the caller names, else from an interpreter on this machine, else from a package of Debian.
The headers of this machine serve every target, ``pyconfig.h`` among them: each target is a 64-bit Linux with the same byte order.
Between x86-64 and aarch64, and between glibc and musl, ``pyconfig.h`` differs only in macros without effect on the public headers.
"""

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from targets import SUITES, VERSIONS

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
MISSING = """\
The headers of CPython {version} are missing. Do one of these:
- Install CPython {version} with its headers, as python{version} on PATH or by pyenv.
- Name the directory of its Python.h: make wheel HEADERS={version}=DIRECTORY
- Build for other versions only: make wheel CPYTHON="{others}\""""


def collect(version: str, named: Path | None, directory: Path) -> Path:
    """Copy the headers of a version into a directory of their own below ``directory``.

    Raises:
        SystemExit: The headers are missing, or are those of another version.
    """
    source = named or installed(version) or from_debian(version, directory / "debian")
    if source is None:
        raise SystemExit(MISSING.format(version=version, others=" ".join(other for other in VERSIONS if other != version)))
    found = version_of(source)
    if found != version:
        raise SystemExit(f"{source} has {f'headers of CPython {found}' if found else 'no headers of CPython'}; use those of {version}")
    collected = directory / version
    shutil.copytree(source, collected)
    beside = source.parent / f"{platform.machine()}-linux-gnu" / source.name / "pyconfig.h"  # Debian's includes this one
    if beside.exists():
        shutil.copy(beside, collected)
    return collected


def version_of(directory: Path) -> str | None:
    """The version of the headers in a directory; None if there are none."""
    try:
        text = (directory / "patchlevel.h").read_text()
    except FileNotFoundError:
        return None
    return ".".join(re.findall(r"#define\s+PY_(?:MAJOR|MINOR)_VERSION\s+(\d+)", text))


def installed(version: str) -> Path | None:
    """The headers of a CPython on this machine."""
    python = interpreter(version)
    return include_of(python) if python else None


def interpreter(version: str) -> str | None:
    """The path of a CPython with headers on this machine: this one, ``python3.N`` on PATH, or pyenv's."""
    pyenv = sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")))
    candidates = [sys.executable, shutil.which(f"python{version}"), *pyenv]
    return next((path for path in candidates if path and has_headers(path, version)), None)


def has_headers(python: str, version: str) -> bool:
    include = include_of(python)
    return include is not None and version_of(include) == version


def include_of(python: str) -> Path | None:
    """Where the headers of an interpreter are, or would be; None if it does not start."""
    program = "import sysconfig; print(sysconfig.get_path('include'))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def from_debian(version: str, directory: Path) -> Path | None:
    """The headers in Debian's package ``libpython3.N-dev``, unpacked; None if this machine is no Debian, or Debian lacks the version.

    apt keeps its lists and its cache in the directory: the machine stays as it is.
    """
    suite = SUITES.get(version)
    if suite is None or not shutil.which("apt-get") or not Path(KEYS).exists():
        return None
    print(f"the headers of CPython {version} come from Debian {suite}", flush=True)
    here = directory / version
    (here / "lists" / "partial").mkdir(parents=True)
    (here / "sources.list").write_text(f"deb [signed-by={KEYS}] {mirror()} {suite} main\n")
    places = {"Etc::SourceList": here / "sources.list", "Etc::SourceParts": "/dev/null", "State::Lists": here / "lists", "Cache": here}
    apt = ["apt-get", "-qq", "-oAPT::Sandbox::User=root", *(f"-oDir::{name}={place}" for name, place in places.items())]
    for command in (["update"], ["download", f"libpython{version}-dev"]):
        subprocess.run([*apt, *command], check=True, cwd=here)
    (package,) = map(str, here.glob("*.deb"))
    subprocess.run(["dpkg-deb", "--extract", package, str(here / "root")], check=True)  # noqa: S607
    return here / "root" / "usr" / "include" / f"python{version}"


def mirror() -> str:
    """The mirror of this machine's Debian: it has the other suites, too."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return next(iter(done.stdout.splitlines()), "http://deb.debian.org/debian")
