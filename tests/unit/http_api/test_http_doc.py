"""docs/reference/http.md has every route with what it needs, and every setting, and names no other; every limit is a setting."""

from dataclasses import fields

from logdb.cli.serving.settings import SETTINGS
from logdb_http_api.door.limits import HttpLimits
from support.http_tables import PAGE, all_routes, modules, written


def test_the_tables_are_the_routes_and_the_settings():
    page, routes = PAGE.read_text(encoding="utf-8"), all_routes()
    assert sorted(modules(page)) == sorted({route.module for route in routes})
    assert written(page, routes) == page, "python tests/support/http_tables.py writes the tables anew"


def test_every_limit_of_the_door_is_a_setting():
    assert {field.name for field in fields(HttpLimits)} <= SETTINGS.keys()
