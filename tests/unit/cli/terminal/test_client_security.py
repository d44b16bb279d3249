import click
import pytest

from logdb.cli.terminal import properties
from logdb.cli.terminal.client_security import ClientSecurity, of_properties

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\\\"ice" password=\'a b;\';'


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", ClientSecurity()),
        ("security.protocol=SASL_PLAINTEXT\nsasl.jaas.config=X required username=u password=p;", ClientSecurity(user="u", password="p")),
        (f"security.protocol=sasl_plaintext\nsasl.jaas.config={SCRAM}", ClientSecurity(user='al"ice', password="a b;")),
        ("security.protocol=SASL_SSL\nsasl.username=u\nsasl.password=p=q\nssl.ca.location=ca", ClientSecurity(True, "u", "p=q", "ca")),
        ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=ca", ClientSecurity(True, ca_file="ca")),
        ("security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location=me", ClientSecurity(True, cert_file="me")),
        ("security.protocol=PLAINTEXT\nssl.truststore.location=ca.jks\nsasl.username=u", ClientSecurity()),
    ],
)  # fmt: skip
def test_properties(lines, expected):
    assert of_properties(properties.parse(lines)) == expected


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("security.protocol=TLS", "must be PLAINTEXT, SSL"),
        ("security.protocol=SASL_SSL", "needs username and password"),
        ("security.protocol=SSL\nssl.truststore.location=ca.jks", "ssl.truststore.type=PEM"),
    ],
)
def test_what_properties_may_not_say(lines, said):
    with pytest.raises(click.UsageError, match=said):
        of_properties(properties.parse(lines))


def test_a_value_of_several_lines():
    text = """
# a comment does not go on \\
security.protocol=SASL_PLAINTEXT
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="ann" \\
    password="secret";
"""
    assert of_properties(properties.parse(text)) == ClientSecurity(user="ann", password="secret")
