from logdb import LogRange
from logdb_spark_source.fast_tier import layers


def test_no_partition_is_twice_in_a_layer():
    ranges = [LogRange(0, 0, 5), LogRange(0, 9, 12), LogRange(0, 20, 21), LogRange(1, 3, 4), LogRange(3, 0, 1), LogRange(3, 7, 8)]
    assert layers(ranges) == [[ranges[0], ranges[3], ranges[4]], [ranges[1], ranges[5]], [ranges[2]]]


def test_nothing_is_no_layer():
    assert layers([]) == []
