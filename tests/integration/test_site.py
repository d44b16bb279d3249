"""The site of docs/: it is built without a warning, and its pages load nothing from elsewhere."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"""<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"|url\(["']?([^"')]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return directory


def test_every_page_is_on_a_shelf(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {page.relative_to(site) for page in site.rglob("*.html")}
    shelves = (site / "index.html").read_text(encoding="utf-8")
    for shelf in ("Tutorial", "How-to", "Reference", "Inside"):
        assert re.search(rf'class="md-tabs__link">\s*{shelf}\s*<', shelves), shelf
    assert (site / "search" / "search_index.json").exists()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in [*site.rglob("*.html"), *site.rglob("*.css")]:
        for target in map("".join, LOADED.findall(page.read_text(encoding="utf-8"))):
            assert not re.match(r"(https?:)?//", target), f"{page.relative_to(site)} loads {target}"


def test_the_api_page_has_every_public_name(site: Path) -> None:
    import logdb

    def is_own(module: ModuleType, name: str) -> bool:
        it = getattr(module, name)
        of_it = getattr(it, "__module__", "") == module.__name__ and getattr(it, "__name__", "") == name
        return of_it and name[0] != "_" and not isinstance(it, TypeVar)

    def parts(module: ModuleType) -> list[str]:
        given = getattr(module, "__all__", [name for name in vars(module) if is_own(module, name)])
        return [f"{module.__name__}.{name}" for name in given if not isinstance(getattr(module, name), ModuleType)]

    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    fixtures = importlib.import_module("logdb.testing.fixtures")
    modules = [getattr(logdb, name) for name in logdb.__all__ if isinstance(getattr(logdb, name), ModuleType)]
    modules.remove(logdb.errors)  # they have a page of their own
    names = [name for module in (logdb, *modules, fixtures) for name in parts(module)]
    assert {"logdb.aio.Table", "logdb.serde.Serde", "logdb.testing.Clock", "logdb.testing.broker"} <= set(names)
    assert {f"logdb.testing.fixtures.logdb_{one}" for one in ("database", "broker", "server", "clock")} <= set(names)
    assert [name for name in names if f'id="{name}"' not in page] == []
