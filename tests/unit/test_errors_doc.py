"""The table of docs/errors.md has every error of the library: which are retriable, and how HTTP spells them."""

import re
from pathlib import Path

from logdb import errors
from logdb_http_api.errors import code_of

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| .+ \| (yes|no) \| (\d+) \| (\d+) \|$", re.MULTILINE)


def test_the_table_is_the_module() -> None:
    documented = {name: (retriable == "yes", (int(status), int(code))) for name, retriable, status, code in ROW.findall(PAGE)}
    raised = {
        name: (kind.retriable, code_of(kind.__new__(kind)))
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.LogdbError)
    }
    assert documented == raised
