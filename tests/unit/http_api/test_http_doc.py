"""docs/http.md has every route with what it needs, and every setting, and names no other."""

from support.http_tables import PAGE, all_routes, module_of, modules, written


def test_the_tables_are_the_routes_and_the_settings():
    page, routes = PAGE.read_text(encoding="utf-8"), all_routes()
    assert sorted(modules(page)) == sorted({module_of(route) for route in routes})
    assert written(page, routes) == page, "python tests/support/http_tables.py writes the tables anew"
