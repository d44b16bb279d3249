"""Who a Kafka client is: SASL and TLS by clients from their packages, and what the wire lets nobody do."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import ssl
import struct
import subprocess
import sys
import warnings

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer

import logdb
import logdb.testing
from logdb.access import security_document
from logdb.io import IO
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from logdb.store.security_file import SecurityFile
from logdb_kafka_api.errors import Code
from logdb_kafka_api.sasl import MECHANISMS
from support.batches import Rec, encode_batch
from support.certificates import Authority
from support.cluster_wire import wire_to
from support.kafka_wire import Wire, fetch, produce
from support.security import acl, secure
from support.tools import needs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by importlib.resources.read_text
    import kafka

PASSWORDS = {"alice": "wonder,land=", "a,=b": "x", "eve": "drop"}
ACLS = ("Allow alice@* All Topic t", "Allow alice@* IdempotentWrite Cluster kafka-cluster", "Allow a,=b@* Write Topic t")
BATCH = encode_batch([Rec(b"k", b"v")])


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@contextlib.contextmanager
def guarded(**options):
    with logdb.testing.broker(**options) as running:
        running.database.create_topic("t")
        running.database.create_topic("secret")
        secure(running.database.path, *ACLS, users=PASSWORDS)
        yield running


@pytest.fixture(scope="module")
def broker():
    with guarded() as running:
        yield running


@pytest.fixture(scope="module")
def attacked():
    """Another one for logins that fail: after some of them an address has to wait; or do not come in time."""
    with guarded(header_timeout_ms=3000) as running:
        yield running


@pytest.fixture(scope="module")
def secured(authority):
    files = authority.server()
    options = {"tls_cert": files.cert, "tls_key": files.key, "tls_client_ca": authority.file}
    with logdb.testing.broker(**options) as running:
        running.database.create_topic("t")
        secure(running.database.path, *ACLS, users=PASSWORDS)
        yield running


@pytest.fixture
def wire(broker):
    with wire_to(broker.bootstrap_servers) as one:
        yield one


# ---------------------------------------------------------------- clients


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "a,=b"])
def test_confluent_kafka(broker, mechanism, user):
    confluent_produces(broker, mechanism, user)


def confluent_produces(broker, mechanism, user, **options):
    told = []
    producer = confluent_kafka.Producer({
        "bootstrap.servers": broker.bootstrap_servers,
        "log_level": 0,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
        **options,
    })  # fmt: skip
    producer.produce("t", b"v", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(20) == 0
    assert told == [None]


@needs("kcat")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat(broker, mechanism):
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": "alice"}
    settings |= {"sasl.password": PASSWORDS["alice"]}
    kcat = ["kcat", "-P", "-t", "t", "-b", broker.bootstrap_servers, *(f"-X{name}={value}" for name, value in settings.items())]
    done = subprocess.run(kcat, input="v\n", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_over_tls(secured, authority, mechanism):
    confluent_produces(secured, mechanism, "alice", **{"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.file)})


def test_a_certificate_says_who_a_client_is(secured, authority):
    files, told = authority.client("alice"), []
    producer = confluent_kafka.Producer({
        "bootstrap.servers": secured.bootstrap_servers,
        "log_level": 0,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(files.cert),
        "ssl.key.location": str(files.key),
    })  # fmt: skip
    for topic in ("t", "other"):
        producer.produce(topic, b"v", on_delivery=lambda error, message: told.append((message.topic(), error and error.name())))
    assert producer.flush(20) == 0
    assert sorted(told) == [("other", "TOPIC_AUTHORIZATION_FAILED"), ("t", None)]  # _UNKNOWN_TOPIC would tell alice that it is not there


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker, mechanism):
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_plain_username": "alice"}
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, sasl_plain_password=PASSWORDS["alice"], **options)
    assert producer.send("t", b"v").get(20).offset >= 0
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_over_tls(secured, authority, mechanism):
    async def run():
        async with AIOKafkaProducer(
            bootstrap_servers=secured.bootstrap_servers,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=str(authority.file)),
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORDS["alice"],
        ) as producer:
            return (await producer.send_and_wait("t", b"v")).offset

    assert asyncio.run(run()) >= 0


# ---------------------------------------------------------------- frame by frame


def plain(wire, user, password, version=2):
    wire.ask("SaslHandshake", 1, mechanism="PLAIN")
    return wire.ask("SaslAuthenticate", version, auth_bytes=f"\0{user}\0{password}".encode())


def test_a_client_may_do_what_the_acls_say(wire):
    assert plain(wire, "alice", PASSWORDS["alice"])["error_code"] == Code.NONE
    assert produce(wire, BATCH)["error_code"] == Code.NONE
    assert fetch(wire)["error_code"] == Code.NONE
    assert produce(wire, BATCH, topic="secret")["error_code"] == Code.TOPIC_AUTHORIZATION_FAILED
    assert produce(wire, b"no batch", topic="secret")["error_code"] == Code.TOPIC_AUTHORIZATION_FAILED
    assert fetch(wire, topic="secret")["error_code"] == Code.TOPIC_AUTHORIZATION_FAILED
    metadata = wire.ask("Metadata", 9, topics=[{"name": "secret"}, {"name": "no-such"}, {"name": "t"}], allow_auto_topic_creation=True)
    assert [one["error_code"] for one in metadata["topics"]] == [Code.TOPIC_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED, 0]
    assert [one["name"] for one in wire.ask("Metadata", 9, topics=None)["topics"]] == ["t"]
    asked = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    assert wire.ask("CreateTopics", 5, topics=[asked])["topics"][0]["error_code"] == Code.TOPIC_AUTHORIZATION_FAILED
    assert wire.ask("DeleteTopics", 5, topic_names=["secret"])["responses"][0]["error_code"] == Code.TOPIC_AUTHORIZATION_FAILED
    assert wire.ask("FindCoordinator", 2, key="g", key_type=0)["error_code"] == Code.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "x"), ("eve", ""), ("", "x")])
def test_a_wrong_password_is_told_and_ends_the_connection(attacked, user, password):
    with wire_to(attacked.bootstrap_servers) as wire:
        answer = plain(wire, user, password)
        assert answer["error_code"] == Code.SASL_AUTHENTICATION_FAILED and answer["error_message"]
        assert wire.is_closed()


def test_messages_without_a_header_follow_the_first_version_of_the_handshake(wire):
    wire.ask("SaslHandshake", 0, mechanism="PLAIN")
    token = b"\0alice\0" + PASSWORDS["alice"].encode()
    wire.socket.sendall(struct.pack(">i", len(token)) + token)
    assert wire.receive() == b""
    assert produce(wire, BATCH)["error_code"] == Code.NONE


@pytest.mark.parametrize("name", ["Metadata", "Produce"])
def test_nothing_is_answered_before_authentication(wire, name):
    assert wire.ask("ApiVersions", 3)["error_code"] == Code.NONE
    wire.send(name, 3, topics=None, acks=1, timeout_ms=1, topic_data=[])
    assert wire.is_closed()


def test_sasl_in_the_wrong_order(wire):
    assert wire.ask("SaslHandshake", 1, mechanism="GSSAPI") == {
        "error_code": Code.UNSUPPORTED_SASL_MECHANISM,
        "mechanisms": list(MECHANISMS),
    }
    assert wire.ask("SaslAuthenticate", 1, auth_bytes=b"\0alice\0x")["error_code"] == Code.ILLEGAL_SASL_STATE
    assert wire.is_closed()


def test_sasl_is_for_clients_that_are_not_authenticated(wire):
    plain(wire, "alice", PASSWORDS["alice"])
    assert wire.ask("SaslHandshake", 1, mechanism="PLAIN")["error_code"] == Code.ILLEGAL_SASL_STATE
    with logdb.testing.broker() as free, wire_to(free.bootstrap_servers) as other:
        assert other.ask("SaslHandshake", 1, mechanism="PLAIN")["error_code"] == Code.ILLEGAL_SASL_STATE


def test_a_large_frame_before_authentication_closes_the_connection(wire):
    wire.socket.sendall(struct.pack(">ih", 70_000, 36))
    assert wire.is_closed()


def test_a_client_that_does_not_authenticate_is_closed(attacked):
    with wire_to(attacked.bootstrap_servers) as wire:
        wire.ask("ApiVersions", 3)
        wire.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-256")
        assert wire.is_closed()


def test_a_revoked_credential_ends_the_connection(broker):
    with wire_to(broker.bootstrap_servers) as wire:
        plain(wire, "eve", "drop")
        assert wire.ask("Metadata", 9, topics=None)["topics"] == []
        secure(broker.database.path, *ACLS, users={**PASSWORDS, "eve": "another"})
        wire.send("Metadata", 9, topics=None)
        assert wire.is_closed()
        secure(broker.database.path, *ACLS, users=PASSWORDS)


def change(broker, **fields):
    """Change fields of ``security.json``; passwords stay, so that clients stay authenticated."""
    security_document.change(SecurityFile(IO(), broker.database.path), lambda content: (content._replace(**fields), None))


def test_a_right_that_is_taken_away_is_missed_by_the_next_of_repeated_requests(broker):
    with Wire(broker.bootstrap_servers) as wire:
        plain(wire, "alice", PASSWORDS["alice"])
        offsets = [produce(wire, BATCH)["base_offset"] for _ in range(4)]
        change(broker, acls=())
        assert produce(wire, BATCH)["error_code"] == Code.TOPIC_AUTHORIZATION_FAILED
        change(broker, acls=tuple(map(acl, ACLS)))
        assert produce(wire, BATCH)["base_offset"] == offsets[-1] + 1
        secure(broker.database.path, *ACLS, users={**PASSWORDS, "alice": "another"})
        data = [{"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]
        wire.send("Produce", 9, acks=-1, timeout_ms=1000, topic_data=data)
        assert wire.is_closed()
        secure(broker.database.path, *ACLS, users=PASSWORDS)


def test_repeated_requests_of_a_client_that_gets_a_quota_are_delayed(broker):
    with Wire(broker.bootstrap_servers) as wire:
        plain(wire, "alice", PASSWORDS["alice"])
        for _ in range(4):
            assert produce(wire, BATCH)["error_code"] == Code.NONE
        change(broker, quotas={Principal("User", "alice"): Quota(produce_bytes=1)})
        data = [{"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]
        assert wire.ask("Produce", 9, acks=-1, timeout_ms=1000, topic_data=data)["throttle_time_ms"] > 0
        change(broker, quotas={})


# ---------------------------------------------------------------- SCRAM, by hand


def scram(wire, user, password, *, mechanism="SCRAM-SHA-256", channel="n,,", repeated="", forge=lambda final: final):
    """What a client of RFC 5802 does; returns the answers to both messages, and the signature that the server has to show."""
    name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    wire.ask("SaslHandshake", 1, mechanism=mechanism)
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=abc"
    first = wire.ask("SaslAuthenticate", 1, auth_bytes=f"{channel}{bare}".encode())
    if first["error_code"]:
        return first, None, None
    parts = dict(part.split("=", 1) for part in bytes(first["auth_bytes"]).decode().split(","))
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    without_proof = f"c={base64.b64encode(channel.encode()).decode()},r={repeated}{parts['r']}"
    message = f"{bare},{bytes(first['auth_bytes']).decode()},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), message, name)
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True))).decode()
    final = wire.ask("SaslAuthenticate", 1, auth_bytes=forge(f"{without_proof},p={proof}").encode())
    return first, final, b"v=" + base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", name), message, name))


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
@pytest.mark.parametrize("channel", ["n,,", "y,,", "n,a=alice,"])
def test_scram(wire, mechanism, channel):
    _, final, signature = scram(wire, "alice", PASSWORDS["alice"], mechanism=mechanism, channel=channel)
    assert (final["error_code"], bytes(final["auth_bytes"])) == (Code.NONE, signature)
    assert produce(wire, BATCH)["error_code"] == Code.NONE


def test_scram_of_a_client_that_repeats_its_part_of_the_nonce(wire):
    _, final, signature = scram(wire, "alice", PASSWORDS["alice"], repeated="abc")
    assert (final["error_code"], bytes(final["auth_bytes"])) == (Code.NONE, signature)


@pytest.mark.parametrize(
    "forge",
    [
        lambda final: final[:-8] + "AAAAAAA=",
        lambda final: final.replace("r=abc", "r=abd"),
        lambda final: final.replace("c=biws", "c=eSws"),
        lambda final: final.partition(",p=")[0],
        lambda final: final.partition(",p=")[0] + ",p=AAAA",
        lambda final: "",
        lambda final: "\udcff".encode(errors="surrogateescape").decode("latin-1"),
    ],
)
def test_a_forged_proof(attacked, forge):
    with wire_to(attacked.bootstrap_servers) as wire:
        _, final, _ = scram(wire, "alice", PASSWORDS["alice"], forge=forge)
        assert final["error_code"] == Code.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed()


def test_scram_tells_nobody_which_users_there_are():
    answers = []
    with guarded() as fresh:
        for user in ("nobody", "nobody", "alice", "alice"):
            with wire_to(fresh.bootstrap_servers) as wire:
                first, final, _ = scram(wire, user, "wrong")
                answers.append((bytes(first["auth_bytes"]).split(b",")[1:], final["error_message"]))
    assert answers[0] == answers[1] and answers[2] == answers[3]
    assert [len(salt) for (salt, _), _ in answers] == [len(answers[0][0][0])] * 4


@pytest.mark.parametrize(
    "first", [b"", b"n,,n=,r=a", b"n,,r=a,n=b", b"p=tls-unique,,n=alice,r=a", b"n,a=eve,n=alice,r=a", b"n,,n=a=2,r=a", b"\xff"]
)
def test_what_is_no_first_message(wire, first):
    wire.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-512")
    assert wire.ask("SaslAuthenticate", 1, auth_bytes=first)["error_code"] == Code.SASL_AUTHENTICATION_FAILED
    assert wire.is_closed()


# ---------------------------------------------------------------- TLS


def test_a_client_without_tls_is_closed(secured):
    with wire_to(secured.bootstrap_servers) as wire:
        wire.send("ApiVersions", 0)
        assert wire.is_closed()
    with pytest.raises(logdb.errors.LogdbError, match="this port speaks TLS"):
        logdb.open(f"http://{secured.bootstrap_servers}")


def test_a_public_address_needs_tls_and_authentication(tmp_path):
    with logdb.open(tmp_path / "db") as db, pytest.raises(logdb.errors.InsecureAddress):
        logdb.serve(db, kafka="0.0.0.0:0")


def test_clients_are_told_the_advertised_address():
    with logdb.testing.broker(kafka_advertised="kafka.example:9093") as broker, Wire(broker.bootstrap_servers) as wire:
        assert [(one["host"], one["port"]) for one in wire.ask("Metadata", 9, topics=None)["brokers"]] == [("kafka.example", 9093)]
    with pytest.raises(ValueError, match="must be host:port"), logdb.testing.broker(kafka_advertised="kafka.example"):
        pass


def test_clients_are_told_the_rack():
    with logdb.testing.broker(rack="shelf") as broker, Wire(broker.bootstrap_servers) as wire:
        config = {"resource_type": 4, "resource_name": "0", "configuration_keys": ["broker.rack"]}
        (told,) = wire.ask("DescribeConfigs", 4, resources=[config])["results"][0]["configs"]
        brokers = wire.ask("Metadata", 9, topics=None)["brokers"] + wire.ask("DescribeCluster", 0)["brokers"]
    assert [*(one["rack"] for one in brokers), told["value"]] == ["shelf"] * 3


@pytest.mark.parametrize(
    ("option", "value"),
    [("num_partitions", 0), ("num_partitions", 100_001), ("kafka_advertised", "kafka.example"), ("kafka_advertised", "kafka.example:0")],
)
def test_an_option_that_no_client_could_use_is_refused_at_the_start(option, value):
    with pytest.raises(ValueError, match=f"{option}={value!r}: (must be 1 to 100000|must be host:port, the port in .1, 65535.)"):
        logdb.testing.broker(**{option: value}).__enter__()


def test_http_at_the_address_of_the_kafka_door_is_as_secured(secured, authority):
    with logdb.open(f"https://{secured.bootstrap_servers}", user="alice", password=PASSWORDS["alice"], ca_file=authority.file) as db:
        assert [info.name for info in db.topics()] == ["t"]
    with (
        pytest.raises(logdb.errors.AuthenticationFailed),
        logdb.open(f"https://{secured.bootstrap_servers}", ca_file=authority.file) as db,
    ):
        db.topics()


def test_kafka_s_tools_take_the_properties_of_its_clients(secured, authority, tmp_path):
    lines = ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "ssl.truststore.type=PEM", f"ssl.truststore.location={authority.file}")
    login = f'sasl.jaas.config=PlainLoginModule required username="alice" password="{PASSWORDS["alice"]}";'
    (tmp_path / "client.properties").write_text("\n".join([*lines, login]))
    flags = ("--bootstrap-server", secured.bootstrap_servers, "--command-config", str(tmp_path / "client.properties"))
    command = [sys.executable, "-m", "logdb.cli", "kafka-topics.sh", "--list", *flags]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "t\n"
