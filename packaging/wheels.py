"""Builds the wheels of logdb: for glibc and musl, x86-64 and aarch64, and each CPython that is found.

    python packaging/wheels.py [--out dist] [--python PATH …] [--target NAME …]

Needs ``build``, ``ziglang`` and ``auditwheel``.  Zig compiles for an old glibc, for musl and for aarch64 on any Linux machine.
The headers come from the interpreters: ``--python``, else ``python3.11`` to ``python3.14`` on PATH and pyenv's.
Each wheel is checked: its tag, the symbols of glibc that it needs, and the files in it.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile  # type: ignore[import-untyped]  # auditwheel brings it

ROOT = Path(__file__).parents[1]
MINORS = range(11, 15)  # of CPython 3
MACHINES = {"x86_64": "x64", "aarch64": "AArch64"}  # names of pyelftools


class Target(NamedTuple):
    """A platform of wheels.

    Attributes:
        platform: Its tag in the name of a wheel.
        zig: What zig calls it.
        suffix: Of an extension module there, between "cpython-311-" and ".so".
    """

    platform: str
    zig: str
    suffix: str

    @property
    def machine(self) -> str:
        return self.suffix.split("-", maxsplit=1)[0]


TARGETS = tuple(
    Target(f"{platform}_{machine}", f"{machine}-linux-{zig}", f"{machine}-linux-{libc}")
    for platform, zig, libc in (("manylinux_2_17", "gnu.2.17", "gnu"), ("musllinux_1_2", "musl", "musl"))
    for machine in ("x86_64", "aarch64")
)


def interpreters() -> Iterator[tuple[str, str]]:
    """The name and the path of each CPython with headers."""
    for minor in MINORS:
        name = f"python3.{minor}"
        found = [shutil.which(name), *sorted(map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3")))]
        path = next((path for path in found if path and has_headers(path)), None)
        if path is None:
            print(f"no wheel for CPython 3.{minor}: {name} with its headers is not on PATH; --python names one", file=sys.stderr)
        else:
            yield name, path


def has_headers(python: str) -> bool:
    program = "import sysconfig, os, json; print(json.dumps(os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    return done.returncode == 0 and bool(json.loads(done.stdout))


def environment(python: str, directory: Path) -> str:
    """The Python of an environment with what compiles logdb for an interpreter."""
    subprocess.run([python, "-m", "venv", directory], check=True)
    inside = str(directory / "bin" / "python")
    packages = ("build", "setuptools>=77", "cffi>=1.17", "ziglang")
    subprocess.run([inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], check=True)
    return inside


def headers(python: str, target: Target, directory: Path) -> str:
    """The option by which zig finds the ``pyconfig.h`` of Debian's Python, which lies in a directory of the machine's name.

    The file is this machine's, for every target: they are all 64-bit Linux with the same byte order.
    """
    program = "import sys, sysconfig; print(sysconfig.get_config_var('MULTIARCH'), 'python%d.%d' % sys.version_info[:2])"
    multiarch, name = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    config = Path("/usr/include") / multiarch / name / "pyconfig.h"
    if not config.exists():
        return ""
    seen = directory / "headers" / f"{target.machine}-linux-gnu" / name
    seen.mkdir(parents=True, exist_ok=True)
    shutil.copy(config, seen)
    return f"-I{directory / 'headers'}"


def compilers(python: str, target: Target, directory: Path) -> dict[str, str]:
    """The variables by which setuptools compiles for a target."""
    compiler = directory / f"cc-{target.platform}"
    compiler.write_text(f'#!/bin/sh\nexec "{python}" -m ziglang cc -target {target.zig} "$@"\n')
    compiler.chmod(0o755)
    version = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:2], sep='')"], check=True, capture_output=True, text=True)
    return {
        "CC": str(compiler),
        "LDSHARED": f"{compiler} -shared",
        "CFLAGS": f"-O2 -g0 {headers(python, target, directory)}",
        "LDFLAGS": "-Wl,-s",
        "_PYTHON_HOST_PLATFORM": f"linux-{target.machine}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version.stdout.strip()}-{target.suffix}.so",
        "ZIG_GLOBAL_CACHE_DIR": str(directory / "zig"),
    }


def built(python: str, target: Target, directory: Path, source: Path) -> Path:
    """Compile a wheel in a copy of the sources: no file of another target is in it."""
    tree, out = directory / "tree", directory / "wheel"
    for old in (tree, out):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(source, tree)
    subprocess.run(
        [python, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, f"-C--build-option=--plat-name={target.platform}", tree],
        check=True,
        env={**os.environ, **compilers(python, target, directory)},
        stdout=subprocess.DEVNULL,
    )
    (wheel,) = out.iterdir()
    return wheel


def check(wheel: Path, target: Target) -> None:
    """Raises SystemExit unless the modules of a wheel are the target's, and need no more of its libc than the tag says."""
    with zipfile.ZipFile(wheel) as archive:
        modules = {name: archive.read(name) for name in archive.namelist() if name.endswith(".so")}
    machines = {ELFFile(io.BytesIO(module)).get_machine_arch() for module in modules.values()}
    if len(modules) != 2 or machines != {MACHINES[target.machine]}:
        raise SystemExit(f"{wheel.name}: {sorted(modules)} for {machines}; two modules for {target.machine} are expected")
    if target.platform.startswith("musllinux"):  # auditwheel looks musl up on this machine, which may lack it
        needed = {library for module in modules.values() for library in libraries(module)}
        if needed != {"libc.so"}:
            raise SystemExit(f"{wheel.name}: it needs {sorted(needed)}; libc.so of musl is expected")
        return
    done = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=False)
    said = " ".join((done.stdout + done.stderr).split())
    if f'is consistent with the following platform tag: "{target.platform}"' not in said:
        raise SystemExit(f"{wheel.name}: {said} {target.platform} is expected")


def libraries(module: bytes) -> list[str]:
    """The shared libraries that a module needs."""
    dynamic = ELFFile(io.BytesIO(module)).get_section_by_name(".dynamic")
    return [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]


def sources(directory: Path) -> Path:
    """The source distribution, unpacked: what a wheel is made from has the files that users get."""
    subprocess.run([sys.executable, "-m", "build", "--sdist", "--outdir", directory / "sdist", ROOT], check=True, stdout=subprocess.DEVNULL)
    (archive,) = (directory / "sdist").iterdir()
    shutil.unpack_archive(archive, directory / "sources", filter="data")
    (source,) = (directory / "sources").iterdir()
    return source


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the wheels of logdb.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where wheels and the source distribution go  [dist]")
    parser.add_argument("--python", action="append", help="an interpreter with headers; several times for several")
    parser.add_argument("--target", action="append", choices=[target.platform for target in TARGETS], help="a platform; all by default")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    pythons = [(Path(path).name, path) for path in arguments.python] if arguments.python else list(interpreters())
    with tempfile.TemporaryDirectory(prefix="logdb-wheels.") as name:
        directory = Path(name)
        source = sources(directory)
        shutil.copy(next((directory / "sdist").iterdir()), arguments.out)
        for number, (_, path) in enumerate(pythons):
            python = environment(path, directory / f"python{number}")
            for target in TARGETS:
                if not arguments.target or target.platform in arguments.target:
                    wheel = built(python, target, directory, source)
                    check(wheel, target)
                    shutil.copy(wheel, arguments.out)
                    print(arguments.out / wheel.name, flush=True)


if __name__ == "__main__":
    main()
