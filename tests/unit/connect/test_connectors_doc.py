"""docs/reference/connectors.md says what the connectors are."""

import re

from logdb_connect.catalogue import PLUGINS
from logdb_connect.connectors.objects.formats import FORMATS
from logdb_connect.plugins import Plugins
from support.connector_tables import PAGE, connectors, marks, written


def test_the_tables_of_properties():
    page = PAGE.read_text()
    assert written(page) == page, "python tests/support/connector_tables.py writes the tables anew"
    assert set(marks(page)) >= set(connectors()) - {"ObjectStoreSinkConnector", "MariaDbConnector"}  # the second is MySqlConnector


def test_the_names_of_connectors():
    plugins, rows = Plugins(), re.findall(r"^\| [\w ]+ \| ((?:`[\w.]+`(?:, )?)+) \| `([\w-]+)`", PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 9
    for names, extra in rows:
        found = {plugins.connector(name) for name in re.findall(r"`([\w.]+)`", names)}
        assert len(found) == 1
        name = plugins.name_of(found.pop())
        assert next(each.extra for each in PLUGINS if each.name == name) == extra


def test_the_formats():
    assert all(f"| `{name}` |" in PAGE.read_text() for name in FORMATS)
