"""partition_limits.py: who may make how many partitions."""

import pytest

from logdb.access.partition_limits import PartitionLimits, Partitions
from logdb.errors import InvalidPartitions
from logdb.requests.principals import Principal

ANN, BEN = Principal("User", "ann"), Principal("User", "ben")


@pytest.fixture
def there():
    """How many partitions each topic has."""
    return {}


@pytest.fixture
def make(there):
    partitions = Partitions(PartitionLimits(partitions_per_request_max=10, partitions_per_principal_max=20, partitions_max=40))

    def make(principal, topic, count, *, bounded=True):
        with partitions.adding(principal, topic, count, lambda: there, bounded=bounded):
            there[topic] = max(count, there.get(topic, 0))

    make.partitions = partitions
    return make


def refused(make, *args, because, **options):
    with pytest.raises(InvalidPartitions, match=because) as caught:
        make(*args, **options)
    assert caught.value.count == args[2]


def test_a_request_adds_so_many(make, there):
    make(ANN, "t", 10)
    refused(make, ANN, "u", 11, because=r"topic 'u' cannot have 11 partitions: a request adds 10 at most \(partitions_per_request_max\)")
    refused(make, ANN, "t", 21, because="a request adds 10 at most")
    make(ANN, "t", 20)
    assert there == {"t": 20}


def test_a_principal_makes_so_many_unless_it_may_do_anything(make):
    make(ANN, "t", 10)
    make(ANN, "u", 9)
    refused(make, ANN, "v", 2, because=r"User:ann has made 19 since the server was started, of 20 \(partitions_per_principal_max\)")
    make(ANN, "v", 1)
    make(BEN, "w", 10)
    make(ANN, "x", 10, bounded=False)


def test_a_server_has_so_many_however_they_were_made(make, there):
    there["embedded"] = 35
    make(ANN, "t", 5)
    refused(make, BEN, "u", 1, because=r"there are 40 in all, of 40 \(partitions_max\)")
    refused(make, BEN, "u", 1, because="partitions_max", bounded=False)
    make(BEN, "t", 5)
    make(BEN, "t", 3)


def test_what_is_gone_counts_no_more(make, there):
    make(ANN, "t", 10)
    make(ANN, "u", 10)
    refused(make, ANN, "v", 1, because="partitions_per_principal_max")
    del there["t"]
    make(ANN, "v", 10)


def test_what_was_not_made_does_not_count(make):
    for _ in range(5):
        with pytest.raises(OSError, match="no room"), make.partitions.adding(ANN, "t", 10, dict, bounded=True):
            raise OSError("no room")
    make(ANN, "t", 10)
    make(ANN, "u", 10)


def test_what_is_being_made_counts(make, there):
    with make.partitions.adding(ANN, "t", 10, lambda: there, bounded=True), make.partitions.adding(ANN, "u", 9, dict, bounded=True):
        refused(make, ANN, "v", 2, because="has made 19")
        there["embedded"] = 20
        refused(make, BEN, "v", 2, because="there are 39 in all")


def test_what_is_only_checked_is_not_made(make):
    for _ in range(5):
        make.partitions.check(ANN, "t", 10, dict, bounded=True)
    with pytest.raises(InvalidPartitions):
        make.partitions.check(ANN, "t", 11, dict, bounded=True)


@pytest.mark.parametrize("value", [0, -1, True, "5"])
def test_limits_that_are_none(value):
    with pytest.raises(ValueError, match="partitions_max="):
        PartitionLimits(partitions_max=value).check()
