"""murmur2.c: equal to Kafka's Utils.murmur2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb._native import lib

# Kafka's own UtilsTest.testMurmur2.
KNOWN = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


def murmur2(key: bytes) -> int:
    return lib.logdb_murmur2(key, len(key))


@pytest.mark.parametrize(("key", "signed"), KNOWN)
def test_known_answers(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@given(key=st.binary(max_size=40))
def test_equals_kafka_pythons(key: bytes) -> None:
    partitioner = pytest.importorskip("kafka.partitioner.default")
    assert murmur2(key) == partitioner.murmur2(key) % 2**32
