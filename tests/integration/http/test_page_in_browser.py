"""The page of the server in Chromium: each tab, hostile names and values, sign-in, the keyboard, both color schemes."""

import json
import re

import pytest

import logdb
from support.certificates import Authority
from support.clustered import clustered
from support.serving import served
from support.tools import needs
from support.waiting import until

pytestmark = needs("chromium")
browsers = pytest.importorskip("support.browser", reason="playwright is not installed: pip install '.[dev]'")
from playwright.sync_api import expect  # noqa: E402 # it may be missing

MARKUP = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(2)</script>"
BIDI = "user\u202egnp.exe"
LARGE = b"x" * 1_000_000
TABS = ("Topics", "Records", "Groups", "Transactions", "Connect", "Configs", "Users", "Nodes", "Metrics")


@pytest.fixture(scope="module")
def browser():
    with browsers.chromium() as it:
        yield it


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("page") / "db") as it:
        fill(it.database)
        yield it


def fill(db):
    db.create_topic("orders", partitions=2)
    for partition in (0, 1):
        values = [
            json.dumps({"order": number, "partition": partition, "big": 12345678901234567890 + number}).encode() for number in range(300)
        ]
        db.log("orders", partition).append_many(values, keys=[b"key-%d" % number for number in range(300)])
    db.create_topic("small")
    db.log("small").append(b"1", timestamp_ms=0)
    db.create_topic("hostile")
    log = db.log("hostile")
    log.append(MARKUP.encode(), key=SCRIPT.encode(), headers=[(MARKUP, SCRIPT.encode()), ("none", None)])
    log.append(json.dumps({MARKUP: [SCRIPT, "\u202e", '"{', "\\"]}, ensure_ascii=False).encode(), key=BIDI.encode())
    log.append(LARGE)
    log.append(bytes(range(256)), key=b"\xff\xfe")
    log.append(None, key=b"")


@pytest.fixture
def longest_name(server):
    name = "n" * 249
    server.database.create_topic(name)
    yield name
    server.database.delete_topic(name)


@pytest.fixture
def window(browser, server):
    with browsers.window(browser, server.url) as it:
        yield it
    assert it.complaints == []


@pytest.fixture
def page(window):
    return window.page


def go(page, server, *parts):
    page.goto(f"{server.url}/#/{'/'.join(parts)}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()


def row(page, name):
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))


def open_record(page, name):
    button = page.get_by_role("button", name=f"Record {name}", exact=True)
    button.click()
    return page.locator("tr", has=button).locator("xpath=following-sibling::tr[1]")


# ---------------------------------------------------------------- what each tab shows


def test_topics_have_sizes_and_rates(page, server):
    go(page, server)
    expect(row(page, "orders")).to_contain_text("600")
    expect(page.get_by_role("rowheader")).to_have_text(["hostile", "orders", "small"])
    page.get_by_role("button", name="Size").click()
    expect(page.get_by_role("rowheader")).to_have_text(["hostile", "orders", "small"])
    expect(page.get_by_role("columnheader", name="Size")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("searchbox", name="Filter").fill("ord")
    expect(page.get_by_role("rowheader")).to_have_text(["orders"])
    server.call("/topics/orders", {"records": [{"value": 1}] * 50}, content_type="application/vnd.kafka.json.v2+json")
    expect(row(page, "orders")).to_contain_text("650")
    expect(row(page, "orders").get_by_role("cell").nth(3)).not_to_have_text(re.compile(r"–|^0$"))  # records/s
    page.get_by_role("link", name="orders", exact=True).click()
    expect(row(page, re.compile("^1$"))).to_contain_text("Writable")
    server.database.delete_records("orders", 0, 0)


def test_records_are_read_in_pages(page, server):
    end = server.database.log("orders", 0).end_offset
    go(page, server, "records", "orders", "0")
    buttons = page.get_by_role("button", name=re.compile(r"^Record \d"))
    expect(buttons).to_have_count(50)
    expect(buttons.first).to_have_text(f"▸ {end - 1}")
    page.get_by_role("button", name="Older").click()
    expect(buttons.first).to_have_text(f"▸ {end - 51}")
    page.get_by_label("From").select_option("an offset")
    page.get_by_role("textbox", name="Offset").fill("120")
    page.get_by_role("button", name="Read").click()
    expect(buttons.first).to_have_text("▸ 120")
    page.get_by_role("button", name="Newer").click()
    expect(buttons.first).to_have_text("▸ 170")
    whole = open_record(page, "170")
    expect(whole.get_by_role("region", name="value")).to_have_text(
        '{\n  "order": 170,\n  "partition": 0,\n  "big": 12345678901234568060\n}', use_inner_text=True
    )
    whole.get_by_label("Show value as").select_option("Hex")
    expect(whole.get_by_role("region", name="value")).to_contain_text("000000  7b 22 6f 72 64 65 72 22")


def test_pages_of_all_partitions_leave_no_record_out(page, server, topic):
    """Where times go back within a partition, and where offsets have no record."""
    db = server.database
    db.create_topic(topic, partitions=3)
    values = set()
    for partition in range(3):
        for number in range(40):
            values.add(value := f"{partition}-{number}")
            db.log(topic, partition).append(value.encode(), timestamp_ms=1_700_000_000_000 + (number * 7919 + partition) % 41)
            if number % 10 == 0:
                with db.transaction(topic) as transaction:  # its marker takes an offset
                    transaction.send(topic, f"{value}t".encode(), partition=partition)
                values.add(f"{value}t")
    go(page, server, "records", topic)
    for start, more in (("the newest", "Older"), ("the oldest", "Newer")):
        page.get_by_label("From").select_option(start)
        page.get_by_label("Count").select_option("20")
        page.get_by_role("button", name="Read").click()
        seen = []
        for end in (20, 40, 60, 80, 100, 120, 132):
            expect(page.locator("td.value")).to_have_count(min(20, end - len(seen)))
            expect(page.get_by_role("status")).to_have_text(re.compile("^(20|12) records"))
            seen += page.locator("td.value").all_text_contents()
            if end < 132:
                first = page.locator("tbody tr").first.inner_text()
                page.get_by_role("button", name=more).click()
                expect(page.locator("tbody tr").first).not_to_have_text(first)
        assert len(seen) == len(set(seen)) == 132 and set(seen) == values
    db.delete_topic(topic)


def test_times_that_no_calendar_has(page, server, topic):
    """-1 is "none"; a time that a date cannot show is a number."""
    times = [-1, -2, -62_135_596_800_001, -(2**63)]
    server.database.create_topic(topic)
    server.database.log(topic).append_many([b"v"] * 4, timestamps_ms=times)
    go(page, server, "records", topic)
    shown = ["none", "1969-12-31 23:59:59.998", "0000-12-31 23:59:59.999", re.compile(r"^-92233720368547\d+ ms$")]
    page.get_by_label("From").select_option("the oldest")
    page.get_by_role("button", name="Read").click()
    expect(page.locator("td.time")).to_have_text(shown)
    page.get_by_role("button", name="Record 0, offset 0").click()
    expect(page.locator("tr.whole dd").nth(1)).to_have_text("none")
    server.database.delete_topic(topic)


def test_records_of_a_time(page, server):
    go(page, server, "records", "small")
    expect(page.get_by_role("button", name=re.compile("^Record"))).to_have_count(1)
    expect(page.get_by_role("cell", name="1970-01-01 00:00:00.000")).to_be_visible()
    page.get_by_label("From").select_option("a time")
    page.get_by_label("Time (UTC)").fill("1970-01-01T00:00:01")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("cell", name="No records.")).to_be_visible()
    page.get_by_label("Time (UTC)").fill("1970-01-01T00:00:00")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("button", name=re.compile("^Record"))).to_have_count(1)


def test_a_search_finds_records_of_all_partitions(page, server):
    go(page, server, "records", "orders")
    page.get_by_role("searchbox", name="Search").fill("KEY-17")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("status")).to_have_text(re.compile(r"22 matches in 6\d\d records\. This is the start of the log\."))
    expect(page.get_by_role("cell", name="key-17", exact=True)).to_have_count(2)


def test_new_records_are_followed(page, server):
    go(page, server, "records", "small", "0")
    page.get_by_role("button", name="Follow").click()
    expect(page.get_by_role("status")).to_have_text("Following: 0 records came.")
    log = server.database.log("small")
    log.append_many([b"new-%d" % number for number in range(700)])
    expect(page.get_by_role("status")).to_have_text("Following: 700 records came.")
    expect(page.get_by_role("button", name=re.compile("^Record"))).to_have_count(500)
    expect(page.get_by_role("button", name=re.compile("^Record")).first).to_have_text(f"▸ {log.end_offset - 1}")
    expect(page.get_by_role("cell", name="new-699")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    (door,) = server.server._doors
    until(lambda: door.requests.taken == 0, "the end of the stream")


def test_what_is_followed_goes_on_after_the_connection_is_lost(page, server):
    go(page, server, "records", "small", "0")
    page.get_by_role("button", name="Follow").click()
    expect(page.get_by_role("status")).to_have_text("Following: 0 records came.")
    log = server.database.log("small")
    log.append(b"before")
    expect(page.get_by_role("cell", name="before")).to_be_visible()
    (door,) = server.server._doors
    for connection in list(door._connections.open):
        server.server._loop.call_soon_threadsafe(connection.transport.abort)
    log.append(b"meanwhile")
    expect(page.get_by_role("cell", name="meanwhile")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Record"))).to_have_count(2)
    page.get_by_role("button", name="Stop").click()


@pytest.mark.parametrize("name", ["billing", MARKUP, "..", "a/b?c#d%", BIDI])
def test_groups_have_lag_whatever_their_names(page, server, name):
    with server.database.consumer("orders", group_id=name, auto_offset_reset="earliest", max_poll_records=100) as consumer:
        consumer.poll(timeout_ms=10_000)
        consumer.commit()
        shown = name.replace("\u202e", "U+202E")
        go(page, server, "groups")
        lag = sum(server.database.log("orders", partition).end_offset for partition in (0, 1)) - 100
        expect(row(page, shown)).to_contain_text(f"{lag:,}" if lag > 999 else str(lag))
        page.get_by_role("link", name=shown, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Groups / {shown}")
        expect(page.get_by_role("table", name="Members").get_by_role("row")).to_have_count(2)
        expect(page.get_by_role("table", name="Partitions").get_by_role("row")).to_have_count(3)
        expect(page.get_by_text("Stable")).to_be_visible()
    server.database.delete_group(name)


def test_transactions(page, server):
    with server.database.transaction(MARKUP) as transaction:
        transaction.send("small", b"open", partition=0)
        transaction.flush()
        go(page, server, "transactions")
        expect(row(page, MARKUP)).to_contain_text("Ongoing")
        expect(row(page, MARKUP)).to_contain_text("small-0")
    expect(row(page, MARKUP)).to_contain_text("CompleteCommit")
    page.get_by_label("Only open ones").check()
    expect(row(page, MARKUP)).to_have_count(0)


def test_a_config_is_changed_and_reset(page, server):
    go(page, server, "configs", "small")
    edit = page.get_by_role("button", name="Edit max.message.bytes")
    edit.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value").fill("many")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("many")
    dialog.get_by_label("Value").fill("2000000")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("max.message.bytes is 2000000.")
    assert server.database.describe_topic("small").config["max.message.bytes"] == 2_000_000
    expect(row(page, "max.message.bytes")).to_contain_text("1048588")
    edit.click()
    dialog.get_by_role("button", name="Reset to the default").click()
    expect(page.get_by_role("status")).to_have_text("max.message.bytes has its default.")
    assert "max.message.bytes" not in server.database.describe_topic("small").config


def test_a_config_that_deletes_records_is_set_after_a_question(page, server, topic):
    db = server.database
    db.create_topic(topic, config={"segment.bytes": 16_384})
    db.log(topic).append_many([b"x" * 100] * 2_000)
    go(page, server, "configs", topic)
    page.get_by_role("button", name="Edit retention.bytes", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value").fill("65536")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("This change deletes records of 1 partition.")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert "retention.bytes" not in db.describe_topic(topic).config
    page.get_by_role("button", name="Edit retention.bytes", exact=True).click()
    dialog.get_by_label("Value").fill("65536")
    dialog.get_by_role("button", name="Save").click()
    dialog.get_by_role("button", name="Delete and save").click()
    expect(page.get_by_role("status")).to_have_text("retention.bytes is 65536.")
    assert db.describe_topic(topic).config["retention.bytes"] == 65_536
    db.delete_topic(topic)


def test_nodes_and_metrics(page, server):
    go(page, server, "nodes")
    expect(row(page, re.compile("^0$"))).to_contain_text("serves")
    expect(page.get_by_role("table", name="Voters of the quorum")).to_have_count(0)
    expect(page.get_by_text("The last opening found nothing to recover.")).to_be_visible()
    go(page, server, "metrics")
    expect(page.get_by_role("img", name=re.compile(r"^Size of all logs: now [\d.,]+ [KM]iB, at most .* in \d+ s"))).to_be_visible()
    page.get_by_role("searchbox", name="Filter").fill("log_log_size")
    expect(page.get_by_role("rowheader")).to_have_text(["kafka_log_log_size"])
    page.get_by_role("searchbox", name="Filter").fill("logdb_sync_seconds")
    expect(page.get_by_role("rowheader")).to_have_text([f"logdb_sync_seconds_{part}" for part in ("bucket", "sum", "count")])
    expect(row(page, "logdb_sync_seconds_count")).to_contain_text("How long a sync of a file or directory took.histogram")


def test_a_node_of_a_cluster_shows_all_of_it(browser, tmp_path):
    with clustered(tmp_path / "db") as cluster:
        node = cluster.nodes[1]
        with logdb.open(node.url) as db:
            db.create_topic("orders", partitions=3)
            for partition in range(3):
                db.log("orders", partition).append_many([b"%d" % partition] * 10)
        cluster.cluster.lead("orders", 2, None)
        with browsers.window(browser, node.url) as it:
            page = it.page
            page.goto(f"{node.url}/#/nodes")
            expect(page.get_by_role("table", name="Nodes").get_by_role("rowheader")).to_have_text(["1", "2", "3"])
            lacking = page.get_by_role("table", name="Partitions without all their replicas in sync")
            expect(lacking.get_by_role("row").nth(1)).to_contain_text("orders2none")
            expect(page.get_by_role("link", name=node.url.removeprefix("http://"))).to_have_count(0)
            voters = page.get_by_role("table", name="Voters of the quorum")
            expect(voters.get_by_role("rowheader")).to_have_text(["1", "2", "3"])
            expect(voters.get_by_role("row").nth(3)).to_contain_text("leads")
            expect(page.get_by_text("Node 3 leads the quorum, in term 7.")).to_be_visible()
            leader, silent, lost = cluster.cluster.quorum.voters[::-1]
            late = (lost._replace(end=None, answered_ms_ago=None), silent._replace(end=31, answered_ms_ago=65_000), leader)
            cluster.cluster.quorum = cluster.cluster.quorum._replace(voters=late)
            expect(voters.get_by_role("row").nth(2)).to_contain_text("silent for 65 s")
            expect(voters.get_by_role("row").nth(2).get_by_role("cell").last).to_have_text("9")
            expect(voters.get_by_role("row").nth(1)).to_contain_text("has not answered")
            cluster.cluster.quorum = cluster.cluster.quorum._replace(leader=None)
            expect(page.get_by_text("No voter leads the quorum, as far as this node knows.")).to_be_visible()
            other = cluster.nodes[2].url
            expect(page.get_by_role("link", name=other.removeprefix("http://"))).to_have_attribute("href", f"{other}/")
            page.goto(f"{node.url}/#/records/orders/1")
            expect(page.get_by_role("button", name=re.compile("^Record"))).to_have_count(10)
        assert it.complaints == []


# ---------------------------------------------------------------- bytes from outside


def test_hostile_records_are_text(page, server, tmp_path):
    go(page, server, "records", "hostile", "0")
    expect(page.get_by_role("button", name=re.compile("^Record"))).to_have_count(5)
    expect(page.get_by_role("cell", name=MARKUP, exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name="userU+202Egnp.exe")).to_be_visible()
    expect(page.get_by_role("cell", name="0xfffe")).to_be_visible()
    whole = open_record(page, "0")
    expect(whole.get_by_role("region", name="value")).to_have_text(MARKUP)
    expect(whole.get_by_role("table", name="Headers")).to_contain_text(SCRIPT)
    value = open_record(page, "1").get_by_role("region", name="value")
    expect(value).to_contain_text(f'"{MARKUP}": [\n    "{SCRIPT}",\n    "U+202E",\n    "\\"{{",\n    "\\\\"\n  ]', use_inner_text=True)
    whole = open_record(page, "3")
    expect(whole.get_by_role("region", name="value")).to_contain_text("000010  10 11 12")
    with page.expect_download() as download:
        whole.get_by_role("button", name="Save value").click()
    assert (download.value.suggested_filename, download.value.path().read_bytes()) == ("hostile-0-3.value", bytes(range(256)))
    assert page.locator("img, iframe, object, embed, script:not([src]), [onerror]").count() == 0


@pytest.mark.parametrize(
    "text",
    [
        '{"a":[],"b":{},"c":[{"d":[1,-2.50e+10,true,null]}],"a":"twice"}', '"a,b:[{}]\\\\"', "12345678901234567890.10", "[[[[]]]]",
        ' { "\\u202e\\"" : "\\\\" , "é\\n" :\n[ 1 ,\t2 ] } ', "[" * 5_000 + "]" * 5_000,
    ],
)  # fmt: skip
def test_json_is_indented_and_nothing_else(page, server, text):
    go(page, server)
    shown = page.evaluate("async (text) => (await import('/page/text.js')).pretty(text)", text)
    spaceless = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')
    assert spaceless.sub(r"\1", shown) == spaceless.sub(r"\1", text), "digits, escapes and duplicates are as they were"
    assert len(shown) < 100 * len(text)


def test_a_large_value_is_shown_in_parts(page, server):
    go(page, server, "records", "hostile", "0")
    whole = open_record(page, "2")
    value = whole.get_by_role("region", name="value")
    expect(value).to_have_text(re.compile("^x{20000}…$"))
    whole.get_by_role("button", name="Show all 1,000,000 bytes").click()
    expect(value).to_have_text(re.compile("^x+$"))
    assert len(value.text_content()) == len(LARGE)


def test_hostile_places_show_no_markup(page, server):
    for place in (f"topics/{MARKUP}", f"records/{SCRIPT}", f"groups/{MARKUP}", f"configs/{MARKUP}", "records/%", "topics/..", "configs/.."):
        page.goto(f"{server.url}/#/{place}")
        page.reload()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.locator("img, script:not([src])").count() == 0


def test_the_policy_stops_what_would_be_injected(browser, server):
    """That the other tests see no violation says something only if there would be one."""
    with browsers.window(browser, server.url) as it:
        go(it.page, server)
        with it.page.expect_console_message(lambda message: message.text == "violated: img-src https://evil.example/x"):
            it.page.evaluate("document.body.append(Object.assign(document.createElement('img'), {src: 'https://evil.example/x'}))")
        with it.page.expect_console_message(lambda message: message.text.startswith("violated: require-trusted-types-for")):
            wrong = it.page.evaluate("(text) => { try { document.body.innerHTML = text } catch (error) { return error.name } }", MARKUP)
        assert wrong == "TypeError", "text cannot become markup, not even by a mistake of the page"


# ---------------------------------------------------------------- users


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with served(tmp_path_factory.mktemp("secured") / "db") as it:
        db = it.database
        db.create_topic("orders")
        db.create_topic("secret")
        db.log("orders").append(b"1")
        db.security.add_user("admin", "correct hörse", super_user=True)
        db.security.add_user("alice", "battery staple")
        it.call("/health/live")
        yield it


@pytest.fixture
def guarded(browser, secured):
    with browsers.window(browser, secured.url) as it:
        yield it.page
    assert it.complaints == []


def sign_in(page, user, password):
    page.get_by_label("User", exact=True).fill(user)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_sign_in_and_sign_out(guarded, secured):
    page = guarded
    page.goto(f"{secured.url}/#/users")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_label("User", exact=True)).to_be_focused()
    sign_in(page, "admin", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("wrong password")
    expect(page.get_by_label("Password", exact=True)).to_be_focused()
    sign_in(page, "admin", "correct hörse")
    expect(page.get_by_text("Signed in as admin")).to_be_visible()
    expect(page.get_by_role("table", name="Users")).to_contain_text("alice")
    kept = page.evaluate("() => JSON.stringify([localStorage, sessionStorage, document.cookie, location.href, history.state, name])")
    assert "h\u00f6rse" not in kept and "Basic" not in kept and page.context.cookies() == []
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("alert")).to_have_text("You are signed out.")
    assert "alice" not in page.content()
    sign_in(page, "admin", "correct hörse")
    expect(page.get_by_text("Signed in as admin")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_token_signs_in_until_it_is_revoked(guarded, secured):
    page = guarded
    token, _ = secured.database.security.create_token("t", "admin")
    page.goto(f"{secured.url}/#/topics")
    page.get_by_label("Token").check()
    page.get_by_role("textbox", name="Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(row(page, "secret")).to_be_visible()
    secured.database.security.revoke_tokens("t")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("token")


def test_a_principal_sees_what_its_acls_allow(guarded, secured):
    from logdb.requests.acls import Acl
    from logdb.requests.principals import Principal

    secured.database.security.add_acls(Acl(Principal("User", "alice"), "*", "Read", "Allow", "Topic", "Literal", "orders"))
    page = guarded
    page.goto(f"{secured.url}/#/topics")
    sign_in(page, "alice", "battery staple")
    expect(page.get_by_role("rowheader")).to_have_text(["orders"])
    expect(page.get_by_text("Rates in bytes need Describe Cluster.")).to_be_visible()
    for tab, said in (
        ("Users", "You may not see users."),
        ("Nodes", "You may not see the reports of recovery."),
        ("Metrics", "You may not see metrics."),
        ("Connect", "You may not see connectors."),
    ):
        page.get_by_role("link", name=tab).click()
        expect(page.get_by_text(said)).to_be_visible()
    page.get_by_role("link", name="Configs").click()
    page.get_by_label("Topic").select_option("orders")
    expect(page.get_by_text("You may not see the configs of this topic.")).to_be_visible()
    page.get_by_role("link", name="Records").click()
    page.get_by_label("Topic").select_option("orders")
    expect(page.get_by_role("button", name=re.compile("^Record"))).to_have_count(1)


def test_over_tls_the_certificate_of_the_browser_signs_in(browser, tmp_path):
    authority = Authority(tmp_path / "ca")
    files, admin = authority.server(), authority.client("admin")
    with served(tmp_path / "db", tls_cert=files.cert, tls_key=files.key, tls_client_ca=authority.file) as server:
        server.database.security.add_user("admin", "correct horse", super_user=True)
        with browsers.window(browser, server.url, ignore_https_errors=True) as it:
            it.page.goto(f"{server.url}/#/users")
            sign_in(it.page, "admin", "wrong")
            expect(it.page.get_by_role("alert")).to_contain_text("wrong password")
            sign_in(it.page, "admin", "correct horse")
            expect(it.page.get_by_role("table", name="Users")).to_contain_text("admin")
        assert it.complaints == []
        shown = [{"origin": server.url, "certPath": admin.cert, "keyPath": admin.key}]
        with browsers.window(browser, server.url, ignore_https_errors=True, client_certificates=shown) as it:
            it.page.goto(f"{server.url}/#/users")
            expect(it.page.get_by_role("table", name="Users")).to_contain_text("admin")
            expect(it.page.get_by_role("button", name="Sign out")).to_have_count(0)
        assert it.complaints == []


# ---------------------------------------------------------------- everybody can use it


def focused(page):
    return page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent.trim()")


def test_by_keyboard_alone(page, server):
    go(page, server)
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Tab")
    for tab in TABS[:2]:
        page.keyboard.press("Tab")
        assert focused(page) == tab
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Records")
    expect(page.get_by_role("main")).to_be_focused()
    expect(page.get_by_label("Topic")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.type("small")
    expect(page.get_by_label("Topic")).to_have_value("small")
    expect(page.get_by_label("Topic")).to_be_focused()
    buttons = page.get_by_role("button", name=re.compile("^Record"))
    expect(buttons.first).to_be_visible()
    for _ in range(20):
        page.keyboard.press("Tab")
        if focused(page).startswith("Record "):
            break
    page.keyboard.press("Enter")
    expect(buttons.first).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Space")
    expect(buttons.first).to_have_attribute("aria-expanded", "false")


def test_each_tab_has_a_title_and_names_for_its_controls(page, server):
    go(page, server)
    expect(page.get_by_role("navigation", name="Tabs").get_by_role("link")).to_have_text(TABS)
    for tab in TABS:
        page.get_by_role("link", name=tab, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(tab)
        expect(page.get_by_role("link", name=tab, exact=True)).to_have_attribute("aria-current", "page")
        expect(page).to_have_title(re.compile(f"^{tab} · logdb"))
        tree = page.locator("body").aria_snapshot()
        assert not re.search(r"- (button|textbox|combobox|searchbox|checkbox|table|link)(:|$)", tree, re.MULTILINE), (
            f"without a name: {tree}"
        )
        assert page.locator("th:not([scope])").count() == 0


@pytest.mark.usefixtures("longest_name")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_both_schemes_at_each_width(browser, server, tmp_path, scheme, width):
    """Its screenshots stay in build/screenshots; in the directory of the test, if another user owns build/."""
    pictures = browsers.screenshots(f"{scheme}-{width}", tmp_path)
    with browsers.window(browser, server.url, color_scheme=scheme, viewport={"width": width, "height": 800}) as it:
        page = it.page
        for place in (
            "topics",
            "topics/orders",
            "records/hostile/0",
            "groups",
            "transactions",
            "connect",
            "configs/small",
            "users",
            "nodes",
            "metrics",
        ):
            go(page, server, place)
            expect(page.get_by_text("Loading…")).to_have_count(0)
            if place.startswith("records"):
                open_record(page, "1")
            page.screenshot(path=pictures / f"{place.replace('/', '-')}.png")
            assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), f"{place} is wider than the window"
            names = page.locator("th.data")
            assert all(box["width"] > 150 for box in (name.bounding_box() for name in names.all()) if box), (
                f"{place} cuts names into letters"
            )
        assert page.evaluate(_CONTRASTS) == []
    assert it.complaints == []
    assert len(list(pictures.glob("*.png"))) == 10


_CONTRASTS = """() => {
  const style = getComputedStyle(document.documentElement)
  const light = (name) => {
    const parts = style.getPropertyValue(name).match(/[0-9a-f]{2}/gi).map((one) => parseInt(one, 16) / 255)
    const [r, g, b] = parts.map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const pairs = [['text', 'ground'], ['text', 'raised'], ['quiet', 'ground'], ['quiet', 'raised'], ['accent', 'ground'],
    ['on-accent', 'accent'], ['bad', 'ground'], ['text', 'bad-ground'], ['mark', 'ground'], ['mark', 'raised']]
  return pairs.filter(([a, b]) => {
    const [dark, bright] = [light(`--${a}`), light(`--${b}`)].sort((one, other) => one - other)
    return (bright + 0.05) / (dark + 0.05) < 4.5
  })
}"""
"""The pairs of colors whose contrast is below 4.5 (WCAG 2.2, 1.4.3)."""
