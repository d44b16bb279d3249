import pytest

from logdb.errors import LogdbError
from logdb_replication.config import ClusterConfig, Times, format_address, parse_address
from logdb_replication.errors import InvalidClusterConfig

CLUSTER = "6c1f9d0e-8a57-4a26-9c0c-6b8f4f0f3a11"


def node(number: int, **given: object) -> str:
    fields = {
        "number": number, "quorum": f"127.0.0.1:{7000 + number}", "controller": f"127.0.0.1:{7100 + number}",
        "http": f"http://127.0.0.1:{8000 + number}", **given,
    }  # fmt: skip
    return "[[nodes]]\n" + "".join(f"{key} = {value!r}\n" for key, value in fields.items())


NODES = [node(1), node(2), node(3)]
HEAD = f'cluster = "{CLUSTER}"\nnode = 2\n'


def written(tmp_path, text: str, secret: bytes = b"s" * 64, mode: int = 0o600) -> str:
    (tmp_path / "cluster.toml").write_text(text)
    (tmp_path / "cluster.secret").write_bytes(secret)
    (tmp_path / "cluster.secret").chmod(mode)
    return str(tmp_path / "cluster.toml")


def refused(tmp_path, text: str, **given) -> InvalidClusterConfig:
    with pytest.raises(InvalidClusterConfig) as info:
        ClusterConfig.load(written(tmp_path, text, **given))
    return info.value


def test_a_config_with_its_defaults(tmp_path):
    config = ClusterConfig.load(written(tmp_path, HEAD + "".join(NODES), b"s" * 64 + b"\n"))
    assert (config.cluster, config.node, config.secret, config.profile, config.rack) == (CLUSTER, 2, b"s" * 64, "ssd", "")
    assert config.http == ("127.0.0.1", 8002)
    assert config.own.controller == ("127.0.0.1", 7102)
    assert config.of(3).quorum == ("127.0.0.1", 7003)
    assert [known.number for known in config.nodes] == [1, 2, 3]
    assert config.advertised == {"http": ("127.0.0.1", 8002)}
    assert config.times.session_ms == 1_000
    assert config.scrub_bytes_per_second == 1 << 20
    assert "sss" not in repr(config)


def test_a_config_that_names_everything(tmp_path):
    nodes = "".join(node(number, http=f"https://board{number}:8443") for number in (3, 1, 2))
    config = ClusterConfig.load(written(tmp_path, (
        HEAD + 'secret_file = "cluster.secret"\nprofile = "sd"\nrack = "shelf"\nhttp = "0.0.0.0:8443"\nkafka = "[::]:9092"\n'
        'kafka_advertised = "board2:9092"\ntls_cert = "node.pem"\ntls_key = "/keys/node.key"\ntls_ca = "ca.pem"\n'
        "scrub_bytes_per_second = 0\n" + nodes
    )))  # fmt: skip
    assert (config.http, config.kafka) == (("0.0.0.0", 8443), ("::", 9092))
    assert config.advertised == {"http": ("board2", 8443), "kafka": ("board2", 9092)}
    assert (config.tls_cert, config.tls_key) == (str(tmp_path / "node.pem"), "/keys/node.key")
    assert config.scrub_bytes_per_second == 0
    assert config.times == Times(session_ms=6_000, heartbeat_ms=1_500, election_timeout_ms=2_000), "elections after 2 to 4 s"


@pytest.mark.parametrize(("text", "key", "reason"), [
    ("node = 1\n" + "".join(NODES), "cluster", "a UUID"),
    ('cluster = "mine"\nnode = 1\n' + "".join(NODES), "cluster", "a UUID"),
    (f'cluster = "{CLUSTER}"\nnode = 4\n' + "".join(NODES), "node", "1, 2 or 3"),
    (f'cluster = "{CLUSTER}"\nnode = true\n' + "".join(NODES), "node", "a number of [[nodes]]"),
    (HEAD, "nodes", "for each node"),
    (HEAD + "".join(NODES[:2]), "nodes", "must be 1, 3 or 5 nodes"),
    (HEAD + "".join(NODES) + node(2, quorum="a:1", controller="a:2", http="http://a:3"), "nodes", "must be 1, 3 or 5 nodes"),
    (HEAD + "".join(NODES[:2]) + node(2, quorum="a:1", controller="a:2", http="http://a:3"), "nodes.number", "must be unique"),
    (HEAD + "".join(NODES[:2]) + node(3, quorum="127.0.0.1:7001"), "nodes.address", "must be unique"),
    (HEAD + "".join(NODES[:2]) + node(3, quorum="7003"), "nodes[2].quorum", "HOST:PORT"),
    (HEAD + "".join(NODES[:2]) + node(3, http="127.0.0.1:8003"), "nodes[2].http", "http://HOST:PORT"),
    (HEAD + "".join(NODES[:2]) + node(3, http="http://127.0.0.1:8003/x"), "nodes[2].http", "http://HOST:PORT"),
    (HEAD + "".join(NODES[:2]) + node(3, http="https://127.0.0.1:8003"), "nodes.http", "http://, because tls_cert is not set"),
    (HEAD + "".join(NODES[:2]) + node(3, weight=3), "nodes[2].weight", "unknown key"),
    (HEAD + 'profile = "hdd"\n' + "".join(NODES), "profile", "'ssd' or 'sd'"),
    (HEAD + 'htp = "a:1"\n' + "".join(NODES), "htp", "unknown key"),
    (HEAD.replace("node", "nod") + "".join(NODES), "nod", "unknown key; known keys: cluster, node, secret_file, profile,"),
    (HEAD + "".join(NODES[:2]) + node(3).replace("quorum", "qorum"), "nodes[2].qorum", "known keys: number, quorum, controller, http"),
    (HEAD + 'kafka_advertised = "a:1"\n' + "".join(NODES), "kafka_advertised", "only with kafka"),
    (HEAD + 'tls_cert = "a"\n' + "".join(NODES), "tls_ca", "go together"),
    (HEAD + 'tls_key = "a"\n' + "".join(NODES), "tls_key", "only with tls_cert"),
    (HEAD + 'tls_cert = "a"\ntls_ca = "b"\n' + "".join(NODES), "nodes.http", "https://"),
    (HEAD + 'secret_file = "none"\n' + "".join(NODES), "secret_file", "the file is missing"),
    (HEAD + "scrub_bytes_per_second = 0.0\n" + "".join(NODES), "scrub_bytes_per_second", "a whole number, 0 or more"),
    (HEAD + "scrub_bytes_per_second = false\n" + "".join(NODES), "scrub_bytes_per_second", "a whole number, 0 or more"),
    (HEAD + "scrub_bytes_per_second = -1\n" + "".join(NODES), "scrub_bytes_per_second", "a whole number, 0 or more"),
    ("cluster = [", "", "no TOML"),
])  # fmt: skip
def test_a_wrong_config_names_key_value_and_what_is_allowed(tmp_path, text, key, reason):
    error = refused(tmp_path, text)
    assert error.key == key
    assert reason in str(error)
    assert str(tmp_path / "cluster.toml") in str(error)


def test_a_secret_that_others_may_read_is_refused(tmp_path):
    assert "chmod 600" in str(refused(tmp_path, HEAD + "".join(NODES), mode=0o640))


def test_a_short_secret_is_refused_and_not_shown(tmp_path):
    error = str(refused(tmp_path, HEAD + "".join(NODES), secret=b"topsecret"))
    assert "it has 9 bytes: must be 32 to 1024" in error
    assert "topsecret" not in error


def test_a_missing_file_says_what_makes_one(tmp_path):
    with pytest.raises(LogdbError, match="logdb cluster init"):
        ClusterConfig.load(str(tmp_path / "cluster.toml"))


@pytest.mark.parametrize("text", ["", "a", ":1", "a:0", "a:65536", "a:1x", "a:-1", "::1:80", "http://a:80", "a :1", "ä:1"])
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("text", ["a:1", "127.0.0.1:65535", "[::1]:80", "board-1.local:8080"])
def test_an_address_and_back(text):
    assert format_address(parse_address(text)) == text
