"""Programs of examples/spark and those of the same name on Kafka Streams: the same input on one served logdb, the same output.

Skipped, with the reason, where Java or Maven are missing.
"""

import subprocess
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

import logdb
from benches.peers.kafka.jars import PLATFORM
from examples.spark import enriched_orders, page_views, word_count
from logdb_spark_source import streams
from support.java import compiled, java, running
from support.spark import until_started

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).parents[3] / "examples" / "spark"
BEGIN_MS = int(datetime(2026, 3, 1, 8, 57, tzinfo=UTC).timestamp() * 1_000)
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    if (reason := PLATFORM.missing()) is not None:
        pytest.skip(reason)
    found = tmp_path_factory.mktemp("classes")
    for name in ("WordCount", "EnrichedOrders", "PageViews"):
        compiled(EXAMPLES / f"{name}.java", found)
    return found


@pytest.fixture
def kafka_streams(classes, tmp_path):
    """Runs a program of Kafka Streams until something holds."""

    def run(program, address, topic, until):
        file = tmp_path / "streams.properties"
        more = {"bootstrap.servers": address, "commit.interval.ms": 100, "statestore.cache.max.bytes": 0, "state.dir": tmp_path / "state"}
        file.write_text((EXAMPLES / file.name).read_text() + "".join(f"{name}={value}\n" for name, value in more.items()))
        with running(java(program, file, topic, classes=classes), tmp_path / "log") as started:
            started.until(until, 120)

    return run


@pytest.fixture
def server(tmp_path):
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0", kafka="127.0.0.1:0", drain_ms=0) as serving:
        yield db, {"url": serving.addresses[0]}, serving.addresses[1]


def finished(make):
    until_started(lambda: make().awaitTermination())


def put(db, topic, *rows):
    """Append (key, value, milliseconds behind BEGIN_MS)."""
    for key, value, at in rows:
        db.append(topic, None if value is None else value.encode(), key.encode(), timestamp_ms=BEGIN_MS + at)


def by_key(db, topic):
    """The committed records of each key, in their order, with their partition."""
    found = defaultdict(list)
    for partition in range(db.describe_topic(topic).partition_count):
        for record in db.log(topic, partition).read(0, isolation_level="read_committed"):
            found[record.key.decode(), partition].append(record.value.decode())
    return dict(found)


def table(db, topic):
    return dict(db.table(topic).items())


def test_word_count(spark, server, kafka_streams, tmp_path):
    db, place, address = server
    word_count.create_topics(db)
    db.create_topic("counts-of-java", config={"cleanup.policy": "compact"})
    for lines in (["all streams lead to the log", "Hello, logdb streams!", ""], ["join the streams", "... and  the log"]):
        put(db, word_count.LINES, *((str(number), line, number) for number, line in enumerate(lines)))
        finished(lambda: word_count.count_words(spark, place, str(tmp_path / "checkpoint")))
    expected = table(db, word_count.COUNTS)
    assert expected[b"streams"] == b"3"
    kafka_streams("WordCount", address, "counts-of-java", lambda: table(db, "counts-of-java") == expected)


def test_a_stream_joined_with_a_table(spark, server, kafka_streams, tmp_path):
    db, place, address = server
    enriched_orders.create_topics(db, partitions=3)
    db.create_topic("enriched-by-java", partitions=3)
    users = [f"user-{number}" for number in range(9)]
    for run in range(3):  # each customer's address changes, is withdrawn, and comes again
        begin = run * MINUTE_MS
        put(db, enriched_orders.EMAILS, *((user, f"{user}@{run}" if (run + at) % 3 else None, begin + at) for at, user in enumerate(users)))
        put(db, enriched_orders.ORDERS, *((users[at % 9], f"order {run}-{at}", begin + 1_000 + at) for at in range(30)))
        finished(lambda: enriched_orders.enrich_orders(spark, place, str(tmp_path / "checkpoint")))
    expected = by_key(db, enriched_orders.ENRICHED)
    assert sum(map(len, expected.values())) == 90
    kafka_streams("EnrichedOrders", address, "enriched-by-java", lambda: sum(map(len, by_key(db, "enriched-by-java").values())) >= 90)
    assert by_key(db, "enriched-by-java") == expected
    values = [value for some in expected.values() for value in some]
    assert "order 0-0 -> nobody" in values
    assert "order 1-0 -> user-0@1" in values
    assert "order 2-1 -> nobody" in values


def test_a_windowed_aggregate_with_late_records(spark, server, kafka_streams, tmp_path):
    db, place, address = server
    page_views.create_topics(db)
    db.create_topic("views-of-java", config={"cleanup.policy": "compact"})

    def views(numbers):
        for number in numbers:
            late_ms = 180 * MINUTE_MS if number > 240 and number % 50 == 0 else 8 * MINUTE_MS if number % 7 == 0 else 0
            yield f"/{number % 3}", "", number * MINUTE_MS // 2 - late_ms

    for numbers in (range(200), range(200, 400)):
        put(db, page_views.VIEWS, *views(numbers))
        finished(lambda: page_views.count_views(spark, place, str(tmp_path / "checkpoint")))
    put(db, page_views.VIEWS, *views([450, 451]))  # 450 is three hours late
    finished(lambda: page_views.count_views(spark, place, str(tmp_path / "checkpoint")))
    expected = table(db, page_views.COUNTS)
    assert sum(map(int, expected.values())) == 2 * (402 - 4)
    kafka_streams("PageViews", address, "views-of-java", lambda: table(db, "views-of-java") == expected)


def test_the_keys_of_windows_are_those_of_kafka(classes, tmp_path):
    program = tmp_path / "WindowedKey.java"
    program.write_text("""
import java.util.HexFormat;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.kstream.internals.TimeWindow;

public class WindowedKey {
    public static void main(String[] args) {
        long begin = Long.parseLong(args[0]);
        Windowed<String> key = new Windowed<>("/a", new TimeWindow(begin, begin + 60000));
        System.out.println(HexFormat.of().formatHex(new TimeWindowedSerializer<>(new StringSerializer()).serialize("t", key)));
    }
}""")
    compiled(program, tmp_path)
    done = subprocess.run(java("WindowedKey", BEGIN_MS, classes=tmp_path), capture_output=True, text=True, check=True, timeout=60)
    begin = datetime.fromtimestamp(BEGIN_MS / 1_000, UTC)
    assert done.stdout.splitlines()[-1] == streams.windowed_key_bytes(b"/a", begin).hex()
