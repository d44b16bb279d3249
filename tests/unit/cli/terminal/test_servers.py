"""The command on a server: which one, who to be there, and what it does not do there."""

import contextlib
import os

import pytest
import trustme
from click import UsageError
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import logdb
from logdb.cli.app import VERBS, cli
from logdb.cli.terminal.servers import Servers
from logdb.errors import InvalidTransactionState, ProducerFenced
from support.ports import free_port
from support.serving import served

NOWHERE = {"LOGDB_DATA_DIR": "", "LOGDB_BOOTSTRAP": ""}


def call(*args, env=None, code=0, stdin=""):
    result = CliRunner().invoke(cli, args, input=stdin, env={**NOWHERE, **(env or {})}, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def url(tmp_path):
    with served(tmp_path / "served") as server:
        server.database.create_topic("one")
        yield server.url


# ---------------------------------------------------------------- which server


@pytest.mark.parametrize("option", ["-b", "--bootstrap-server"])
@pytest.mark.parametrize("where", ["root", "group", "verb"])
def test_the_option_may_stand_anywhere(url, option, where):
    given = [option, url]
    places = {"root": [*given, "topics", "list"], "group": ["topics", *given, "list"], "verb": ["topics", "list", *given]}
    assert "one" in call(*places[where]).stdout


def test_host_and_port_alone_as_kafkas_tools_have_it(url):
    assert call("topics", "--bootstrap-server", url.removeprefix("http://"), "--list").stdout == "one\n"


def test_the_next_server_is_tried(url):
    assert "one" in call("-b", f"http://127.0.0.1:{free_port()}, {url}", "topics").stdout


def test_an_option_goes_before_the_variables(url, tmp_path):
    assert "one" in call("topics", "-b", url, env={"LOGDB_DATA_DIR": "/nowhere", "LOGDB_BOOTSTRAP": "http://nowhere"}).stdout
    call("--data-dir", str(tmp_path / "here"), "topics", "create", "two", env={"LOGDB_BOOTSTRAP": url})
    assert "one" in call("topics", env={"LOGDB_BOOTSTRAP": url}).stdout


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        (["--data-dir", "d", "-b", "http://h"], {}, "not both"),
        ([], {"LOGDB_DATA_DIR": "d", "LOGDB_BOOTSTRAP": "http://h"}, "both set"),
        ([], {}, "name a database"),
        (["-b", ","], {}, "names no server"),
        (["-b", "http://h/?a=b"], {}, "must be http://host:port or https://host:port"),
        (["-b", "ftp://h"], {}, "ftp://h"),
        (["-b", "http://h", "--key-file", __file__], {}, "--cert-file"),
        (["-b", "http://h", "--user", "u", "--token-file", __file__], {}, "not both"),
        (["-b", "http://h", "--user", "u"], {}, "no terminal"),
        (["-b", "http://h", "--token-file", os.devnull], {}, "does not exist|no token|is a"),
        (["-b", "http://h", "--ca-file", "no such file"], {}, "does not exist"),
        (["--data-dir", "d", "--user", "u"], {}, "go with -b"),
    ],
)
def test_what_cannot_be_meant(args, env, words):
    stderr = call("topics", "list", *args, env=env, code=2).stderr
    assert any(word in stderr for word in words.split("|")), stderr


def test_urls():
    assert Servers().urls("a:1, https://b") == ["http://a:1", "https://b"]
    assert Servers(ca_file="ca.pem").urls("a:1") == ["https://a:1"]
    with pytest.raises(UsageError):
        Servers().urls(" ")


# ---------------------------------------------------------------- who to be


def test_users_and_tokens(tmp_path):
    path = str(tmp_path / "secured")
    call("--data-dir", path, "users", "add", "admin", "--super-user", "--password-stdin", stdin="secret\n")
    token = call("--data-dir", path, "tokens", "create", "ci", "--owner", "admin").stdout.strip()
    (tmp_path / "token").write_text(f"{token}\n")
    with served(tmp_path / "secured") as server:
        server.database.create_topic("one")
        as_admin = ("topics", "list", "-b", server.url, "--user", "admin")
        assert "one" in call(*as_admin, env={"LOGDB_PASSWORD": "secret"}).stdout
        assert "one" in call("topics", "list", "-b", server.url, "--token-file", str(tmp_path / "token")).stdout
        refused = call(*as_admin, env={"LOGDB_PASSWORD": "wrong"}, code=2).stderr
        assert "wrong password" in refused and "--user" not in refused
        assert "--token-file FILE gives credentials, or LOGDB_USER" in call("topics", "list", "-b", server.url, code=2).stderr


def test_a_password_is_asked_for_at_a_terminal_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("LOGDB_PASSWORD", raising=False)
    call("--data-dir", str(tmp_path / "secured"), "users", "add", "admin", "--super-user", "--password-stdin", stdin="secret\n")
    monkeypatch.setattr("logdb.cli.terminal.servers._at_terminal", lambda: True)
    with served(tmp_path / "secured") as server:
        asked = call("topics", "list", "-b", server.url, "--user", "admin", stdin="secret\n")
        assert "Password of admin" in asked.stderr
        assert "secret" not in asked.output
        prompts = []
        monkeypatch.setattr("click.prompt", lambda text, **_: prompts.append(text))
        completions = ShellComplete(cli, {}, "logdb", "_").get_completions(["-b", server.url, "--user", "admin", "consume"], "")
        assert (completions, prompts) == ([], []), "a shell that completes is not asked"


def test_tls(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "cert.pem"))
    with served(tmp_path / "db", tls_cert=str(tmp_path / "cert.pem")) as server:
        server.database.create_topic("one")
        where = ["-b", server.url.removeprefix("https://"), "--request-timeout-ms", "5000"]
        assert "one" in call("topics", *where, "--ca-file", str(tmp_path / "ca.pem")).stdout
        (tmp_path / "wrong.pem").write_text("nothing")
        assert "wrong.pem" in call("topics", *where, "--ca-file", str(tmp_path / "wrong.pem"), code=2).stderr
        assert "--ca-file FILE names further authorities" in call("topics", "-b", server.url, code=1).stderr


# ---------------------------------------------------------------- what is done here alone


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["dump", "x.log"], "on the machine of the files"),
        (["repair"], "on the machine of the files"),
        (["restore", __file__, "x"], "'logdb serve'"),
        (["bench"], "this machine"),
    ],
)
def test_what_needs_the_files_says_so(args, words):
    assert words in call("-b", "http://127.0.0.1:1", *args, code=2).stderr


LOCAL = [
    "serve",
    "cluster",
    "quorum",
    "brokers",
    "partitions",
    "mirror",
    "dump",
    "repair",
    "restore",
    "iceberg",
    "parquet",
    "bench",
    "kafka-links",
]


@pytest.mark.parametrize("verb", VERBS)
def test_what_needs_the_files_does_not_offer_a_server(verb):
    """docs/reference/http.md has the same list."""
    shown = "--bootstrap-server" in call(verb, "--help").stdout
    assert shown == (verb not in (*LOCAL, "spark", "connect", "completion", "version", "help"))
    if verb in LOCAL:
        arguments = {
            "dump": ["x.log"], "restore": [__file__, "x"], "iceberg": ["t"], "parquet": ["t"], "serve": ["d"], "kafka-links": ["bin"],
            "cluster": ["init", "d", "--http-ports", "1,2,3"], "brokers": ["list"],
                "partitions": ["list"], "mirror": ["a", "b", "--topics", "t"],
        }.get(verb, [])  # fmt: skip
        for given in (["-b", "http://127.0.0.1:1"], ["--user", "u"]):
            assert "call it on the machine of the files" in call(verb, *arguments, *given, code=2).stderr


def test_serve_serves_a_directory():
    assert "serve needs a directory" in call("-b", "http://127.0.0.1:1", "serve", "d", code=2).stderr


def test_a_variable_alone_does_not_keep_files_from_being_read(tmp_path):
    path = str(tmp_path / "db")
    call("--data-dir", path, "topics", "create", "one")
    call("--data-dir", path, "produce", "one", stdin="x\n")
    call("dump", str(tmp_path / "db" / "one-0"), env={"LOGDB_BOOTSTRAP": "http://127.0.0.1:1"})


# ---------------------------------------------------------------- what only a server makes possible


def test_the_transaction_of_another_client_is_aborted(url):
    with logdb.open(url) as db, contextlib.suppress(ProducerFenced, InvalidTransactionState), db.transaction("live") as tx:
        tx.send("one", b"x")
        tx.flush()
        assert "is CompleteAbort" in call("-b", url, "transactions", "abort", "live", "--yes").stderr


# ---------------------------------------------------------------- a server that is not there


def test_a_server_that_is_not_there_is_said_at_once_and_not_waited_for():
    url = f"http://127.0.0.1:{free_port()}"
    first, last = call("-b", url, "topics", "--connect-timeout", "100ms", code=1).stderr.splitlines()
    assert first.startswith(f"logdb: no server answers at {url}: Connection refused; trying again for 0.")
    assert last == f"logdb: no server answers at {url}: Connection refused; is 'logdb serve' running there?"


def test_times_take_units(url):
    assert "one" in call("topics", "-b", url, "--connect-timeout", "2", "--request-timeout-ms", "5s").stdout
    assert "a plain number is in s" in call("topics", "-b", url, "--connect-timeout", "soon", code=2).stderr
