"""Administration of a secured database by clients that authenticate: ACLs, credentials, and what each request needs."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.kafka_door import kafka_door
from support.security import secure


@pytest.fixture
def served(tmp_path):
    with kafka_door(tmp_path / "db") as served:
        secure(served.db.path, users={"admin": "secret", "alice": "secret"}, super_users=["admin"])
        served.db.create_topic("t")
        served.db.log("t").append(b"a")
        yield served


def config(served, user, password="secret", mechanism="SCRAM-SHA-256"):
    return {
        "bootstrap.servers": served.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.fixture
def admin(served):
    return AdminClient(config(served, "admin"))


def allowed(operation, kind, name, pattern=ResourcePatternType.LITERAL):
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)


def read(consumer):
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(20)
    assert message is not None
    return message.error().name() if message.error() else message.value()


def test_acls_open_what_they_say(served, admin):
    consumer = Consumer(config(served, "alice") | {"group.id": "g"})
    assert read(consumer).endswith("AUTHORIZATION_FAILED")
    acls = [
        allowed(AclOperation.READ, ResourceType.TOPIC, "t"),
        allowed(AclOperation.READ, ResourceType.GROUP, "g", ResourcePatternType.PREFIXED),
    ]
    for created in admin.create_acls(acls).values():
        created.result(20)
    assert read(consumer) == b"a"
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    any_acl = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, "User:alice", None, AclOperation.ANY, AclPermissionType.ANY)
    assert set(admin.describe_acls(any_acl).result(20)) == set(acls)
    (gone,) = admin.delete_acls([any_acl]).values()
    assert set(gone.result(20)) == set(acls)
    with pytest.raises(Exception, match="GROUP_AUTHORIZATION_FAILED"):
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    consumer.close()


def test_a_user_is_made_with_a_password(served, admin):
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion("bob", credential, b"new", b"salt" * 8)
    admin.alter_user_scram_credentials([upsertion])["bob"].result(20)
    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(20)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [(ScramMechanism.SCRAM_SHA_512, 4096)]
    bob = AdminClient(config(served, "bob", "new", "SCRAM-SHA-512"))
    assert bob.list_topics(timeout=20).topics == {}
    with pytest.raises(Exception, match="CLUSTER_AUTHORIZATION_FAILED"):
        bob.describe_user_scram_credentials(["bob"])["bob"].result(20)


def test_what_a_principal_may_not_do(served):
    alice = config(served, "alice")
    told = []
    producer = Producer(alice)
    producer.produce("t", b"b", partition=0, on_delivery=lambda error, _: told.append(error.name()))
    producer.flush(20)
    assert told == ["TOPIC_AUTHORIZATION_FAILED"]
    with pytest.raises(Exception, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        Producer(alice | {"transactional.id": "tx"}).init_transactions(20)
    consumer = Consumer(alice | {"group.id": "g"})
    consumer.subscribe(["t"])
    message = consumer.poll(20)
    assert message.error().name() == "GROUP_AUTHORIZATION_FAILED"
    consumer.close()
    assert served.db.log("t").end_offset == 1
    assert AdminClient(alice).list_consumer_groups().result(20).valid == []
