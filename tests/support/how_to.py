"""The pages of docs/how-to/, as tests need them."""

import re
from pathlib import Path
from typing import NamedTuple

DIRECTORY = Path(__file__).parents[2] / "docs/how-to"


class Fence(NamedTuple):
    """One fenced block of a page; ``title``: the name of a file, empty without one."""

    language: str
    title: str
    body: str


def fences(page: str) -> list[Fence]:
    text = (DIRECTORY / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(r'^```(\w+)(?: title="([^"]+)")?[^\n]*\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    return [Fence(*fence) for fence in found]
