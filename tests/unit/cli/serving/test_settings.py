"""A flag goes before a variable, that before the file, that before the default; what is not must be named."""

import click
import pytest

from logdb.cli.serving import settings


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_toml_file(tmp_path):
    path = write(
        tmp_path, "logdb.toml", 'data_dir = "events"\nhttp = "127.0.0.1:9"\naccess_log = true\ndrain_ms = 5\n[topic]\n"retention.ms" = 7\n'
    )
    file = settings.read_file(path)
    assert file.settings == {"data_dir": "events", "http": "127.0.0.1:9", "access_log": True, "drain_ms": 5}
    assert (file.topic_config, file.ignored) == ({"retention.ms": 7}, ())


def test_a_file_of_kafka_s(tmp_path):
    path = write(
        tmp_path,
        "server.properties",
        """
        # a broker of Kafka's
        broker.id=1
        log.dirs=/data/a
        socket.request.max.bytes = 1000
        log.retention.hours=2
        log.segment.bytes=5000
        compression.type=producer
        num.io.threads=8
        broker.rack=shelf
        """,
    )
    file = settings.read_file(path)
    assert file.settings == {"data_dir": "/data/a", "body_bytes_max": 1000, "rack": "shelf"}
    assert file.topic_config == {"retention.ms": 7_200_000, "segment.bytes": 5000, "compression.type": "producer"}
    assert file.ignored == ("broker.id", "num.io.threads")


@pytest.mark.parametrize(
    ("listeners", "address"),
    [
        ("PLAINTEXT://localhost:9092", "localhost:9092"),
        ("CONTROLLER://:9093, PLAINTEXT://kafka.example:9094", "kafka.example:9094"),
        ("PLAINTEXT://:9092", "0.0.0.0:9092"),
        ("plaintext://[::1]:9092", "[::1]:9092"),
    ],
)
def test_listeners_of_kafka_s(tmp_path, listeners, address):
    lines = (f"listeners={listeners}", f"advertised.listeners={listeners}", "auto.create.topics.enable=true", "num.partitions=3")
    file = settings.read_file(write(tmp_path, "server.properties", "\n".join(lines)))
    assert file.settings == {"kafka": address, "kafka_advertised": address, "auto_create_topics": True, "num_partitions": 3}


@pytest.mark.parametrize(
    ("lines", "listener"),
    [
        ("listeners=SASL_SSL://h:1", ("SASL_SSL", "SASL_SSL")),
        ("listeners=ssl://h:1", ("SSL", "SSL")),
        (
            "listeners=CLIENTS://h:1\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT, Clients:sasl_plaintext",
            ("CLIENTS", "SASL_PLAINTEXT"),
        ),
        ("listeners=SSL://h:1\nlistener.security.protocol.map=SSL:PLAINTEXT", ("SSL", "PLAINTEXT")),
        ("listeners=A://h:1,B://h:2\ncontroller.listener.names=B\nlistener.security.protocol.map=A:SSL,B:PLAINTEXT", ("A", "SSL")),
    ],
)
def test_what_a_listener_of_kafka_s_asks_for(tmp_path, lines, listener):
    file = settings.read_file(write(tmp_path, "server.properties", lines))
    assert (file.settings["kafka"], file.listener[:2], file.ignored) == ("h:1", listener, ())


def test_kafka_s_file_may_name_no_compression_as_kafka_does(tmp_path):
    file = settings.read_file(write(tmp_path, "server.properties", "compression.type=uncompressed\n"))
    assert file.topic_config == {"compression.type": "none"}


def test_kafka_s_file_may_have_any_name(tmp_path):
    path = write(tmp_path, "broker.conf", "num.partitions : 3\nauto.create.topics.enable=TRUE\n")
    assert settings.read_file(path, of_kafka=True).settings == {"num_partitions": 3, "auto_create_topics": True}


def test_the_smaller_unit_counts(tmp_path):
    path = write(tmp_path, "server.properties", "log.retention.hours=168\nlog.retention.ms=5\nlog.retention.minutes=3\n")
    assert settings.read_file(path).topic_config == {"retention.ms": 5}
    path = write(tmp_path, "server.properties", "log.retention.hours=-1\n")
    assert settings.read_file(path).topic_config == {"retention.ms": -1}


@pytest.mark.parametrize(
    ("listeners", "advertised", "kafka", "kafka_advertised"),
    [
        (
            "PLAINTEXT://:9092,CONTROLLER://:9093",
            "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "localhost:9092",
            "localhost:9092",
        ),
        ("PLAINTEXT://:9092", "PLAINTEXT://127.0.0.1:19092", "127.0.0.1:9092", "127.0.0.1:19092"),
        ("PLAINTEXT://:9092", "PLAINTEXT://kafka.example:9092", "0.0.0.0:9092", "kafka.example:9092"),
        ("PLAINTEXT://:9092", "PLAINTEXT://:9092", "0.0.0.0:9092", "0.0.0.0:9092"),
        ("PLAINTEXT://h:9092", "PLAINTEXT://localhost:9092", "h:9092", "localhost:9092"),
        ("PLAINTEXT://:9092", None, "0.0.0.0:9092", None),
    ],
)
def test_where_kafka_s_file_listens(tmp_path, listeners, advertised, kafka, kafka_advertised):
    lines = [f"listeners={listeners}", *([f"advertised.listeners={advertised}"] if advertised else [])]
    found = settings.read_file(write(tmp_path, "server.properties", "\n".join(lines))).settings
    assert (found["kafka"], found.get("kafka_advertised")) == (kafka, kafka_advertised)


def test_overrides_of_kafka_s_file(tmp_path):
    path = write(tmp_path, "server.properties", "log.dirs=a\nnum.partitions=1\nno.such=1\n")
    file = settings.read_file(path, {"num.partitions": "3", "log.retention.ms": "5"})
    assert file == settings.File({"data_dir": "a", "num_partitions": 3}, {"retention.ms": 5}, ("no.such",))
    with pytest.raises(click.UsageError, match="--override"):
        settings.read_file(write(tmp_path, "logdb.toml", ""), {"num.partitions": "3"})


def test_times_and_sizes_take_units(tmp_path):
    path = write(tmp_path, "logdb.toml", 'drain_ms = "10s"\nbody_bytes_max = "64MiB"\nwait_ms_max = "5m"\nrequests_max = 7\n')
    expected = {"drain_ms": 10_000, "body_bytes_max": 67_108_864, "wait_ms_max": 300_000, "requests_max": 7}
    assert settings.read_file(path).settings == expected
    variables = {"LOGDB_DRAIN_MS": "10s", "LOGDB_BODY_BYTES_MAX": "64MiB", "LOGDB_WAIT_MS_MAX": "300000", "LOGDB_REQUESTS_MAX": "7"}
    assert settings.read_variables(variables).settings == expected
    for variable in ({"LOGDB_REQUESTS_MAX": "7s"}, {"LOGDB_DRAIN_MS": "7MiB"}, {"LOGDB_BODY_BYTES_MAX": "7s"}):
        with pytest.raises(click.UsageError, match="must be a whole number"):
            settings.read_variables(variable)


def test_variables():
    given = settings.read_variables(
        {
            "LOGDB_HTTP": "x:1",
            "LOGDB_INSECURE": "yes",
            "LOGDB_DRAIN_MS": "7",
            "LOGDB_TOPIC_CONFIG": "retention.ms=1,flush.ms=2",
            "LOGDB_": "x",
        }
    )
    assert given.settings == {"http": "x:1", "insecure": True, "drain_ms": 7}
    assert given.topic_config == {"retention.ms": 1, "flush.ms": 2}
    assert settings.read_variables({"LOGDB_HTTP": ""}) == settings.File({}, {})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("logdb.toml", "nonsense = 1", "unknown key 'nonsense'"),
        ("logdb.toml", "drain_ms = -1", "drain_ms=-1: must be a whole number"),
        ("logdb.toml", "drain_ms = true", "a whole number"),
        ("logdb.toml", "insecure = 7", "true or false"),
        ("logdb.toml", "http = 8080", "a text"),
        ("logdb.toml", 'durability = "maybe"', "os or interval or fsync"),
        ("logdb.toml", "topic = 5", "a table of topic configs"),
        ("logdb.toml", '[topic]\n"no.such" = 5', "no.such"),
        ("logdb.toml", "x = = y", "logdb.toml"),
        ("server.properties", "max.connections=many", "max.connections='many'"),
        ("server.properties", "log.dirs=a, b", "log.dirs='a, b': a database has one directory"),
        ("server.properties", "log.dir=a,b", "log.dir='a,b': a database has one directory"),
        ("server.properties", "auto.create.topics.enable=yes", "auto.create.topics.enable='yes': must be true or false"),
        (
            "server.properties",
            "listeners=127.0.0.1:9",
            "listeners='127.0.0.1:9': must be NAME://HOST:PORT; PLAINTEXT://127.0.0.1:9 is one",
        ),
        ("server.properties", "listeners=SSL://h", "listeners='SSL://h': must be NAME://HOST:PORT; SSL://h:9092 is one"),
        ("server.properties", "listeners=PLAINTEXT://h:port", "listeners='PLAINTEXT://h:port': must be NAME://HOST:PORT"),
        ("server.properties", "listeners=PLAINTEXT://h:99999", "listeners='PLAINTEXT://h:99999': must be NAME://HOST:PORT"),
        (
            "server.properties",
            "listeners=PLAINTEXT://:1,X://:2",
            "listeners='PLAINTEXT://:1,X://:2': must be one listener for clients, not PLAINTEXT and X",
        ),
        ("server.properties", "listeners=CONTROLLER://:1", "listeners='CONTROLLER://:1': must be a listener for clients"),
        ("server.properties", "advertised.listeners=h:1", "advertised.listeners='h:1': must be NAME://HOST:PORT"),
        ("server.properties", "listeners=X://:1", "listeners='X://:1': listener.security.protocol.map has no protocol for X"),
        (
            "server.properties",
            "listeners=X://:1\nlistener.security.protocol.map=X:TLS",
            "'X:TLS': must be one of NAME:PLAINTEXT, ",
        ),
        ("server.properties", "a=\\u12", "four hexadecimal digits"),
        ("broker.conf", "a=b", "broker.conf: read as TOML, because its name does not end in .properties: "),
        ("broker.conf", "broker.id=1", "read as TOML, because its name does not end in .properties: unknown key 'broker'"),
        ("server.properties", "log.segment.bytes=many", "segment.bytes"),
    ],
)
def test_what_a_file_may_not_say(tmp_path, name, text, said):
    with pytest.raises(click.UsageError) as caught:
        settings.read_file(write(tmp_path, name, text))
    assert said in str(caught.value)
    assert name in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(click.UsageError, match="No such file"):
        settings.read_file(str(tmp_path / "nosuch.toml"))


@pytest.mark.parametrize(("variable", "value"), [("LOGDB_DRAIN_MS", "soon"), ("LOGDB_INSECURE", "perhaps"), ("LOGDB_TOPIC_CONFIG", "x=1")])
def test_what_a_variable_may_not_say(variable, value):
    with pytest.raises(click.UsageError, match=variable):
        settings.read_variables({variable: value})


def test_which_file_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert settings.find_file(None, {}) is None
    write(tmp_path, "logdb.toml", "")
    assert settings.find_file(None, {}) == "logdb.toml"
    assert settings.find_file(None, {"LOGDB_CONFIG": "b"}) == "b"
    assert settings.find_file("a", {"LOGDB_CONFIG": "b"}) == "a"
