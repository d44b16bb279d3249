"""REST v2 answers in the shapes of Confluent's documentation, for any client: exchanges in ``golden/``, checked by hand against it."""

import json
from pathlib import Path

import pytest

from support import exchanges
from support.exchanges import TRANSPORTS, Transport
from support.serving import served

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("v2_*.json")))
def test_the_exchanges_are_as_documented(tmp_path: Path, name: str, transport: Transport) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    with served(tmp_path / "db") as server:
        for topic, partition_count in golden["topics"].items():
            server.database.create_topic(topic, partitions=partition_count)
        exchanges.check(server, transport, golden, name)


def test_a_topic_tells_all_its_configs_as_strings(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("trades", config={"retention.ms": 1_000})
        _, topic = server.call("/topics/trades")
        configs = topic["configs"]
        assert configs["retention.ms"] == "1000"
        assert configs["cleanup.policy"] == "delete"
        assert configs["preallocate"] == "false"
