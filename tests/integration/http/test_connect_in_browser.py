"""The tab Connect of the server's page in Chromium: states, the trace of a failed task, the buttons, and hostile texts."""

import json
import re

import pytest

from support.connect_plugins import Scripted
from support.connect_workers import standalone
from support.ports import free_port
from support.serving import served
from support.tools import needs

pytestmark = needs("chromium")
browsers = pytest.importorskip("support.browser", reason="playwright is not installed: pip install '.[dev]'")
from playwright.sync_api import expect  # noqa: E402 # it may be missing

MARKUP = "<img src=x onerror=alert(1)>\u202e"
PLUGINS = "support.connect_plugins:"
COUNTER = {"connector.class": f"{PLUGINS}CounterConnector", "topic": "numbers", "limit": "10"}


@pytest.fixture(scope="module")
def browser():
    with browsers.chromium() as it:
        yield it


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """With a worker that has a connector of a hostile name, whose tasks run, and a sink whose task has failed."""
    directory, port = tmp_path_factory.mktemp("connect"), free_port()
    Scripted.failures[:] = [ValueError(MARKUP)]
    sink = {"name": "sink", "connector.class": f"{PLUGINS}ScriptedConnector", "topics": "numbers"}
    with (
        served(directory / "db", connect_url=f"http://127.0.0.1:{port}") as server,
        standalone(server.url, directory, sink, listeners=f"http://127.0.0.1:{port}") as rest,
    ):
        rest.port = port
        assert rest.call("POST", "/connectors", {"name": MARKUP, "config": COUNTER})[0] == 201
        rest.await_states("sink", "RUNNING", "FAILED")
        yield server


@pytest.fixture
def page(browser, server):
    with browsers.window(browser, server.url) as it:
        it.page.goto(f"{server.url}/#/connect")
        yield it.page
        assert it.page.locator("img, script:not([src]), [onerror]").count() == 0
    assert it.complaints == []


def row(page, table, name):
    return page.get_by_role("table", name=table).get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))


def test_a_failed_task_shows_its_trace_and_is_restarted(page):
    expect(page.get_by_text("2 connectors of http://127.0.0.1")).to_be_visible()
    expect(row(page, "Connectors", "sink")).to_contain_text("1 FAILED")
    page.get_by_role("link", name="sink", exact=True).click()
    expect(row(page, "Tasks", "0")).to_contain_text("FAILED")
    trace = page.get_by_role("region", name="Trace: Task 0")
    expect(trace).to_contain_text("<img src=x onerror=alert(1)>")
    expect(trace).to_contain_text("U+202E")
    page.get_by_role("button", name="Restart task 0").click()
    expect(page.get_by_role("status")).to_have_text("Task 0 restarts.")
    expect(row(page, "Tasks", "0")).to_contain_text("RUNNING")
    expect(trace).to_have_count(0)


def test_a_connector_pauses_resumes_and_restarts(page):
    page.get_by_role("link", name=re.compile("^<img")).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(MARKUP[:-1])
    for button, said, state in (
        ("Pause", "The connector pauses.", "PAUSED"),
        ("Resume", "The connector resumes.", "RUNNING"),
        ("Restart with its tasks", "The connector and its tasks restart.", "RUNNING"),
    ):
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("status")).to_have_text(said)
        expect(row(page, "Tasks", "0")).to_contain_text(state)


def test_a_refusal_of_the_worker_is_shown(page, server):
    page.get_by_role("link", name="sink", exact=True).click()
    answer = {"error_code": 409, "message": f"a rebalance {MARKUP}"}
    page.route("**/connect/connectors/sink/pause", lambda route: route.fulfill(status=409, body=json.dumps(answer)))
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("alert")).to_contain_text("a rebalance <img")
    page.goto(f"{server.url}/#/connect/nobody")
    expect(page.get_by_text("The worker has no connector of this name.")).to_be_visible()


def test_without_a_worker_the_tab_says_how_to_name_one(browser, tmp_path):
    with served(tmp_path / "db") as server, browsers.window(browser, server.url) as it:
        it.page.goto(f"{server.url}/#/connect")
        expect(it.page.get_by_text("Start it with --connect-url URL.")).to_be_visible()
        assert it.complaints == []
