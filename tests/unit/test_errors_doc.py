"""docs/reference/errors.md: the table has every error of the library, which are retriable, how HTTP spells them; what is above it holds."""

import re
from pathlib import Path

import pytest

import logdb
from logdb import errors
from logdb_http_api.errors import code_of

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| .+ \| (yes|no) \| (\d+) \| (\d+) \|$", re.MULTILINE)


def test_the_table_is_the_module() -> None:
    documented = {name: (retriable == "yes", (int(status), int(code))) for name, retriable, status, code in ROW.findall(PAGE)}
    raised = {
        name: (kind.retriable, code_of(kind.__new__(kind)))
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.LogdbError)
    }
    assert documented == raised


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("TypeError", lambda db: db.log("t").append("no bytes")),
        ("TypeError", lambda db: db.consumer("t").seek("t", 0)),
        ("TypeError", lambda db: db.producer(value_serializer="none")),
        ("TypeError", lambda db: db.producer(lingerms=1)),
        ("TypeError", lambda db: db.consumer("t", lingerms=1)),
        ("TypeError", lambda db: logdb.open(db.path, lingerms=1)),
        ("InvalidConfig", lambda db: db.producer(linger_ms=-1)),
        ("InvalidConfig", lambda db: db.consumer("t", max_poll_records=0)),
        ("InvalidConfig", lambda db: db.create_topic("u", config={"retention.ms": "soon"})),
        ("ValueError", lambda db: db.log("t").read_arrow(0, columns=["none"])),
        ("ValueError", lambda db: db.log("t").append(b"", durability="none")),
        ("ValueError", lambda db: db.append("t", b"", partitioner="none")),
    ],
)
def test_what_stands_above_the_table(kind, call, tmp_path) -> None:
    above = " ".join(PAGE.partition("| class |")[0].split())
    assert f"`{kind}`" in above
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        with pytest.raises((TypeError, ValueError)) as caught:
            call(db)
        assert type(caught.value).__name__ == kind
