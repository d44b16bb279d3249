"""WordCounts.java, a stateful program of Kafka Streams at ``exactly_once_v2``: its properties, what it is sent, and what it must tell."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from support.java import properties

SOURCE = Path(__file__).parents[1] / "integration" / "kafka" / "WordCounts.java"
_STRING = "org.apache.kafka.common.serialization.Serdes$StringSerde"


def exactly_once(addresses: str, directory: Path, state: str = "state") -> Path:
    """The property file of WordCounts."""
    return properties(
        directory / "word-counts.properties",
        bootstrap_servers=addresses,
        application_id="word-counts",
        processing_guarantee="exactly_once_v2",
        default_key_serde=_STRING,
        default_value_serde=_STRING,
        statestore_cache_max_bytes=0,  # each count is told
        commit_interval_ms=50,
        repartition_purge_interval_ms=500,
        # what is waited for after a kill
        session_timeout_ms=1_500,
        heartbeat_interval_ms=300,
        transaction_timeout_ms=3_000,
        state_dir=directory / state,
    )


def word_of(number: int) -> str:
    return chr(ord("a") + number * number % 23)


def check(told: Iterable[tuple[str, int]], sent: Iterable[str]) -> None:
    """Each word has been counted from one to how often it was sent, in this order."""
    counts = defaultdict(list)
    for word, count in told:
        counts[word].append(count)
    assert counts == {word: list(range(1, count + 1)) for word, count in Counter(sent).items()}
