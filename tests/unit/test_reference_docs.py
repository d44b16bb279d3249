"""docs/reference: the tables of topic configs, server options, commands and metrics are the code's."""

import re

import logdb
from logdb.model import OFFSET_MAX, TOPIC_CONFIGS
from support.reference_tables import PAGES, REFERENCE, written
from support.serving import served

UNITS = {"ms": "ms", "bytes": "bytes", "ratio": "0 to 1"}


def rows(page: str, heads: str) -> list[list[str]]:
    """The rows of all tables of a page that have these heads."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    tables = re.findall(rf"^\| {re.escape(heads)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for table in tables for row in table.splitlines()]


def test_the_topic_configs():
    documented = {
        name.strip("`"): (default.strip("`"), unit) for name, default, unit, _ in rows("topic-configs.md", "config | default | unit")
    }
    found = {}
    for name, key in TOPIC_CONFIGS.items():
        default = (
            "no limit" if key.default == OFFSET_MAX else str(key.default).lower() if isinstance(key.default, bool) else str(key.default)
        )
        found[name] = (default or "empty", UNITS.get(name.rpartition(".")[2], ""))
    assert documented == found


def test_configs_that_are_said_to_have_no_effect_have_none():
    without = {name.strip("`") for name, *_ in rows("topic-configs.md", "config | default | unit | instead")}
    stored = {name for name, key in TOPIC_CONFIGS.items() if key.meaning.startswith("stored, without effect")}
    assert stored - without == {"min.insync.replicas"}  # which a cluster obeys
    assert without <= stored


def test_the_options_and_the_commands():
    for page in PAGES:
        text = (REFERENCE / page).read_text(encoding="utf-8")
        assert written(text) == text, "python tests/support/reference_tables.py writes the tables anew"


def test_the_metrics(tmp_path):
    documented = {
        name.strip("`"): (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _ in rows("metrics.md", "metric | type | labels | meaning")
    }
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        server.database.log("t").append(b"")
        with logdb.open(server.url) as remote, remote.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.poll(timeout_ms=10_000)
            consumer.commit()
            page = server.call("/metrics")[1].decode()
    found = {
        name: (kind, set(re.findall(r'(\w+)="', labels or "")))
        for name, kind, labels in re.findall(r"^# TYPE (\w+) (\w+)\n\1(?:_bucket)?(?:\{(.*)\})? ", page, re.MULTILINE)
    }
    assert documented == found


def test_blocks_in_lists_are_indented_by_four():
    """The site's Markdown, unlike GitHub's, takes a block with two or three spaces out of its list item."""
    for page in sorted(REFERENCE.parent.rglob("*.md")):
        text = re.sub(r"^ *```.*?^ *```", "```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        lines = text.splitlines()
        begins = [line for before, line in zip(["", *lines], lines, strict=False) if not before or re.match(r" *([-*]|\d+\.) ", line)]
        wrong = [line for line in begins if (len(line) - len(line.lstrip(" "))) % 4 and line.strip()]
        assert not wrong, f"{page}: {wrong}"
