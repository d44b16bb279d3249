"""The page at ``/``: who gets it, the headers of its files, and which names lead to a file."""

import re
from importlib import resources

import pytest

from logdb.model import DELETING_CONFIGS
from support.serving import served
from support.wire import wire

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
FOLDER = resources.files("logdb_http_api") / "page"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("page") / "db") as it:
        yield it


@pytest.fixture
def line(server):
    with wire(server.url) as it:
        yield it


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (BROWSER, "text/html; charset=utf-8"), ("TEXT/HTML;q=0.1", "text/html; charset=utf-8"), ("*/*", "application/json"),
        ("", "application/json"), ("application/json", "application/json"), ("text/html;q=0, */*", "application/json"),
        ("text/*", "application/json"),
    ],
)  # fmt: skip
def test_a_browser_gets_the_page_and_other_clients_get_json(line, accept, content_type):
    said = line.ask("GET", "/", headers={"Accept": accept})
    assert (said.status, said.headers["content-type"], said.headers["vary"]) == (200, content_type, "Accept")
    assert b"openapi.json" in said.body


def test_a_browser_runs_nothing_but_the_files_of_the_page(line):
    names = sorted(entry.name for entry in FOLDER.iterdir() if entry.name.endswith((".js", ".css", ".svg")))
    assert {"app.js", "preact.js", "page.css", "icon.svg"} <= set(names)
    for path in ("/", *(f"/page/{name}" for name in names)):
        said = line.ask("GET", path, headers={"Accept": BROWSER})
        policy = dict(part.split(" ", 1) for part in said.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert set(policy.values()) == {"'none'", "'self'", "'script'"}, "no inline script, no eval, no other site"
        assert (said.headers["x-content-type-options"], said.headers["referrer-policy"]) == ("nosniff", "no-referrer")


def test_the_files_name_no_other_site():
    for entry in FOLDER.iterdir():
        if entry.name.endswith((".html", ".js", ".css", ".svg")):
            found = set(re.findall(rb"(?:https?:)?//[a-z0-9][a-z0-9.-]*\.[a-z]+", entry.read_bytes()))
            assert found <= {b"http://www.w3.org", b"//www.w3.org"}, f"{entry.name}: {found}"


def test_the_page_asks_before_the_configs_that_delete_records():
    found = re.search(r"DELETING = \[(.*)\]", (FOLDER / "configs.js").read_text(encoding="utf-8"))
    assert tuple(re.findall(r"'([^']+)'", found[1])) == DELETING_CONFIGS


def test_a_file_is_sent_once(line):
    said = line.ask("GET", "/page/app.js")
    assert (said.status, said.headers["cache-control"], said.body) == (200, "no-cache", (FOLDER / "app.js").read_bytes())
    etag = said.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = line.ask("GET", "/page/app.js", headers={"If-None-Match": known})
        assert (again.status, again.headers["etag"], again.body) == (304, etag, b"")
    assert line.ask("GET", "/page/app.js", headers={"If-None-Match": '"other"'}).status == 200
    assert line.ask("GET", "/page/page.css", headers={"If-None-Match": etag}).status == 200


@pytest.mark.parametrize(
    "name",
    [
        "..%2Fdoor%2Fdoor.py",
        "%2e%2e%2f__init__.py",
        "../door/door.py",
        "..",
        ".",
        "",
        "VENDOR.md",
        "LICENSE.htm",
        "%2Fetc%2Fpasswd",
        "app.js%00",
        "APP.JS",
    ],
)
def test_a_name_is_looked_up_and_never_opened(line, name):
    assert line.ask("GET", f"/page/{name}").status == 404


def test_the_page_needs_no_credential_and_its_requests_do(tmp_path):
    with served(tmp_path / "db") as server:
        server.database.security.add_user("admin", "correct horse", super_user=True)
        with wire(server.url) as line:
            for path in ("/", "/page/app.js"):
                assert line.ask("GET", path, headers={"Accept": BROWSER}).status == 200
            assert line.ask("GET", "/topics").headers["www-authenticate"].startswith("Basic")
            said = line.ask("GET", "/topics", headers={"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"})
            assert (said.status, said.headers["www-authenticate"]) == (401, 'Bearer realm="logdb"'), "the browser asks for no password"


def test_another_site_may_link_to_the_page_and_not_load_it(line):
    link = {"Accept": BROWSER, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert line.ask("GET", "/", headers=link).status == 200
    assert line.ask("GET", "/page/app.js", headers=link | {"Sec-Fetch-Mode": "no-cors"}).status == 403
