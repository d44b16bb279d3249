import pytest

from logdb_connect.errors import ConfigError, ConnectError
from logdb_connect.properties import read, read_connector


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_as_java_reads_it(tmp_path):
    text = "# comment\n! another\nname = a\\\n   b \nkey\\ with\\=signs:value=1\nempty\ntab=\\t|\nuni=\\u00e4ä\n"
    assert read(written(tmp_path, "w.properties", text)) == {
        "name": "ab",
        "key with=signs": "value=1",
        "empty": "",
        "tab": "|",
        "uni": "ää",
    }


@pytest.mark.parametrize("text", ['{"name": "a", "config": {"tasks.max": 2, "x": true}}', '{"name": "a", "tasks.max": 2, "x": true}'])
def test_a_connector_as_json(tmp_path, text):
    assert read_connector(written(tmp_path, "c.json", text)) == {"name": "a", "tasks.max": "2", "x": "true"}


def test_errors_name_the_file(tmp_path):
    with pytest.raises(ConnectError, match=r"missing\.properties: No such file"):
        read(str(tmp_path / "missing.properties"))
    with pytest.raises(ConfigError, match='Missing required configuration "name"'):
        read_connector(written(tmp_path, "c.properties", "connector.class=FileStreamSource\n"))
    with pytest.raises(ConnectError, match=r"c\.json"):
        read_connector(written(tmp_path, "c.json", "{"))
