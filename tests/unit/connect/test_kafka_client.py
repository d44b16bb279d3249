"""A refused setting of librdkafka: its value is in the error, unless it may be secret."""

import confluent_kafka
import pytest

from logdb_connect.errors import ConfigError
from logdb_connect.kafka_client import made

SECRET = "hush-hush"


@pytest.mark.parametrize(
    ("config", "name", "value"),
    [
        ({"security.protocol": "nope"}, "security.protocol", "nope"),
        ({"sasl.password.typo": SECRET}, "sasl.password.typo", "[hidden]"),
        ({"security.protocol": SECRET}, "security.protocol", "[hidden]"),
        ({"bootstrap.servers": f"https://user:{SECRET}@host:1", "sasl.mechanism": "x"}, "bootstrap.servers", "https://host:1"),
    ],
)
def test_a_refused_setting(config, name, value):
    more = {"bootstrap.servers": "host:1", "security.protocol": "SASL_SSL", "sasl.username": "user", "sasl.password": SECRET}
    with pytest.raises(ConfigError) as raised:
        made(confluent_kafka.Producer, {**more, **config})
    assert str(raised.value).startswith(f"Invalid value {value} for configuration {name}: ")
    assert SECRET not in str(raised.value)


def test_a_short_secret_is_not_cut_out_of_words():
    """The gaps in the words would show it."""
    with pytest.raises(ConfigError) as raised:
        made(confluent_kafka.Producer, {"bootstrap.servers": "host:1", "sasl.password": "o", "security.protocol": "nope"})
    assert str(raised.value) == "Invalid value [hidden] for configuration security.protocol: librdkafka refuses it"
