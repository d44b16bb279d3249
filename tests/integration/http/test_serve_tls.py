"""``logdb serve`` with TLS, as a process of its own: its settings, its signals, and the commands of docs/security.md."""

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

from support.certificates import Authority
from support.ports import free_port
from support.security import secure
from support.tools import needs
from support.waiting import until

SERVE = [sys.executable, "-m", "logdb.cli", "serve"]
PAGE = Path(__file__).parents[3] / "docs" / "security.md"


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
        assert "the certificate that was read before still counts" in line
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
def test_what_is_not_safe_or_cannot_be_used_is_refused(tmp_path, flags, said):
    Authority(tmp_path).server()
    done = subprocess.run([*SERVE, "db", *flags], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_that_others_reach_is_served_with_tls_and_users(tmp_path):
    authority = Authority(tmp_path / "ca")
    files = authority.server()
    (tmp_path / "db").mkdir()
    subprocess.run([sys.executable, "-m", "logdb.cli", "topics", "create", "t", "--data-dir", str(tmp_path / "db")], check=True, timeout=60)
    secure(tmp_path / "db", users={"root": "secret"})
    with serving(tmp_path / "db", "--http", "0.0.0.0:0", "--tls-cert", str(files.cert), "--tls-key", str(files.key)) as (_, url):
        assert url.hostname == "0.0.0.0"
        assert serial_number(urlsplit(f"https://127.0.0.1:{url.port}"), authority.context())


@needs("openssl", "curl")
def test_the_commands_of_the_page_do_what_it_says(tmp_path):
    (commands,) = [block for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE) if "openssl" in block]
    commands = commands.replace("8443", str(free_port()))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    shell = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(shell, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('["orders"]') == 3, done.stdout
    assert '"error_code": 40101' in done.stdout
    assert "User:alice is not allowed to Write Topic 'orders'" in done.stdout
