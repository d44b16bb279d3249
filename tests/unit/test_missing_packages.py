"""Where a package of an extra is not installed, an error says what to install, and that works wherever logdb came from."""

import functools
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import logdb
from logdb import errors
from logdb.codec.compression import check_installed
from logdb_connect.errors import ConnectError

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def asked_for(hint: str) -> set[str]:
    return {word.strip("'") for word in hint.partition("pip install ")[2].split()}


@pytest.mark.parametrize("package", ["aiohttp", "click", "fastavro", "pyarrow", "pyiceberg", "pyspark", "rich"])
def test_the_hint_asks_for_what_the_extra_does(package: str) -> None:
    wanted = {words for extra in PROJECT["optional-dependencies"].values() for words in extra}
    error = errors.missing_package("a thing", f"{package}.part")
    assert str(error).startswith(f"a thing needs the package {package!r} of the extra ")
    assert asked_for(str(error)) <= wanted
    assert any(word.startswith(package) for word in asked_for(str(error)))
    assert error.name == f"{package}.part"


@pytest.mark.parametrize(("codec", "package"), [("snappy", "cramjam"), ("lz4", "lz4"), ("zstd", "zstandard")])
def test_the_hint_of_a_codec(codec: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (package, f"{package}.frame"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(errors.CodecMissing) as caught:
        check_installed(codec)
    assert asked_for(str(caught.value)) == {package}


def kafka_cluster() -> None:
    from logdb_connect.connectors.mirror.clusters import KafkaCluster

    KafkaCluster({"bootstrap.servers": "127.0.0.1:1"})


def database(url: str) -> None:
    from logdb_connect.connectors.sql.connection import engine_of

    engine_of({"connection.url": url}, writes=False)


def protobuf_schema() -> None:
    from logdb_connect.converters.protobuf_files import _run

    _run("a.proto", {})


@pytest.mark.parametrize(
    ("hidden", "call", "extra"),
    [
        ("confluent_kafka", kafka_cluster, "connect-kafka"),
        ("psycopg2", functools.partial(database, "postgresql://localhost/shop"), "connect-postgresql"),
        ("pymysql", functools.partial(database, "jdbc:mysql://localhost/shop"), "connect-mysql"),
        ("pymysql", functools.partial(database, "jdbc:mariadb://localhost/shop"), "connect-mysql"),
        ("grpc_tools", protobuf_schema, "connect-protobuf"),
    ],
)
def test_a_connector_names_its_extra(hidden: str, call: Callable[[], None], extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, hidden, None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConnectError, match=f"extra '{extra}'") as caught:
        call()
    asked = asked_for(str(caught.value))
    assert asked and asked <= set(PROJECT["optional-dependencies"][extra])


def test_a_lazy_frame_names_polars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.delitem(sys.modules, "logdb.codec.lazy_frame", raising=False)
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        with pytest.raises(ModuleNotFoundError, match="scan_polars needs the package 'polars': pip install polars"):
            db.scan_polars("t")


def test_no_hint_names_what_no_index_has() -> None:
    hints = re.compile(r"pip install '?logdb|\blogdb\[[a-z]")
    where = ("src", "http_api", "kafka_api", "replication", "connect", "spark_source", "iceberg", "docs", "examples", "demo", "deploy")
    sources = [*ROOT.glob("*.md"), *(path for name in where for path in (ROOT / name).rglob("*") if path.is_file())]
    texts = [path for path in sources if path.suffix not in (".pyc", ".so", ".o")]
    assert len(texts) > 600 and {".py", ".md", ".go", ".mjs"} <= {path.suffix for path in texts}
    assert [str(path) for path in texts if hints.search(path.read_text(encoding="utf-8", errors="replace"))] == []


@pytest.mark.parametrize(
    ("package", "call"),
    [("aiohttp", "logdb.serve(logdb.open(sys.argv[1]), http='127.0.0.1:0')"), ("h11", "logdb.open('http://127.0.0.1:1')")],
)
def test_a_server_without_aiohttp_and_a_url_without_h11(package: str, call: str, tmp_path: Path) -> None:
    hidden = f"import sys, logdb\nsys.modules[{package!r}] = None\n"
    program = f"{hidden}try:\n    {call}\nexcept ModuleNotFoundError as error:\n    print(error.name, error)"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "db")], capture_output=True, text=True, timeout=60)
    hint = rf"{package} (the listener 'http'|a URL) needs the package '{package}' of the extra 'http': pip install [^\n]*\n"
    assert re.fullmatch(hint, done.stdout)
    assert asked_for(done.stdout) == set(PROJECT["optional-dependencies"]["http"])


EMBEDDED = """
import sys
sys.modules["msgspec"] = None
import logdb

with logdb.open(sys.argv[1]) as db:
    db.create_topic("t")
    with db.transaction("tx") as transaction:
        transaction.send("t", b"v")
    with db.consumer("t", group_id="g", auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        ((record,),) = consumer.poll(timeout_ms=10_000).values()
        consumer.commit()
    db.security.add_user("root", "a long password", super_user=True)
    print(record.value, db.describe_group("g").state, db.security.users().authentication)
"""


def test_a_database_in_the_process_needs_no_msgspec(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", EMBEDDED, str(tmp_path / "db")], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("b'v' Empty True\n", "")


WITHOUT_HTTP = "import sys\nfor name in ('aiohttp', 're2', 'msgspec'):\n    sys.modules[name] = None\n"


def without_http(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT_HTTP + program], cwd=tmp_path, capture_output=True, text=True, timeout=60)


def test_the_commands_help_needs_nothing_of_a_server(tmp_path: Path) -> None:
    done = without_http("import logdb.cli\nsys.argv = ['logdb', '--help']\nlogdb.cli.main()", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "serve " in done.stdout


@pytest.mark.parametrize(("package", "call"), [("aiohttp", ["serve", "db"]), ("msgspec", ["-b", "127.0.0.1:1", "topics", "list"])])
def test_a_command_says_in_one_line_what_a_server_needs(package: str, call: list[str], tmp_path: Path) -> None:
    done = without_http(f"import logdb.cli\nsys.argv = ['logdb', *{call}]\nlogdb.cli.main()", tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(rf"logdb: a server needs the package '{package}' of the extra 'http': pip install [^\n]*\n", done.stderr)
    assert asked_for(done.stderr) == set(PROJECT["optional-dependencies"]["http"])


def test_a_kafka_listener_needs_nothing_of_the_extra_http(tmp_path: Path) -> None:
    send = "kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers).send('t', b'v').get(10)"
    program = f"import logdb.testing, kafka\nwith logdb.testing.broker() as broker:\n    print({send}.offset)"
    done = without_http(program, tmp_path)
    assert (done.stdout, done.stderr) == ("0\n", "")
