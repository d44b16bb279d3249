"""The programs in packaging/: wheels are built with the headers of their CPython, or not at all; each is tried, or a table says why not."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PACKAGING = Path(__file__).parents[2] / "packaging"


@pytest.fixture
def imported(monkeypatch):
    """Imports a program's module; no other test finds it."""
    monkeypatch.syspath_prepend(str(PACKAGING))
    yield importlib.import_module
    for path in PACKAGING.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def headers(imported) -> ModuleType:
    return imported("headers")


@pytest.fixture
def try_wheels(imported, monkeypatch, tmp_path) -> ModuleType:
    module = imported("try_wheels")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "dist").mkdir()
    for version in module.VERSIONS:
        for target in module.TARGETS:
            tag = module.tag_of(version)
            (tmp_path / "dist" / f"logdb-0.1.0-{tag}-{tag}-{target.platform}.whl").touch()
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    return module


def table(try_wheels, monkeypatch, capsys, *arguments: str) -> tuple[int, list[list[str]]]:
    """The exit code, and the rows: version, platform and the rest."""
    monkeypatch.setattr(sys, "argv", ["try_wheels", *arguments])
    with pytest.raises(SystemExit) as ended:
        try_wheels.main()
    rows = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines() if line.startswith("3.")]
    return int(ended.value.code), rows


def says(monkeypatch, try_wheels, line: str, code: int = 0) -> None:
    """Each environment prints this line; {version}, {machine} and {libc} are those of the wheel."""

    def run(command, **_):
        name = " ".join(map(str, command))
        version = next(version for version in try_wheels.VERSIONS if version in name or try_wheels.tag_of(version) in name)
        facts = {"version": version, "machine": "aarch64" if "aarch64" in name else "x86_64", "libc": "musl" if "musl" in name else "glibc"}
        return subprocess.CompletedProcess(command, code, stdout=line.format(**facts))

    monkeypatch.setattr(try_wheels.subprocess, "run", run)


def make(directory: Path, version: str) -> Path:
    major, minor = version.split(".")
    directory.mkdir(parents=True)
    (directory / "patchlevel.h").write_text(f"#define PY_MAJOR_VERSION\t{major}\n#define PY_MINOR_VERSION\t{minor}\n")
    (directory / "pyconfig.h").write_text("#include <x86_64-linux-gnu/python/pyconfig.h>\n")
    return directory


def test_missing_headers_end_the_build_and_say_what_to_do(headers, tmp_path, monkeypatch):
    for source in ("installed", "from_debian"):
        monkeypatch.setattr(headers, source, lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        headers.collect("3.12", None, tmp_path)
    assert "headers of CPython 3.12 are missing" in str(ended.value)
    assert "make wheel HEADERS=3.12=DIRECTORY" in str(ended.value)
    assert 'make wheel CPYTHON="3.11 3.13 3.14"' in str(ended.value)


def test_headers_of_another_version_end_the_build(headers, tmp_path):
    with pytest.raises(SystemExit, match=r"has headers of CPython 3\.13; use those of 3\.14"):
        headers.collect("3.14", make(tmp_path / "python", "3.13"), tmp_path / "out")


def test_a_directory_without_headers_ends_the_build(headers, tmp_path):
    with pytest.raises(SystemExit, match=r"has no headers of CPython; use those of 3\.14"):
        headers.collect("3.14", tmp_path, tmp_path / "out")


def test_an_interpreter_of_another_version_gives_no_headers(headers, tmp_path, monkeypatch):
    monkeypatch.setattr(headers, "include_of", lambda _: make(tmp_path / "python", "3.13"))
    assert headers.installed("3.14") is None


def test_debians_pyconfig_is_that_of_this_machine(headers, tmp_path, monkeypatch):
    """Debian's python3.14/pyconfig.h only includes the file of the machine; zig would not find it."""
    named = make(tmp_path / "include" / "python3.14", "3.14")
    monkeypatch.setattr(headers.platform, "machine", lambda: "aarch64")
    beside = tmp_path / "include" / "aarch64-linux-gnu" / "python3.14" / "pyconfig.h"
    beside.parent.mkdir(parents=True)
    beside.write_text("#define SIZEOF_LONG 8\n")
    collected = headers.collect("3.14", named, tmp_path / "out")
    assert headers.version_of(collected) == "3.14"
    assert (collected / "pyconfig.h").read_text() == "#define SIZEOF_LONG 8\n"


def test_each_wheel_has_a_row(try_wheels, monkeypatch, capsys):
    monkeypatch.setattr(try_wheels.headers, "interpreter", lambda _: "/opt/python3.12")
    says(monkeypatch, try_wheels, "logdb works: CPython {version}.1, {machine}, {libc}, …")
    code, rows = table(try_wheels, monkeypatch, capsys)
    assert code == 0
    assert len(rows) == 16
    untried = {(version, platform): rest for version, platform, rest in rows if not rest.startswith("works")}
    assert {version for version, _ in untried} == {"3.12"}, "Debian has the others"
    assert len(untried) == 3
    assert all("not tried  Debian has no" in rest for rest in untried.values())


def test_a_program_of_another_python_fails(try_wheels, monkeypatch, capsys):
    says(monkeypatch, try_wheels, "logdb works: CPython 3.11.2, x86_64, glibc, …")
    code, rows = table(try_wheels, monkeypatch, capsys, "--cpython", "3.11", "3.13", "--target", "manylinux_2_17_x86_64")
    assert code == 1
    assert [row[2].split()[0] for row in rows] == ["works", "FAILED"]


def test_an_environment_that_cannot_be_had_is_a_row_with_its_reason(try_wheels, monkeypatch, capsys):
    says(monkeypatch, try_wheels, "SKIPPED tests/debian/run trixie: debootstrap is not installed")
    code, rows = table(try_wheels, monkeypatch, capsys, "--cpython", "3.13", "--target", "manylinux_2_17_x86_64")
    assert rows == [["3.13", "manylinux_2_17_x86_64", "not tried  debootstrap is not installed"]]
    assert code == 1, "none was tried"


def test_a_wheel_that_was_not_built_fails(try_wheels, monkeypatch, capsys):
    for wheel in (try_wheels.ROOT / "dist").glob("*cp314*"):
        wheel.unlink()
    code, rows = table(try_wheels, monkeypatch, capsys, "--cpython", "3.14", "--target", "manylinux_2_17_x86_64")
    assert code == 1
    assert rows == [["3.14", "manylinux_2_17_x86_64", "missing    make wheel builds it"]]
