from logdb_connect.rest.routes import routes
from support.connect_tables import PAGE, written


def test_the_tables_of_the_page_are_those_of_the_definitions():
    text = PAGE.read_text()
    assert written(text) == text, "python tests/support/connect_tables.py writes the tables anew"


def test_the_page_names_every_route():
    text = PAGE.read_text()
    for route in routes:
        last = [part for part in route.path.split("/") if part and not part.startswith("{")]
        assert not last or last[-1] in text, route.path
