import pytest

from logdb_connect import ConfigError, ConnectError, Password
from logdb_connect.connectors import limits
from logdb_connect.connectors.sql.connection import engine_of, url_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jdbc:sqlite:/a/b.db", "sqlite+pysqlite:////a/b.db"),
        ("sqlite:////a/b.db", "sqlite+pysqlite:////a/b.db"),
        (
            "jdbc:postgresql://db.example:5433/shop?user=u&password=p&sslmode=require",
            "postgresql+psycopg2://u:***@db.example:5433/shop?sslmode=require",
        ),
        ("jdbc:postgresql://h/shop?currentSchema=s", "postgresql+psycopg2://h/shop?options=-csearch_path%3Ds"),
        ("postgresql+psycopg://h/shop", "postgresql+psycopg://h/shop"),
        ("jdbc:mysql://h:3306/shop?useSSL=false", "mysql+pymysql://h:3306/shop"),
        ("jdbc:mariadb://h/shop", "mariadb+pymysql://h/shop"),
    ],
)
def test_urls(text, expected):
    assert url_of({"connection.url": text}).render_as_string() == expected


def test_user_and_password_of_their_own():
    config = {"connection.url": "postgresql://x:y@h/shop", "connection.user": "u", "connection.password": Password("p@:/")}
    url = url_of(config)
    assert (url.username, url.password) == ("u", "p@:/") and "p@" not in str(url)


@pytest.mark.parametrize("text", ["", "shop.db", "jdbc:oracle:thin:@h:1521:x", "oracle://h/x", "jdbc:postgresql://h:port/x"])
def test_a_url_of_no_database_is_refused(text):
    with pytest.raises(ConfigError, match=r"connection\.url") as caught:
        url_of({"connection.url": text})
    assert caught.value.name == "connection.url"


def test_a_source_makes_no_database(tmp_path):
    with pytest.raises(ConnectError, match="There is no SQLite database"):
        engine_of({"connection.url": f"jdbc:sqlite:{tmp_path}/none.db"}, writes=False)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://127.0.0.2/x",
        "postgresql:///x?host=127.0.0.2",
        "mysql://127.0.0.2/x",
        "postgresql://127.0.0.1,127.0.0.2/x",
        "sqlite:////etc/x",
        "jdbc:sqlite:/etc/x",
    ],
)
def test_the_limits_of_the_worker_hold(tmp_path, text):
    limits.configure([str(tmp_path)], ["127.0.0.1", "localhost"])
    try:
        with pytest.raises(ConnectError, match="may not"):
            engine_of({"connection.url": text}, writes=True)
        engine_of({"connection.url": f"sqlite:///{tmp_path}/shop.db"}, writes=True)
        engine_of({"connection.url": "postgresql://127.0.0.1/x"}, writes=True)
    finally:
        limits.configure()
