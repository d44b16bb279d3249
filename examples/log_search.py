"""Log aggregation: a `logging.Handler` in, a search index out.

Any program's log lines become records, keyed by logger, so that each logger's lines stay in order.  An indexer follows them
and keeps a full-text index in SQLite (FTS5).  How far it has come is written in the same SQLite transaction as the lines, so
the index has each line once, whatever happens to the indexer.
"""

import json
import logging
import sqlite3
import tempfile
from typing import Any

import logdb

TOPIC, PARTITIONS = "logs", 2


class LogdbHandler(logging.Handler):
    """Sends what is logged to a topic.

    ``emit`` does not wait: the producer gathers lines and writes them from a thread of its own.  What logdb itself logs is left
    out, or a line about a failed write would be the next one to be written.
    """

    def __init__(self, db: logdb.Database, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._producer = db.producer(linger_ms=20)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] == "logdb":
            return
        try:
            line = {"level": record.levelname, "message": record.getMessage(), "where": f"{record.module}:{record.lineno}"}
            self._producer.send(TOPIC, json.dumps(line).encode(), key=record.name.encode(), timestamp_ms=int(record.created * 1000))
        except Exception:  # noqa: BLE001 -- as every handler does: a log line must not break the program
            self.handleError(record)

    def flush(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()
        super().close()


class SearchIndex:
    """Log lines in SQLite, found by their words."""

    def __init__(self, path: str) -> None:
        self._sqlite = sqlite3.connect(path)
        with self._sqlite:
            self._sqlite.execute("CREATE VIRTUAL TABLE IF NOT EXISTS lines USING fts5(message, logger, level, time UNINDEXED)")
            self._sqlite.execute("CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, offset INTEGER NOT NULL)")

    def follow(self, db: logdb.Database) -> int:
        """Take over the lines that are new; returns how many."""
        positions = dict(self._sqlite.execute("SELECT partition, offset FROM positions"))
        count = 0
        with db.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
            for partition, offset in positions.items():
                consumer.seek((TOPIC, partition), offset)
            while batches := consumer.poll(timeout_ms=200):
                with self._sqlite:  # one transaction: the lines, and how far they reach
                    for where, records in batches.items():
                        self._sqlite.executemany("INSERT INTO lines VALUES (?, ?, ?, ?)", map(self._row, records))
                        self._sqlite.execute("REPLACE INTO positions VALUES (?, ?)", (where.partition, records[-1].offset + 1))
                        count += len(records)
        return count

    @staticmethod
    def _row(record: Any) -> tuple[str, str, str, int]:
        line = json.loads(record.value)
        return line["message"], record.key.decode(), line["level"], record.timestamp_ms

    def search(self, query: str) -> list[tuple[str, str, str]]:
        """Logger, level and message of the lines that match, the best first; ``query`` as FTS5 has it."""
        return self._sqlite.execute("SELECT logger, level, message FROM lines WHERE lines MATCH ? ORDER BY rank", (query,)).fetchall()

    def close(self) -> None:
        self._sqlite.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, logdb.open(f"{directory}/db") as db:
        db.create_topic(TOPIC, partitions=PARTITIONS)
        handler, shop = LogdbHandler(db), logging.getLogger("shop")
        shop.addHandler(handler)
        shop.setLevel(logging.INFO)
        for number in range(500):
            shop.info("order %d was placed", number)
            if number % 100 == 42:
                shop.getChild("payment").error("card declined for order %d", number)
        shop.removeHandler(handler)
        handler.close()
        index = SearchIndex(f"{directory}/index.sqlite")
        print(f"{index.follow(db)} lines indexed; 'declined' is in")
        for logger, level, message in index.search("declined"):
            print(f"  {logger} {level}: {message}")
        index.close()


if __name__ == "__main__":
    main()
