"""What a page of another site has a browser ask changes nothing, and tells it nothing, however old the browser is."""

import json

import pytest

from logdb.access.credentials import scram_credential
from logdb.requests import coding
from support.batches import Rec, encode_batch
from support.certificates import Authority
from support.serving import served
from support.wire import wire

CREATE, JSON = "/logdb/v1/calls/create_topic", {"Content-Type": "application/json"}
BATCHES = "/logdb/v1/topics/t/partitions/0/batches"
OTHERS = [
    "https://evil.example", "http://evil.example", "null", "", "http://", "x", "file://x", "http://x.evil.example", "http://x:81",
    "http://evil.example@x", "moz-extension://x", "http://y", "http://x/", "ws://x",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("site") / "db") as it:
        it.database.create_topic("t")
        yield it


def ask(server, method, path, body=b"", headers=None):
    with wire(server.url) as line:
        return line.ask(method, path, body, headers)


ASKED = [
    ("POST", CREATE, b'{"name":"stolen"}'), ("POST", BATCHES, encode_batch([Rec(value=b"x")])), ("POST", "/consumers/g", b""),
    ("GET", "/topics", b""), ("GET", f"{BATCHES}?offset=0&max_bytes=100", b""), ("DELETE", "/v3/clusters/x/topics/t", b""),
    ("GET", "/metrics", b""),
]  # fmt: skip


@pytest.mark.parametrize(("origin", "asked"), [*((origin, ASKED[0]) for origin in OTHERS), *((OTHERS[0], asked) for asked in ASKED[1:])])
def test_another_origin_is_refused(server, origin, asked):
    method, path, body = asked
    content_type = "application/vnd.logdb.batches" if path == BATCHES else "application/json"
    end = server.database.log("t").end_offset
    said = ask(server, method, path, body, {"Origin": origin, "Content-Type": content_type})
    assert said.status == 403, said
    assert [topic.name for topic in server.database.topics()] == ["t"]
    assert server.database.log("t").end_offset == end


@pytest.mark.parametrize("origins", [("http://x",), ("http://X",), ("http://x:80",), ("https://x",), ("http://x", "http://x")])
def test_a_page_of_the_server_s_own_may_ask(server, origins):
    """Over TLS, where a proxy has it."""
    said = ask(server, "POST", "/logdb/v1/calls/topics", b"{}", JSON | {"X": "y" + "".join(f"\r\nOrigin: {one}" for one in origins)})
    assert said.status == 200


def test_one_of_several_origins_is_enough_to_be_refused(server):
    assert ask(server, "GET", "/topics", headers={"Origin": "http://x\r\nOrigin: http://evil.example"}).status == 403
    assert ask(server, "GET", "/topics", headers={"Sec-Fetch-Site": "same-origin\r\nSec-Fetch-Site: cross-site"}).status == 403


def test_ports_are_compared_but_for_those_that_are_not_written(server):
    for host, origin, status in (
        ("db:8080", "http://db:8080", 200), ("db:8080", "http://db", 403), ("db:80", "http://db", 200), ("db", "https://db:443", 200),
        ("db", "http://db:443", 403), ("[::1]:8080", "http://[::1]:8080", 200), ("[::1]:8080", "http://localhost:8080", 403),
    ):  # fmt: skip
        assert server.call("/topics", headers={"Host": host, "Origin": origin})[0] == status, (host, origin)


def test_without_tls_a_page_is_no_page_of_a_server_with_it(tmp_path):
    authority = Authority(tmp_path / "ca")
    files = authority.server()
    with served(tmp_path / "db", tls_cert=files.cert, tls_key=files.key) as server:
        trusting = server._replace(context=authority.context())
        for scheme, status in (("https", 200), ("http", 403)):
            assert trusting.call("/topics", headers={"Origin": f"{scheme}://db", "Host": "db"})[0] == status


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
@pytest.mark.parametrize("mode", [None, "cors", "no-cors", "navigate"])
def test_what_a_browser_says_of_another_site_counts(server, site, mode):
    headers = JSON | {"Sec-Fetch-Site": site} | ({"Sec-Fetch-Mode": mode} if mode else {})
    assert ask(server, "POST", CREATE, b'{"name":"stolen"}', headers).status == 403
    assert ask(server, "GET", "/topics", headers=headers).status == (200 if mode == "navigate" else 403), "a link may be followed"
    assert len(server.database.topics()) == 1


@pytest.mark.parametrize("path", [CREATE, BATCHES, "/topics/t", "/consumers/g", "/v3/clusters/x/topics/t/records", "/logdb/v1/backups"])
def test_a_body_without_a_type_is_refused(server, path):
    end = server.database.log("t").end_offset
    for more in ({}, {"Transfer-Encoding": "chunked"}):
        said = ask(server, "POST", path, b"2\r\n{}\r\n0\r\n\r\n" if more else b'{"name":"stolen"}', more)
        assert (said.status, said.json["error_code"]) == (415, 415)
    assert (len(server.database.topics()), server.database.log("t").end_offset) == (1, end)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
@pytest.mark.parametrize("path", [CREATE, BATCHES, "/topics/t", "/consumers/g", "/v3/clusters/{}/topics/t/records", "/logdb/v1/backups"])
def test_nor_are_the_types_of_forms_taken(server, path, content_type):
    """What a page can send without asking first (CORS)."""
    cluster = server.call("/v3/clusters")[1]["data"][0]["cluster_id"]
    said = ask(server, "POST", path.format(cluster), b'{"name":"stolen"}', {"Content-Type": content_type})
    assert said.status == 415


def test_a_page_makes_nobody_super_user(server):
    """With authentication off, one request of a page had made its own, and locked the owner out."""
    credentials = json.loads(coding.encode({"SCRAM-SHA-256": scram_credential("SCRAM-SHA-256", "known to the page", iterations=4096)}))
    asked = {"name": "evil", "credentials": credentials, "super_user": True}
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}):
        assert server.call("/logdb/v1/calls/add_user", asked, headers=headers)[0] == 403
    assert server.call("/topics")[0] == 200, "nobody has to say who they are"


def test_a_request_without_an_origin_comes_from_no_browser(server):
    assert ask(server, "POST", "/logdb/v1/calls/topics", b"{}", JSON).status == 200
    assert ask(server, "POST", "/consumers/g").status == 200
    assert ask(server, "DELETE", "/consumers/g/instances/none").status == 404
