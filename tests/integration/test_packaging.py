"""The sdist and the wheel, each installed into a clean environment of its own, and what `import logdb` brings with it."""

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys, logdb

with logdb.open(sys.argv[1]) as db:
    db.create_topic("t")
    log = db.log("t", partition=0)
    assert log.append_many([b"a", b"b"], keys=[b"k", None]) == range(2)
with logdb.open(sys.argv[1], mode="r") as db:
    print([(r.offset, r.key, r.value) for r in db.log("t", partition=0).read(0)])
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """What ``make`` puts at a path, made by the first of pytest-xdist's workers that needs it."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    path, done = base / name, base / f"{name}.done"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
            make(path)
            done.touch()
    return path


def build(path: Path) -> None:
    """As `make wheel` does it, but out of a copy without what earlier builds left (setuptools packs what an old egg-info lists).

    With the packages of this Python: pip makes an environment of its own for the build when it installs the sdist.
    """
    left = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "*.so", "_core.c")
    shutil.copytree(ROOT, path / "source", ignore=left)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", path, cwd=path / "source")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both distributions; the wheel comes out of the sdist, so the sdist is complete."""
    out = once(tmp_path_factory, "dist", build)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel}


@pytest.fixture(scope="module", params=["sdist", "wheel"])
def clean(request: pytest.FixtureRequest, built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with nothing in it but logdb, without extras."""

    def install(path: Path) -> None:
        venv.create(path, with_pip=True)
        run(path / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", built[request.param])

    return once(tmp_path_factory, f"venv-{request.param}", install) / "bin"


def test_appends_and_reads_in_a_clean_environment(clean: Path, tmp_path: Path) -> None:
    printed = run(clean / "python", "-c", PROGRAM, tmp_path / "db", cwd=tmp_path)
    assert printed.strip() == "[(0, b'k', b'a'), (1, None, b'b')]"


def test_the_command_without_its_extra_says_what_to_install(clean: Path) -> None:
    done = subprocess.run([str(clean / "logdb"), "topics"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'click>=8.1' 'rich>=13'" in done.stderr


def test_the_wheel_holds_the_library_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "logdb",
        "logdb_connect",
        "logdb_http_api",
        "logdb_iceberg",
        "logdb_kafka_api",
        "logdb_replication",
        "logdb_spark_source",
        "pyspark_logdb",
    }
    assert {"logdb/py.typed", "logdb/_native/_hot.pyi"} <= set(names)
    page = ROOT / "http_api" / "logdb_http_api" / "page"
    assert {f"logdb_http_api/page/{path.name}" for path in page.iterdir()} <= set(names), "what a browser loads, and its licenses"
    assert [name for name in names if name.startswith("logdb/_native/_hot.") and name.endswith(".so")]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_sdist_holds_the_c_sources(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    native = ROOT / "src" / "logdb" / "_native"
    sources = [path.relative_to(ROOT).as_posix() for path in native.iterdir() if path.suffix in {".c", ".h"} and path.name != "_core.c"]
    assert set(sources) <= names
    assert "LICENSE" in names


def test_importing_the_library_brings_nothing_heavy() -> None:
    """`inspect`, 6 ms, is there for the signatures that help shows."""
    heavy = {"aiohttp", "asyncio", "click", "dataclasses", "fastavro", "numpy", "pandas", "pyarrow", "random", "rich", "uuid"}
    heavy |= {
        "cramjam",
        "email",
        "http",
        "importlib.metadata",
        "ipaddress",
        "lz4",
        "msgspec",
        "multiprocessing",
        "socket",
        "ssl",
        "subprocess",
    }
    heavy |= {"tempfile", "urllib.parse", "urllib.request", "zstandard", "logdb.aio", "logdb.codec.parquet", "logdb.serde"}
    heavy |= {"logdb.broker", "logdb.coordinator", "logdb.client.consumer.consumer", "logdb.client.producer.producer", "logdb.log.cleaner"}
    told = f"import sys; before = set(sys.modules); import logdb; print(*sorted({heavy!r} & set(sys.modules) - before))"
    assert run(sys.executable, "-c", told, cwd=Path(os.sep)).split() == []
