import pytest

from logdb.errors import InvalidConfig
from logdb.model import TOPIC_CONFIGS, LogConfig, PartitionInfo, TopicInfo, TopicPartition, check_config


def test_strings_are_taken_as_kafkas_tools_write_them():
    given = {"segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.25", "preallocate": "true", "compression.type": "zstd"}
    parsed = {"segment.bytes": 4096, "min.cleanable.dirty.ratio": 0.25, "preallocate": True, "compression.type": "zstd"}
    assert check_config(given) == parsed


def test_kafkas_name_of_no_compression():
    assert check_config({"compression.type": "uncompressed"}) == {"compression.type": "none"}
    assert "none, uncompressed, gzip" in TOPIC_CONFIGS["compression.type"].allowed


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_every_default_is_allowed_and_rubbish_is_not(name):
    default = TOPIC_CONFIGS[name].default
    assert check_config({name: default}) == {name: default}
    assert check_config({name: str(default).lower() if isinstance(default, bool) else str(default)}) == {name: default}
    for rubbish in (None, object(), b"x"):
        with pytest.raises(InvalidConfig, match=name) as caught:
            check_config({name: rubbish})
        assert caught.value.allowed.startswith("must be")


def test_a_topics_level_overrides_the_databases():
    assert LogConfig.of({}, "os").durability == "os"
    assert LogConfig.of({"durability": "fsync"}, "os").durability == "fsync"
    assert LogConfig.of({"compression.type": "producer"}, "os").compression_type == "none"
    assert LogConfig.of({"cleanup.policy": "compact,delete"}, "os").compacted


def test_names():
    assert str(TopicPartition("a", 3)) == "a-3"


def test_a_topic_without_a_look_at_its_partitions_does_not_show_none():
    info = TopicInfo("t", "id", 3, {"retention.ms": 1})
    assert repr(info) == "TopicInfo(name='t', topic_id='id', partition_count=3, config={'retention.ms': 1}, internal=False)"
    seen = info._replace(partitions=(PartitionInfo(0, 0, 1, 70, 1, 0),))
    assert repr(seen).endswith("internal=False, partitions=(PartitionInfo(partition=0, start_offset=0, end_offset=1, size_bytes=70, "
                               "segment_count=1, leader_epoch=0, read_only_reason=None, clean_offset=0, "
                               "leader=0, replicas=(0,), in_sync=(0,), disk_bytes=None),))")  # fmt: skip
    assert (info.partitions, eval(repr(info))) == ((), info)


def test_an_empty_policy_keeps_all_records():
    assert check_config({"cleanup.policy": ""}) == {"cleanup.policy": ""}
    config = LogConfig.of(check_config({"cleanup.policy": "", "retention.ms": 1000, "retention.bytes": 1000}), "os")
    assert (config.retention_ms, config.compacted) == (-1, False)


def test_the_key_of_time_before_kafka_4_means_both_keys_of_today():
    former, before, after = (f"message.timestamp.{name}.max.ms" for name in ("difference", "before", "after"))
    assert check_config({former: "5000"}) == {before: 5000, after: 5000}
    assert check_config({after: 7, former: 5}) == {before: 5, after: 7}
    with pytest.raises(InvalidConfig, match=before):
        check_config({former: "soon"})
