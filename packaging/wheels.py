"""Builds the wheels of logdb: for glibc and musl, x86-64 and aarch64, and CPython 3.11 to 3.14.

    python packaging/wheels.py [--out dist] [--cpython 3.N …] [--target NAME …] [--headers 3.N=DIRECTORY …]

Zig compiles for an old glibc, for musl and for aarch64 on any Linux machine. Of a CPython, its headers are enough (``headers.py``):
this Python runs setuptools for all of them. auditwheel checks each wheel: its tag, the libraries and the symbols that it needs.
The packages in ``requirements.txt`` must be installed.
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
from pathlib import Path

import headers
from elftools.elf.elffile import ELFFile  # type: ignore[import-untyped]  # auditwheel brings it
from targets import ROOT, TARGETS, VERSIONS, Target, tag_of

MACHINES = {"x86_64": "x64", "aarch64": "AArch64"}  # names of pyelftools


def compilers(version: str, included: Path, target: Target, directory: Path) -> dict[str, str]:
    """The variables by which setuptools compiles for a CPython on a target.

    CFLAGS stand before the headers of the Python that runs setuptools: those of the target are found first.
    """
    compiler = directory / f"cc-{target.platform}"
    compiler.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang cc -target {target.zig} "$@"\n')
    compiler.chmod(0o755)
    return {
        "CC": str(compiler),
        "LDSHARED": f"{compiler} -shared",
        "CFLAGS": f"-O2 -g0 -I{included}",
        "LDFLAGS": "-Wl,-s",
        "_PYTHON_HOST_PLATFORM": f"linux-{target.machine}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version.replace('.', '')}-{target.suffix}.so",
        "ZIG_GLOBAL_CACHE_DIR": str(directory / "zig"),
    }


def built(version: str, included: Path, target: Target, directory: Path, source: Path) -> Path:
    """Compile a wheel in a copy of the sources: no file of another target is in it."""
    tree, out = directory / "tree", directory / "wheel"
    for old in (tree, out):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(source, tree)
    variables = {**os.environ, **compilers(version, included, target, directory)}
    run("build", "--wheel", "--no-isolation", "--outdir", out, f"-C--build-option=--plat-name={target.platform}", tree, env=variables)
    (wheel,) = out.iterdir()
    tag = tag_of(version)
    run("wheel", "tags", "--remove", f"--python-tag={tag}", f"--abi-tag={tag}", wheel)  # instead of this Python's
    (wheel,) = out.iterdir()
    return wheel


def run(module: str, *arguments: str | Path, env: dict[str, str] | None = None) -> None:
    """Run a module of this Python quietly; what it said is shown if it fails."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{' '.join(map(str, command))} ended with {done.returncode}")


def check(wheel: Path, version: str, target: Target, directory: Path) -> None:
    """Raises SystemExit unless the modules of a wheel are the target's, and need no more of its libc than the tag says."""
    with zipfile.ZipFile(wheel) as archive:
        modules = {name: archive.read(name) for name in archive.namelist() if name.endswith(".so")}
    expected = {f"logdb/_native/_hot.cpython-{version.replace('.', '')}-{target.suffix}.so", "logdb/_native/_core.abi3.so"}
    machines = {ELFFile(io.BytesIO(module)).get_machine_arch() for module in modules.values()}
    if modules.keys() != expected or machines != {MACHINES[target.machine]}:
        raise SystemExit(f"{wheel.name}: {sorted(modules)} for {machines}; {sorted(expected)} for {target.machine} are expected")
    empty = directory / "empty"  # this machine's libc.so is no library of musl
    empty.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "auditwheel", "show", "--json", f"--ldpaths={empty}", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{wheel.name}: {done.stderr}")
    said = json.loads(done.stdout)
    libraries = {"libc.so": None} if target.platform.startswith("musllinux") else {}  # Alpine calls it libc.musl-….so.1: musl takes both
    if said["sym_tag"] != target.platform or said["external_libs"] != libraries or said["unsupported_isa"]:
        raise SystemExit(f"{wheel.name}: auditwheel says {said}; {target.platform} is expected")


def sources(directory: Path) -> Path:
    """The source distribution, unpacked: what a wheel is made from has the files that users get."""
    run("build", "--sdist", "--no-isolation", "--outdir", directory / "sdist", ROOT)
    (archive,) = (directory / "sdist").iterdir()
    shutil.unpack_archive(archive, directory / "sources", filter="data")
    (source,) = (directory / "sources").iterdir()
    return source


def named(text: str) -> tuple[str, Path]:
    """A version and its headers, as ``--headers`` names them."""
    version, _, path = text.partition("=")
    if version not in VERSIONS or not path:
        raise argparse.ArgumentTypeError(f"{text!r} must be VERSION=DIRECTORY, such as 3.14=/usr/include/python3.14")
    return version, Path(path).absolute()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build the wheels of logdb.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where wheels and the source distribution go  [dist]")
    parser.add_argument("--cpython", nargs="*", choices=VERSIONS, metavar="3.N", help="versions of CPython; all by default")
    parser.add_argument(
        "--target", nargs="+", choices=[target.platform for target in TARGETS], metavar="NAME", help="platforms; all by default"
    )
    parser.add_argument("--headers", nargs="*", type=named, default=[], metavar="VERSION=DIRECTORY", help="where a version's Python.h is")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    versions = chosen.cpython or VERSIONS
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="logdb-wheels.") as name:
        directory = Path(name)
        given = dict(chosen.headers)
        included = {version: headers.collect(version, given.get(version), directory / "headers") for version in versions}
        source = sources(directory)
        shutil.copy(next((directory / "sdist").iterdir()), chosen.out)
        for version in versions:
            for target in TARGETS:
                if not chosen.target or target.platform in chosen.target:
                    wheel = built(version, included[version], target, directory, source)
                    check(wheel, version, target, directory)
                    shutil.copy(wheel, chosen.out)
                    print(chosen.out / wheel.name, flush=True)


if __name__ == "__main__":
    main()
