import pytest

from logdb.errors import InvalidConfig
from logdb.model import TopicPartition
from logdb_spark_source.offsets import EARLIEST, LATEST, Bound
from logdb_spark_source.options import READING, ReadOptions

LEAST = {"path": "/db", "subscribe": "t"}


def options(**given):
    return ReadOptions.of(LEAST | given)


def refused(**given):
    with pytest.raises(InvalidConfig) as caught:
        ReadOptions.of(given)
    return str(caught.value)


def test_two_options_suffice_and_the_rest_has_kafkas_defaults():
    found = options()
    assert (found.place.path, found.place.urls, found.selection.topics) == ("/db", (), ("t",))
    assert found.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (found.fail_on_data_loss, found.include_headers, found.isolation_level) == (True, False, "read_uncommitted")
    assert (found.strategy, found.min_partitions, found.max_records_per_partition) == ("error", None, None)
    assert (found.max_offsets_per_trigger, found.min_offsets_per_trigger, found.max_trigger_delay_ms) == (None, None, 900_000)
    assert found.start_of_batch().of(TopicPartition("t", 0)) == EARLIEST
    assert found.end_of_batch().of(TopicPartition("t", 0)) == LATEST
    assert found.start_of_stream().of(TopicPartition("t", 0)) == LATEST


def test_names_are_compared_without_case():
    found = ReadOptions.of({"PATH": "/db", "SUBSCRIBE": "t", "includeheaders": "TRUE", "STARTINGOFFSETS": "Latest"})
    assert found.columns[-1] == "headers"
    assert found.starting == Bound("startingOffsets", "offset", LATEST)


@pytest.mark.parametrize(
    "given",
    [
        {"path": "/db"},
        {"path": "/db", "subscribe": "t", "subscribePattern": "t.*"},
        {"path": "/db", "subscribe": "t", "assign": '{"t":[0]}'},
    ],
    ids=["none", "two", "two others"],
)
def test_exactly_one_way_to_subscribe(given):
    message = refused(**given)
    assert "give exactly one of assign, subscribe, subscribePattern" in message
    for name in given.keys() - {"path"}:
        assert name in message


@pytest.mark.parametrize("given", [{}, {"path": "/db", "url": "http://h:1"}], ids=["neither", "both"])
def test_exactly_one_place(given):
    message = refused(subscribe="t", **given)
    assert "path" in message and "give exactly one of path (a directory) and url (of a server)" in message


def test_a_broker_of_kafkas_is_refused_with_a_hint():
    message = refused(subscribe="t", **{"kafka.bootstrap.servers": "localhost:9092"})
    assert "kafka.bootstrap.servers" in message and "url=http://host:port" in message


@pytest.mark.parametrize("name", ["user", "password", "token"])
def test_secrets_are_refused_and_not_shown(name):
    message = refused(url="http://h:1", subscribe="t", **{name: "geheim"})
    assert name in message and "LOGDB_TOKEN" in message and "geheim" not in message
    message = refused(url="http://me:geheim@h:1", subscribe="t")
    assert "url" in message and "LOGDB_PASSWORD" in message and "geheim" not in message


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("startingOffset", "latest", "did you mean startingOffsets?"),
        ("nonsense", "1", "there is no such option"),
        ("startingOffsets", "soon", "earliest, latest or JSON"),
        ("startingOffsets", '{"t":{"0":', "earliest, latest or JSON"),
        ("startingOffsets", '{"t":{"0":-3}}', "-2 is earliest and -1 latest"),
        ("startingOffsets", '{"t":{"x":1}}', "JSON such as"),
        ("startingOffsets", '{"t":[0]}', "JSON such as"),
        ("startingOffsets", '{"t":{"0":true}}', "JSON such as"),
        ("startingOffsets", "[]", "JSON such as"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}', "milliseconds since 1970"),
        ("startingOffsetsByTimestamp", "latest", "milliseconds since 1970"),
        ("startingTimestamp", "yesterday", "milliseconds since 1970"),
        ("endingTimestamp", "-1", "milliseconds since 1970"),
        ("endingOffsetsByTimestamp", "{", "milliseconds since 1970"),
        ("startingOffsetsByTimestampStrategy", "maybe", "error or latest"),
        ("failOnDataLoss", "no", "true or false"),
        ("includeHeaders", "1", "true or false"),
        ("minPartitions", "0", "a number, 1 or more"),
        ("maxRecordsPerPartition", "many", "a number, 1 or more"),
        ("maxOffsetsPerTrigger", "-5", "a number, 1 or more"),
        ("minOffsetsPerTrigger", "1.5", "a number, 1 or more"),
        ("maxTriggerDelay", "15 fortnights", "a time such as 15m"),
        ("isolationLevel", "snapshot", "read_uncommitted or read_committed"),
        ("kafka.isolation.level", "snapshot", "read_uncommitted or read_committed"),
        ("columns", "offset,nope", "key, value, topic, partition, offset, timestamp, timestampType, headers"),
        ("columns", "offset,offset", "each once"),
        ("columns", "", "at least one"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(name, value, says):
    message = refused(**LEAST, **{name: value})
    assert name.lower() in message.lower() and says in message


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("assign", "t", 'JSON such as {"topic":[0,1]}'),
        ("assign", '{"t":{"0":1}}', 'JSON such as {"topic":[0,1]}'),
        ("assign", '{"t":[-1]}', 'JSON such as {"topic":[0,1]}'),
        ("assign", '{"t":[]}', "at least one partition"),
        ("assign", '{"t":[0,0]}', "each once"),
        ("subscribe", " , ", "names of topics"),
        ("subscribePattern", "(", "regular expression"),
        ("subscribePattern", "", "regular expression"),
    ],
)
def test_a_selection_that_is_none(name, value, says):
    message = refused(path="/db", **{name: value})
    assert name in message and says in message


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("path", "", "a directory"),
        ("path", "hdfs://name/db", "file:///data/db"),
        ("path", "http://h:1", "url"),
        ("url", "/db", "http://host:port"),
        ("url", "ftp://h", "http://host:port"),
        ("url", "", "http://host:port"),
    ],
)
def test_a_place_that_is_none(name, value, says):
    message = refused(subscribe="t", **{name: value})
    assert name in message and says in message


def test_paths_are_absolute_and_may_be_uris(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert options(path="db").place.path == str(tmp_path / "db")
    assert options(path="file:///data/db").place.path == "/data/db"
    assert ReadOptions.of({"url": "http://a:1, http://b:2", "subscribe": "t"}).place.urls == ("http://a:1", "http://b:2")


def test_assign_and_subscribe_take_lists():
    assert ReadOptions.of({"path": "/db", "assign": '{"u":[1],"t":[2,0]}'}).selection.assigned == (
        TopicPartition("t", 0),
        TopicPartition("t", 2),
        TopicPartition("u", 1),
    )
    assert options(subscribe="b, a,b").selection.topics == ("a", "b")


def test_one_timestamp_counts_before_timestamps_and_they_before_offsets():
    offsets, times, time = {"startingOffsets": "earliest"}, {"startingOffsetsByTimestamp": '{"t":{"0":7}}'}, {"startingTimestamp": "9"}
    assert options(**offsets, **times, **time).starting == Bound("startingTimestamp", "timestamp_ms", 9)
    assert options(**offsets, **times).starting == Bound("startingOffsetsByTimestamp", "timestamp_ms", {TopicPartition("t", 0): 7})
    assert options(**offsets).starting == Bound("startingOffsets", "offset", EARLIEST)
    offsets, times, time = {"endingOffsets": "latest"}, {"endingOffsetsByTimestamp": '{"t":{"0":7}}'}, {"endingTimestamp": "9"}
    assert options(**offsets, **times, **time).ending == Bound("endingTimestamp", "timestamp_ms", 9)
    assert options(**offsets, **times).ending == Bound("endingOffsetsByTimestamp", "timestamp_ms", {TopicPartition("t", 0): 7})
    with pytest.raises(InvalidConfig, match="endingOffsets"):  # what does not count is to be right, too
        options(endingOffsets="{", endingTimestamp="9")


@pytest.mark.parametrize("value", ["latest", '{"t":{"0":-1}}'])
def test_a_batch_does_not_begin_at_the_end(value):
    with pytest.raises(InvalidConfig, match="startingOffsets=-1: a batch cannot begin at latest"):
        options(startingOffsets=value).start_of_batch()
    options(startingOffsets=value).start_of_stream()


@pytest.mark.parametrize("value", ["earliest", '{"t":{"0":-2}}'])
def test_a_batch_does_not_end_at_the_begin(value):
    with pytest.raises(InvalidConfig, match="endingOffsets=-2: a batch cannot end at earliest"):
        options(endingOffsets=value).end_of_batch()


@pytest.mark.parametrize(
    ("name", "value"), [("endingOffsets", "latest"), ("endingTimestamp", "5"), ("endingOffsetsByTimestamp", '{"t":{"0":1}}')]
)
def test_a_stream_has_no_end(name, value):
    with pytest.raises(InvalidConfig, match=f"{name}.*only batches have an end"):
        options(**{name: value}).start_of_stream()


def test_a_timestamp_of_1_is_not_latest():
    options(startingOffsetsByTimestamp='{"t":{"0":1}}').start_of_batch()


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("10s", 10_000), ("500ms", 500), ("500", 500), ("1h", 3_600_000), (" 2 D ", 172_800_000), ("0s", 0)]
)
def test_times_are_written_as_sparks(text, ms):
    assert options(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_the_least_is_not_over_the_most():
    with pytest.raises(InvalidConfig, match="minOffsetsPerTrigger=6: at most maxOffsetsPerTrigger=5"):
        options(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
    assert options(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5").min_offsets_per_trigger == 5


@pytest.mark.parametrize("name", ["isolationLevel", "kafka.isolation.level"])
def test_the_isolation_level_has_two_spellings(name):
    assert options(**{name: "read_committed"}).isolation_level == "read_committed"


def test_what_only_a_broker_needs_is_taken_and_has_no_effect():
    assert options(**{"kafka.fetch.max.bytes": "1", "kafkaConsumer.pollTimeoutMs": "5", "fetchOffset.numRetries": "3"}) == options()


def test_every_option_is_in_the_documentation():
    from pathlib import Path

    text = Path(__file__).parents[3].joinpath("docs/reference/spark.md").read_text()
    assert [name for name in READING if f"`{name}`" not in text] == []
