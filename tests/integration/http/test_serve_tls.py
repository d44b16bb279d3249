"""``logdb serve`` with TLS, as a process of its own: its settings, its signals, and the commands of docs/reference/security.md."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from logdb.cli.app import cli
from logdb.cli.serving import serve
from support.certificates import Authority
from support.ports import free_port
from support.security import secure
from support.tools import needs
from support.waiting import until

SERVE = [sys.executable, "-m", "logdb.cli", "serve"]
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "security.md"


@contextlib.contextmanager
def serving(path, *flags, env=None):
    """The process, and where it listens; it has to end well."""
    process = subprocess.Popen(
        [*SERVE, str(path), "--http", "127.0.0.1:0", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    with process:
        url = process.stdout.readline().strip()
        assert url, process.stderr.read()
        try:
            yield process, urlsplit(url)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def serial_number(url, context):
    plain = socket.create_connection((url.hostname, url.port), 30)
    with context.wrap_socket(plain, server_hostname=url.hostname) as secured:
        return secured.getpeercert()["serialNumber"]


def test_sighup_has_the_certificate_read_again(tmp_path):
    authority = Authority(tmp_path / "ca")
    files, context = authority.server(), authority.context()
    with serving(tmp_path / "db", "--tls-cert", str(files.cert), "--tls-key", str(files.key)) as (process, url):
        assert url.scheme == "https"
        old = serial_number(url, context)
        authority.server()
        process.send_signal(signal.SIGHUP)
        until(lambda: serial_number(url, context) != old, "the new certificate")
        new = serial_number(url, context)
        assert new != old
        files.cert.write_bytes(b"broken")
        process.send_signal(signal.SIGHUP)
        line = process.stderr.readline()
        assert str(files.cert) in line
        assert "the certificate that was read before stays in use" in line
        assert serial_number(url, context) == new


def test_tls_is_set_by_variables_and_by_a_file(tmp_path):
    authority = Authority(tmp_path / "ca")
    files = authority.server()
    (tmp_path / "logdb.toml").write_text(f'tls_key = "{files.key}"\ntls_client_ca = "{authority.file}"\nsuper_users = "User:root"\n')
    env = {"LOGDB_TLS_CERT": str(files.cert), "LOGDB_CONFIG": str(tmp_path / "logdb.toml")}
    with serving(tmp_path / "db", env=env) as (_, url):
        for client, status in ((authority.client("root"), 200), (authority.client("eve"), 403), (None, 401)):
            plain = socket.create_connection((url.hostname, url.port), 30)
            with authority.context(client).wrap_socket(plain, server_hostname=url.hostname) as secured:
                secured.sendall(
                    b"POST /logdb/v1/calls/create_topic HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"
                    b'{"name":"t"}'
                )
                assert int(secured.recv(4096).split()[1]) == status


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--http", "0.0.0.0:0"], "--insecure"),
        (["--http", "0.0.0.0:0", "--authentication"], "--insecure"),
        (["--http", "0.0.0.0:0", "--tls-cert", "server.pem", "--tls-key", "server.key"], "--insecure"),
        (["--tls-cert", "nothing.pem"], "nothing.pem"),
        (["--tls-cert", "server.pem", "--tls-key", "ca.pem"], "ca.pem"),
        (["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "server.key"], "server.key"),
        (["--tls-key", "server.key"], "tls_cert"),
        (["--super-users", "root"], "User:alice"),
    ],
)
def test_what_is_not_safe_or_cannot_be_used_is_refused(tmp_path, monkeypatch, flags, said):
    Authority(tmp_path).server()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(serve, "take_descriptors", lambda: None)  # this process keeps its limit
    done = CliRunner().invoke(cli, ["serve", "db", *flags], catch_exceptions=False)
    assert done.exit_code == 2
    assert said in done.stderr


def test_an_address_that_others_reach_is_served_with_tls_and_users(tmp_path):
    authority = Authority(tmp_path / "ca")
    files = authority.server()
    (tmp_path / "db").mkdir()
    subprocess.run([sys.executable, "-m", "logdb.cli", "topics", "create", "t", "--data-dir", str(tmp_path / "db")], check=True, timeout=60)
    secure(tmp_path / "db", users={"root": "secret"})
    with serving(tmp_path / "db", "--http", "0.0.0.0:0", "--tls-cert", str(files.cert), "--tls-key", str(files.key)) as (_, url):
        assert url.hostname == "0.0.0.0"
        assert serial_number(urlsplit(f"https://127.0.0.1:{url.port}"), authority.context())


def page_commands():
    (commands,) = [block for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE) if "openssl" in block]
    return commands


def shell(folder, commands):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    arguments = ["bash", "-euo", "pipefail", "-c", commands]
    return subprocess.run(arguments, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120)


@needs("openssl", "curl")
def test_the_commands_of_the_page_do_what_it_says(tmp_path):
    done = shell(tmp_path, page_commands().replace("8443", str(free_port())))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('["orders"]') == 3, done.stdout
    assert '"error_code": 40101' in done.stdout
    assert "User:alice is not allowed to Write Topic 'orders'" in done.stdout
    assert "CA:TRUE" not in done.stderr


@needs("openssl")
def test_a_client_of_the_page_cannot_sign_a_certificate(tmp_path):
    """Its authority, its clients: with alice's key, one for admin is made, and shown with alice's own as a chain."""
    commands = page_commands()
    made = commands[: commands.index("export LOGDB_DATA_DIR")]
    forge = """
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 9 -CA alice.pem -CAkey alice.key -subj /CN=admin \
            -addext basicConstraints=critical,CA:FALSE -keyout admin.key -out forged.pem
        openssl verify -CAfile ca.pem alice.pem
        ! openssl verify -CAfile ca.pem -untrusted alice.pem forged.pem
    """
    done = shell(tmp_path, made + forge)
    assert done.returncode == 0, done.stderr
    assert "alice.pem: OK" in done.stdout


def test_a_certificate_that_a_client_has_signed_is_refused_by_both_doors(tmp_path):
    """The recipe of earlier versions made every client an authority; their certificates are still in use."""
    authority = Authority(tmp_path / "ca")
    files, alice = authority.server(), authority.signing_client("alice")
    forged = alice.client("admin")
    flags = ["--kafka", "127.0.0.1:0", "--tls-cert", files.cert, "--tls-key", files.key, "--tls-client-ca", authority.file]
    with serving(tmp_path / "db", *map(str, flags), "--super-users", "User:admin") as (process, url):
        kafka = urlsplit(f"kafka://{process.stdout.readline().strip().rpartition('//')[2]}")
        for client, is_admin in ((authority.client("admin"), True), (forged, False)):
            with authority.context(client).wrap_socket(
                socket.create_connection((url.hostname, url.port), 30), server_hostname=url.hostname
            ) as secured:
                secured.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                answer = b"".join(iter(lambda: secured.recv(4096), b""))
            assert answer.split()[1] == (b"200" if is_admin else b"401")
            assert (b"not in the file tls_client_ca" in answer) is not is_admin
            with authority.context(client).wrap_socket(
                socket.create_connection((kafka.hostname, kafka.port), 30), server_hostname=kafka.hostname
            ) as secured:
                secured.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", "")))  # ApiVersions
                with contextlib.suppress(ConnectionError):
                    assert bool(secured.recv(4096)) is is_admin
