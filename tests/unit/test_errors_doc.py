"""The table of docs/errors.md has every error of the library, and says rightly which are retriable."""

import re
from pathlib import Path

from logdb import errors

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")


def test_the_table_is_the_module() -> None:
    documented = {name: retriable == "yes" for name, retriable in re.findall(r"^\| `(\w+)` \| .+ \| (yes|no) \|$", PAGE, re.MULTILINE)}
    raised = {
        name: error.retriable for name, error in vars(errors).items() if isinstance(error, type) and issubclass(error, errors.LogdbError)
    }
    assert documented == raised
