"""The door's part of security, over real connections: who asks, what they may, and what is between them and the server."""

import base64
import contextlib
import http.client
import json
import logging
import select
import socket
import ssl
import threading
import time
import urllib.error
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives import serialization

import logdb
from logdb.access.access_control import AccessControl
from logdb.access.authentication import OF_THE_CLUSTER, Identity
from logdb.access.credentials import is_password, new_token, token_hash
from logdb.access.security_document import Token
from logdb.errors import AuthenticationFailed, InsecureAddress, InvalidCertificate, LogdbError, NotAuthorized, ServerUnavailable
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from logdb.serving.server import Server
from support.certificates import Authority
from support.security import secure
from support.serving import Served, served
from support.waiting import until

JSON_V2 = "application/vnd.kafka.json.v2+json"
RECORD = {"records": [{"value": 1}]}
PASSWORD = "correct horse"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "ca")


@pytest.fixture
def files(authority):
    return authority.server()


@pytest.fixture
def path(tmp_path):
    """A database with one topic, of which root is super user and alice may read it."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t", 0).append_many([b"1", b"2"])
    secure(
        tmp_path / "db",
        "Allow alice@* Read Topic t",
        "Allow alice@* Describe Topic t",
        users={"root": PASSWORD, "alice": PASSWORD, "bob": PASSWORD},
        super_users=["root"],
    )
    return tmp_path / "db"


def status_of(server, path="/topics/t", **rest):
    return server.call(path, **rest)[0]


def test_two_authorizations_are_refused(path):
    """RFC 9110, section 5.3: a proxy and the server could each believe another one of them."""
    with served(path) as server:
        right, wrong = ("Basic " + base64.b64encode(f"root:{password}".encode()).decode() for password in (PASSWORD, "wrong"))
        for given in ((right,), (right, wrong), (wrong, right), (right, right)):
            connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
            with contextlib.closing(connection):
                connection.putrequest("GET", "/topics")
                for one in given:
                    connection.putheader("Authorization", one)
                connection.endheaders()
                assert connection.getresponse().status == (200 if len(given) == 1 else 400), given


# ---------------------------------------------------------------- passwords


def test_a_right_password_is_accepted(path):
    with served(path) as server:
        assert server.by("alice", PASSWORD).call("/topics") == (200, ["t"])


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("alice", ""), ("nobody", PASSWORD), ("", ""), ("alice", "x" * 5000), ("a\0", "b")]
)
def test_a_wrong_password_is_refused(path, user, password):
    with served(path) as server:
        status, said = server.by(user, password).call("/topics")
        assert (status, said["error_code"], said["error"]) == (401, 40101, "AuthenticationFailed")


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Basic", "Basic !", "Basic YWxpY2U=", "Basic //8=", "Digest x", "Bearer", "Bearer \xff", "Negotiate " + "A" * 4000],
)
def test_credentials_that_are_none_are_refused_with_a_challenge(path, authorization):
    with served(path) as server:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
        connection.request("GET", "/topics", headers={} if authorization is None else {"Authorization": authorization})
        answer = connection.getresponse()
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == 'Basic realm="logdb", charset="UTF-8", Bearer realm="logdb"'
        assert json.loads(answer.read())["error_code"] == 40101
        connection.close()


def test_health_is_open_to_all_and_metrics_to_who_may_see_them(path):
    """A proxy on this machine need not say that it is one, and a page's name can be made to lead here."""
    with served(path) as server:
        for open_path in ("/health/live", "/health/ready", "/status/ready"):
            assert status_of(server, open_path) == 200
            assert status_of(server.by("alice", "wrong"), open_path) == 200
        for headers in ({}, {"X-Forwarded-For": "10.0.0.7"}, {"Host": "evil.example"}):
            assert status_of(server, "/metrics", headers=headers) == 401
            assert status_of(server.by("alice", PASSWORD), "/metrics", headers=headers) == 403
            assert status_of(server.by("root", PASSWORD), "/metrics", headers=headers) == 200


def test_a_scraper_on_this_machine_need_not_say_who_it_is_if_an_acl_says_so(path):
    secure(path, "Allow ANONYMOUS@127.0.0.1 Describe Cluster kafka-cluster", users={"root": PASSWORD})
    with served(path) as server:
        assert status_of(server, "/metrics") == 200
        assert status_of(server, "/topics") == 401
        for headers in (
            {"X-Forwarded-For": "10.0.0.7"}, {"Forwarded": "for=10.0.0.7"}, {"Via": "1.1 proxy"}, {"X-Real-IP": "10.0.0.7"},
            {"X-Forwarded-Host": "db"}, {"X-Forwarded-Proto": "https"}, {"Host": "evil.example"}, {"Host": "evil.example:80"},
        ):  # fmt: skip
            assert status_of(server, "/metrics", headers=headers) == 401, headers


def test_a_user_whose_password_was_changed_or_who_was_deleted_is_out_at_once(path):
    with served(path) as server:
        alice = server.by("alice", PASSWORD)
        assert status_of(alice) == 200
        secure(path, "Allow alice@* Describe Topic t", users={"alice": "another"})
        assert status_of(alice) == 401
        assert status_of(server.by("alice", "another")) == 200
        secure(path, users={"root": PASSWORD})
        assert status_of(server.by("alice", "another")) == 401


def test_authentication_begins_with_the_first_user_while_the_server_runs(tmp_path):
    with served(tmp_path / "db") as server:
        assert status_of(server, "/topics") == 200
        secure(tmp_path / "db", users={"root": PASSWORD}, super_users=["root"])
        assert status_of(server, "/topics") == 401
        assert status_of(server.by("root", PASSWORD), "/topics") == 200


def test_authentication_can_be_on_before_there_is_a_user(tmp_path):
    with served(tmp_path / "db", authentication=True) as server:
        assert status_of(server, "/topics") == 401


def test_a_flood_of_wrong_passwords_holds_up_nobody_at_another_address(path, monkeypatch):
    """A hundred connections try as fast as they can; somebody at another address logs in for the first time, and is served."""
    stop, statuses, hashed = threading.Event(), [], []

    def counted(mechanism, credential, password):
        hashed.append(threading.current_thread().name)
        return is_password(mechanism, credential, password)

    monkeypatch.setattr("logdb.access.authentication.is_password", counted)
    for module in ("logdb.access.attempts", "logdb.serving.logins"):
        monkeypatch.setattr(f"{module}.machine", str)  # as if each address of the loopback were a machine's of its own

    def flood(url, number):
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        for attempt in range(1_000_000):
            if stop.is_set():
                break
            guess = base64.b64encode(f"alice:{number}-{attempt}".encode()).decode()
            connection.request("GET", "/topics", headers={"Authorization": f"Basic {guess}"})
            answer = connection.getresponse()
            statuses.append(answer.status)
            answer.read()
        connection.close()

    with served(path) as server:
        url = urlsplit(server.url)
        attackers = [threading.Thread(target=flood, args=(url, number)) for number in range(100)]
        for attacker in attackers:
            attacker.start()
        try:
            until(lambda: len(statuses) >= 200, "the flood", 300)
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30, source_address=("127.0.0.2", 0))
            began_s = time.monotonic()
            connection.request("GET", "/topics", headers={"Authorization": server.by("alice", PASSWORD).authorization})
            assert connection.getresponse().status == 200
            assert time.monotonic() - began_s < 10
            connection.close()
        finally:
            stop.set()
            for attacker in attackers:
                attacker.join()
        assert set(statuses) <= {401, 429}
        assert len(hashed) < len(statuses) / 4, "the flood is not refused before it is hashed"
        assert all(name.startswith("logdb-login") for name in hashed)
        assert len(set(hashed)) <= 8


# ---------------------------------------------------------------- tokens


def token(**times):
    secret = new_token()
    return secret, Token("t", Principal("User", "alice"), token_hash(secret), 0, times.get("expires_ms"))


def test_so_many_passwords_of_one_address_wait_and_no_more(path, monkeypatch):
    """While hashing stands still: two are at it, 64 wait, and the next one is refused at once."""
    go_on = threading.Event()
    authenticate = AccessControl.authenticate_password
    monkeypatch.setattr(AccessControl, "authenticate_password", lambda *args: (go_on.wait(60), authenticate(*args))[1])
    with served(path) as server, contextlib.ExitStack() as open_sockets:
        place, token = urlsplit(server.url), base64.b64encode(f"alice:{PASSWORD}".encode())
        waiting = []
        for _ in range(67):
            waiting.append(open_sockets.enter_context(socket.create_connection((place.hostname, place.port), timeout=60)))
            waiting[-1].sendall(b"GET /topics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Basic " + token + b"\r\n\r\n")
        readable, _, _ = select.select(waiting, [], [], 60)
        (refused,) = readable
        said = b"".join(iter(lambda: refused.recv(65536), b""))
        assert said.startswith(b"HTTP/1.1 429 ") and b"Retry-After: 1" in said and b'"error_code": 429' in said
        go_on.set()
        for one in waiting:
            assert one is refused or one.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_token_is_good_until_it_expires_or_is_revoked(path):
    secret, good = token()
    old_secret, expired = token(expires_ms=1)
    acl = "Allow alice@* Describe Topic t"
    secure(path, acl, tokens=[good, expired._replace(name="old")])
    with served(path) as server:
        bearer = server._replace(authorization=f"Bearer {secret}")
        assert bearer.call("/topics") == (200, ["t"])
        assert status_of(server._replace(authorization=f"bearer {secret}")) == 200
        assert status_of(server._replace(authorization=f"Bearer {old_secret}")) == 401
        assert status_of(server._replace(authorization=f"Bearer {secret}x")) == 401
        secure(path, acl, users={"root": PASSWORD})
        assert status_of(bearer) == 401


# ---------------------------------------------------------------- what they may


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        (("/topics/t", RECORD, "POST"), "Write"),
        (("/topics/t/partitions/0", RECORD, "POST"), "Write"),
        (("/logdb/v1/calls/create_topic", {"name": "u"}, "POST"), "Create"),
        (("/logdb/v1/calls/alter_topic", {"name": "t", "config": [["retention.ms", 1000]]}, "POST"), "AlterConfigs"),
        (("/logdb/v1/calls/delete_topic", {"name": "t"}, "POST"), "Delete"),
        (("/logdb/v1/calls/describe_group", {"group_id": "g"}, "POST"), "Describe"),
        (("/logdb/v1/calls/heartbeat", {"group_id": "g", "generation": 1, "member_id": "m"}, "POST"), "Read"),
    ],
)
def test_what_nobody_allowed_is_refused_and_noted(path, caplog, call, operation):
    where, body, method = call
    with served(path) as server, caplog.at_level(logging.WARNING, "logdb.audit"):
        content_type = JSON_V2 if where.startswith("/topics") else "application/json"
        status, said = server.by("alice", PASSWORD).call(where, body, method=method, content_type=content_type)
        errors = [said["error_code"]] if "error_code" in said else [record["error_code"] for record in said["offsets"]]
        assert (status, errors) == (403, [40301])
    (line,) = [record.getMessage() for record in caplog.records if record.name == "logdb.audit"]
    assert line.startswith("principal=User:alice host=127.0.0.1 operation=" + operation), line
    assert line.endswith("allowed=no")


def test_a_remote_session_is_told_what_it_may_not(path):
    with served(path) as server, logdb.open(server.url, user="alice", password=PASSWORD) as db:
        assert [record.value for record in db.log("t", 0).read(0)] == [b"1", b"2"]
        for refused in (
            lambda: db.log("t", 0).append_many([b"3"]),
            lambda: db.create_topic("u"),
            lambda: db.delete_topic("t"),
            lambda: db.delete_records("t", 0, 1),
        ):
            with pytest.raises(NotAuthorized, match="User:alice is not allowed to"):
                refused()
        assert [info.name for info in db.topics()] == ["t"]


def test_a_remote_session_with_a_wrong_password_is_told_so(path):
    with served(path) as server, pytest.raises(AuthenticationFailed):
        logdb.open(server.url, user="alice", password="wrong")


def test_somebody_over_quota_waits_for_the_answer_and_is_told_how_long(path):
    secure(path, users={"root": PASSWORD}, super_users=["root"], quotas={Principal("User", "root"): Quota(produce_bytes=1000)})
    with served(path) as server:
        url = urlsplit(server.url)
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        body = json.dumps({"records": [{"value": "x" * 1500}]})
        began_s = time.monotonic()
        headers = {"Authorization": server.by("root", PASSWORD).authorization, "Content-Type": JSON_V2}
        connection.request("POST", "/topics/t", body, headers)
        answer = connection.getresponse()
        took_ms = (time.monotonic() - began_s) * 1000
        delay_ms = int(answer.headers["Logdb-Throttle-Ms"])
        assert answer.status == 200
        assert 400 < delay_ms <= took_ms
        connection.close()


def test_a_stream_is_held_back_while_it_goes_on(path):
    """Three records, each a second's quota and one half, in one request: the third waits for the two before it."""
    secure(path, users={"root": PASSWORD}, super_users=["root"], quotas={Principal("User", "root"): Quota(produce_bytes=10_000)})
    with served(path) as server:
        root, url = server.by("root", PASSWORD), urlsplit(server.url)
        cluster = root.call("/v3/clusters")[1]["data"][0]["cluster_id"]
        record = json.dumps({"value": {"type": "STRING", "data": "x" * 15_000}}).encode()
        with socket.create_connection((url.hostname, url.port), 30) as plain:
            head = f"POST /v3/clusters/{cluster}/topics/t/records HTTP/1.1\r\nHost: t\r\nAuthorization: {root.authorization}\r\n"
            plain.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            reports, began_s = plain.makefile("rb"), time.monotonic()
            for _ in range(3):
                plain.sendall(b"%x\r\n%b\r\n" % (len(record), record))
                while b'"offset"' not in (line := reports.readline()):
                    assert line, "the stream ended"
            assert time.monotonic() - began_s > 1.5


def test_draining_does_not_wait_for_quotas(path):
    secure(path, users={"root": PASSWORD}, super_users=["root"], quotas={Principal("User", "root"): Quota(produce_bytes=100)})
    with served(path) as server:
        root, statuses = server.by("root", PASSWORD), []
        body = {"records": [{"value": "x" * 100_000}]}
        producer = threading.Thread(target=lambda: statuses.append(status_of(root, body=body, content_type=JSON_V2)))
        end_offset = server.database.log("t", 0).end_offset
        producer.start()
        until(lambda: server.database.log("t", 0).end_offset != end_offset, "the record", 300)
        began_s = time.monotonic()
    producer.join()
    assert statuses == [200]
    assert time.monotonic() - began_s < 10  # it was to wait for thirty


# ---------------------------------------------------------------- TLS


def test_https_by_a_plain_client_and_by_the_library(path, authority, files):
    with served(path, tls_cert=files.cert, tls_key=files.key) as server:
        assert server.url.startswith("https://")
        assert server._replace(context=authority.context()).by("alice", PASSWORD).call("/topics") == (200, ["t"])
        with logdb.open(server.url, user="root", password=PASSWORD, ca_file=authority.file) as db:
            db.log("t", 0).append_many([bytes(100)] * 50_000)
            assert sum(1 for _ in db.log("t", 0).read(2)) == 50_000


def test_a_client_that_does_not_trust_the_authority_does_not_connect(path, tmp_path, files):
    another = Authority(tmp_path / "another")
    with served(path, tls_cert=files.cert, tls_key=files.key) as server:
        with pytest.raises(ServerUnavailable, match="certificate verify failed"):
            logdb.open(server.url, ca_file=another.file)
        with pytest.raises(ServerUnavailable, match="certificate verify failed"):
            logdb.open(server.url)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize(("version", "good"), [("TLSv1", False), ("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
def test_old_versions_of_tls_are_refused(path, authority, files, version, good):
    context = authority.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with served(path, tls_cert=files.cert, tls_key=files.key) as server:
        url = urlsplit(server.url)
        with socket.create_connection((url.hostname, url.port), 30) as plain:
            if good:
                with context.wrap_socket(plain, server_hostname=url.hostname) as secured:
                    assert secured.version() == version.replace("_", ".")
            else:
                with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
                    context.wrap_socket(plain, server_hostname=url.hostname)


@pytest.mark.parametrize("cipher", ["AES128-SHA", "ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES128-SHA256", "AES256-GCM-SHA384"])
def test_ciphers_without_forward_secrecy_or_authentication_are_refused(path, authority, files, cipher):
    context = authority.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher + ":@SECLEVEL=0")
    with served(path, tls_cert=files.cert, tls_key=files.key) as server:
        url = urlsplit(server.url)
        with socket.create_connection((url.hostname, url.port), 30) as plain, pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
            context.wrap_socket(plain, server_hostname=url.hostname)


def test_http_to_a_port_with_tls_is_told_so(path, files):
    with served(path, tls_cert=files.cert, tls_key=files.key) as server:
        plain = server._replace(url=server.url.replace("https", "http"))
        assert plain.call("/topics") == (400, {"error_code": 400, "message": "this port speaks TLS: ask https://, not http://"})
        with pytest.raises(Exception, match="this port speaks TLS"):
            logdb.open(plain.url)


def is_closed(plain):
    """Whether the server closes a connection without a word; waits for that."""
    try:
        return plain.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_that_does_not_shake_hands_is_closed(path, authority, files):
    with served(path, tls_cert=files.cert, tls_key=files.key, header_timeout_ms=400) as server:
        url = urlsplit(server.url)
        for begin in (b"", b"\x16\x03\x01\x02\x00"):
            with socket.create_connection((url.hostname, url.port), 30) as plain:
                plain.sendall(begin)
                assert is_closed(plain)
        assert status_of(server._replace(context=authority.context()).by("root", PASSWORD), "/topics") == 200


def test_only_so_many_may_begin_at_once(path, authority, files, monkeypatch):
    monkeypatch.setattr("logdb.serving.connection_slots.EXTRA_COUNT_MAX", 1)
    with served(path, tls_cert=files.cert, tls_key=files.key, connections_max=2, connections_per_address_max=10) as server:
        url = urlsplit(server.url)
        silent = [socket.create_connection((url.hostname, url.port), 30) for _ in range(3)]
        with socket.create_connection((url.hostname, url.port), 30) as further:
            assert is_closed(further)
        for one in silent:
            one.shutdown(socket.SHUT_WR)
            assert is_closed(one)  # now the server knows that it is gone
            one.close()
        assert status_of(server._replace(context=authority.context()), "/health/live") == 200


def test_a_client_whose_certificate_is_not_trusted_does_not_try_until_its_time_is_over(path, tmp_path, authority, files):
    another = Authority(tmp_path / "another").client("root")
    options = {"ca_file": authority.file, "cert_file": another.cert, "key_file": another.key, "timeout_ms": 3_600_000}
    with served(path, tls_cert=files.cert, tls_key=files.key, tls_client_ca=authority.file) as server:
        with pytest.raises(ServerUnavailable, match=r"(?i)unknown.ca"):
            logdb.open(server.url, **options)
        plain = server.url.replace("https:", "http:")
        with pytest.raises(LogdbError, match="this port speaks TLS"):
            logdb.open(plain, timeout_ms=3_600_000)
    with served(tmp_path / "plain") as server, pytest.raises(ServerUnavailable, match=r"no TLS is spoken there"):
        logdb.open(server.url.replace("http:", "https:"), ca_file=authority.file, timeout_ms=3_600_000)


# ---------------------------------------------------------------- certificates of clients


def test_a_certificate_says_who_somebody_is(path, authority, files):
    options = {"tls_cert": files.cert, "tls_key": files.key, "tls_client_ca": authority.file}
    alice = authority.client("alice")
    with served(path, **options) as server:
        assert server._replace(context=authority.context(alice)).call("/topics") == (200, ["t"])
        assert status_of(server._replace(context=authority.context(authority.client("bob")))) == 403
        assert status_of(server._replace(context=authority.context(authority.client(None)))) == 401
        assert status_of(server._replace(context=authority.context())) == 401
        assert status_of(server._replace(context=authority.context(alice)).by("alice", "wrong")) == 401
        with logdb.open(server.url, ca_file=authority.file, cert_file=alice.cert, key_file=alice.key) as db:
            assert [info.name for info in db.topics()] == ["t"]


def test_a_certificate_can_be_taken_by_its_whole_subject_as_kafka_does(path, authority, files):
    secure(path, super_users=["CN=alice,OU=ops,O=Acme"])
    options = {"tls_cert": files.cert, "tls_key": files.key, "tls_client_ca": authority.file, "tls_principal": "dn"}
    with served(path, **options) as server:
        assert status_of(server._replace(context=authority.context(authority.client("alice")))) == 200
        assert status_of(server._replace(context=authority.context(authority.client("alice", unit="guests")))) == 403


def test_a_certificate_of_another_authority_is_none(path, tmp_path, authority, files):
    another = Authority(tmp_path / "another").client("root")
    context = authority.context(another)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3 the client sees what the server thinks of it only when it reads
    with served(path, tls_cert=files.cert, tls_key=files.key, tls_client_ca=authority.file) as server:
        with pytest.raises(urllib.error.URLError, match=r"(?i)unknown.ca"):
            server._replace(context=context).call("/topics")
        assert status_of(server._replace(context=authority.context()), "/health/live") == 200


def test_with_an_authority_for_clients_authentication_is_on(tmp_path, authority, files):
    options = {"tls_cert": files.cert, "tls_key": files.key, "tls_client_ca": authority.file}
    with served(tmp_path / "db", super_users=["User:root"], **options) as server:
        assert status_of(server._replace(context=authority.context()), "/topics") == 401
        assert status_of(server._replace(context=authority.context(authority.client("root"))), "/topics") == 200


# ---------------------------------------------------------------- another certificate


def serial_number(url, context):
    plain = socket.create_connection((url.hostname, url.port), 30)
    with context.wrap_socket(plain, server_hostname=url.hostname) as secured:
        return secured.getpeercert()["serialNumber"]


def test_a_certificate_is_changed_under_traffic(path, authority, files):
    with served(path, tls_cert=files.cert, tls_key=files.key) as server:
        url, context = urlsplit(server.url), authority.context()
        stop, appended = threading.Event(), []

        def produce():
            with logdb.open(server.url, user="root", password=PASSWORD, ca_file=authority.file) as db:
                while not stop.is_set():
                    appended.append(db.log("t", 0).append_many([b"x"]))

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            serials = [serial_number(url, context)]
            for _ in range(5):
                authority.server()
                server.server.reload()
                serials.append(serial_number(url, context))
                before = len(appended)
                while len(appended) < before + 5 and producer.is_alive():
                    time.sleep(0.001)
        finally:
            stop.set()
            producer.join()
        assert len(set(serials)) == 6
        assert sum(map(len, appended)) == server.database.log("t", 0).end_offset - 2


def broken(files, authority):
    yield files.cert, b"no certificate"
    yield files.key, b""
    yield files.key, authority.server("another").key.read_bytes()
    yield files.cert, None
    yield files.key, with_passphrase(files.key.read_bytes())


def with_passphrase(key):
    encryption = serialization.BestAvailableEncryption(b"open sesame")
    key = serialization.load_pem_private_key(key, None)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def test_a_certificate_that_is_broken_is_not_taken_and_said_to_be(path, authority, files, caplog):
    with served(path, tls_cert=files.cert, tls_key=files.key) as server:
        url, context = urlsplit(server.url), authority.context()
        serial = serial_number(url, context)
        for file, content in broken(files, authority):
            good = file.read_bytes()
            file.unlink() if content is None else file.write_bytes(content)
            with pytest.raises(InvalidCertificate, match=str(file)):
                server.server.reload()
            assert serial_number(url, context) == serial
            file.write_bytes(good)
        assert sum("stays in use" in record.getMessage() for record in caplog.records) == 5
        authority.server()
        server.server.reload()
        assert serial_number(url, context) != serial


# ---------------------------------------------------------------- where it may listen


def test_other_addresses_need_tls_and_authentication_or_to_be_told(tmp_path, path, files):
    tls = {"tls_cert": files.cert, "tls_key": files.key}
    with logdb.open(tmp_path / "open") as database:
        for options in ({}, tls, {"authentication": True}):
            with pytest.raises(InsecureAddress, match="--insecure") as refused:
                logdb.serve(database, http="0.0.0.0:0", **options)
            assert isinstance(refused.value, ValueError)
        for options in ({"insecure": True}, {**tls, "authentication": True}):
            logdb.serve(database, http="0.0.0.0:0", **options).close()
    with logdb.open(path) as database:
        with pytest.raises(InsecureAddress):
            logdb.serve(database, http="0.0.0.0:0")
        logdb.serve(database, http="0.0.0.0:0", **tls).close()


def test_options_of_tls_without_a_certificate_are_refused(path, files, authority):
    with logdb.open(path) as database:
        for options in ({"tls_key": files.key}, {"tls_client_ca": authority.file}):
            with pytest.raises(ValueError, match="tls_cert"):
                logdb.serve(database, http="127.0.0.1:0", **options)


# ---------------------------------------------------------------- what is never said, and what is never done


@pytest.mark.parametrize(
    ("method", "mode", "status"), [("POST", "no-cors", 403), ("POST", "navigate", 403), ("GET", "cors", 403), ("GET", "navigate", 200)]
)
def test_what_a_page_of_another_site_has_a_browser_ask_is_refused(tmp_path, method, mode, status):
    with served(tmp_path / "db") as server:
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode}
        path, body = ("/topics", None) if method == "GET" else ("/logdb/v1/calls/create_topic", {"name": "t"})
        assert status_of(server, path, body=body, method=method, headers=headers) == status
        assert server.database.topics() == []
        assert status_of(server, path, body=body, method=method, headers={"Sec-Fetch-Site": "same-origin"}) == 200


def test_a_name_that_was_made_to_lead_here_is_refused_where_nobody_says_who_they_are(tmp_path, path):
    """DNS rebinding: a browser takes the page and this server for the same site."""
    headers = {"Host": "evil.example:80"}
    with served(tmp_path / "other") as server:
        assert status_of(server, "/topics", headers=headers) == 403
        for name in ("localhost", "127.0.0.1:80", "[::1]:80", "db.localhost", "db"):
            assert status_of(server, "/topics", headers={"Host": name}) == 200
    secure(path, users={"alice": PASSWORD})
    with served(path) as server:
        assert status_of(server.by("alice", PASSWORD), "/topics", headers=headers) == 200


def test_no_secret_is_in_logs_errors_or_reprs(path, caplog, capfd):
    secret, kept = token()
    secrets = ["hunter2-wrong", PASSWORD, secret]
    secure(path, users={"alice": PASSWORD}, tokens=[kept])
    caplog.set_level(logging.DEBUG)
    said = []
    with served(path, access_log=True) as server:
        for asks in (server.by("alice", "hunter2-wrong"), server.by("alice", PASSWORD), server._replace(authorization=f"Bearer {secret}")):
            said += [asks.call("/topics"), asks.call("/topics/t", b"{", method="POST"), asks.call("/nothing")]
            said.append(server._replace(authorization=asks.authorization + "x").call("/topics"))
        with pytest.raises(AuthenticationFailed) as refused, logdb.open(server.url, user="alice", password="hunter2-wrong") as db:
            said += [db, db._session]
            db.topics()
        said.append(refused.value)
    text = "\n".join((*map(repr, said), *map(str, said), caplog.text, *capfd.readouterr()))
    encoded = [server.by("alice", password).authorization.split()[1] for password in secrets]
    assert "authenticated=no" in text
    assert "/topics/t" in text  # the access log is in it
    for hidden in (*secrets, *encoded):
        assert hidden not in text


# ---------------------------------------------------------------- the nodes of a cluster


@pytest.mark.parametrize("authentication", [False, True])
def test_a_node_of_the_cluster_is_known_by_its_token(tmp_path, authentication):
    asked = []

    class Noting(AccessControl):
        def session(self, principal, host, credential=None):
            asked.append(Identity(principal, credential))
            return super().session(principal, host, credential)

    with logdb.open(tmp_path / "db") as db:
        access = Noting(db._session, authentication=authentication, cluster_token="of-the-cluster")
        with Server(access, {"http": "127.0.0.1:0"}).start() as server:
            told = Served(db, server.addresses[0], server)
            assert told.call("/logdb/v1/calls/topics", {}, headers={"Authorization": "Bearer of-the-cluster"})[0] == 200
            assert told.call("/logdb/v1/calls/topics", {}, headers={"Authorization": "Bearer of-another"})[0] == (
                401 if authentication else 200
            )
    assert asked[0] == OF_THE_CLUSTER
    assert OF_THE_CLUSTER not in asked[1:]
