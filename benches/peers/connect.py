"""Our standalone worker on ``logdb serve`` at level ``os``, two processes; and what it writes to a store and a database."""

import contextlib
import functools
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benches.peers import not_importable
from benches.peers._connect import SHARED, Worker, operations, until, worker, written
from benches.peers._postgres import changing, fill_table, postgres, why_missing
from benches.peers._server import HOST, free_port, running
from benches.peers.kafka import clients
from benches.peers.kafka_door import prepare
from benches.workload import Measure, Work, Wrong, rate

_BUCKET, _OBJECT_COUNT = "benches", 20_000
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def missing() -> str | None:
    needed = ("confluent_kafka", "aiohttp", "obstore", "moto", "psycopg2")
    return next(filter(None, map(not_importable, needed)), None) or why_missing()


def _command(file: Path) -> list[str]:
    return [sys.executable, "-m", "logdb.cli", "connect", "standalone", str(file)]


@contextlib.contextmanager
def _running(work: Work) -> Iterator[Worker]:
    port = free_port()
    with (
        running(prepare(work.directory, port), port, work.directory / "broker.log"),
        worker(_command, f"{HOST}:{port}", work.directory, **{"offset.flush.interval.ms": 500}) as one,
    ):
        yield one


def json_to_parquet(one: Worker, work: Work) -> Measure:
    """JSON records as Parquet objects of 20,000 in an S3 store, moto's: from the order to the last object."""
    flush = min(_OBJECT_COUNT, max(work.count // 4, 1))
    clients.make_topic(one.address)
    clients.fill(work, one.address)
    with _s3(work.directory) as (url, object_count):
        began = work.start()
        one.create(
            "objects",
            connector_class="S3SinkConnector",
            topics=clients.TOPIC,
            flush_size=flush,
            format_class="ParquetFormat",
            value_converter=_JSON,
            store_url=url,
            **{"value.converter.schemas.enable": "false", "s3.bucket.name": _BUCKET, "s3.region": "us-east-1"},
            **{"aws.access.key.id": "test", "aws.secret.access.key": "test"},
        )
        until(lambda: object_count() >= work.count // flush, functools.partial(one.check, "objects"), 0.05)
        return rate(work.count // flush * flush, time.perf_counter() - began)


@contextlib.contextmanager
def _s3(directory: Path) -> "Iterator[tuple[str, Callable[[], int]]]":
    """A store with a bucket: its URL, and what counts its objects."""
    import obstore
    from obstore.store import S3Store

    port = free_port()
    url = f"http://{HOST}:{port}"
    with running([sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)], port, directory / "s3.log"):
        urllib.request.urlopen(urllib.request.Request(f"{url}/{_BUCKET}", method="PUT"), timeout=10).close()
        store = S3Store(
            _BUCKET, endpoint=url, region="us-east-1", access_key_id="test", secret_access_key="test", client_options={"allow_http": True}
        )
        yield url, lambda: sum(len(page) for page in obstore.list(store))


def upserts(one: Worker, work: Work) -> Measure:
    """Rows upserted into PostgreSQL by key, with the offsets in the same transaction: from the order to the last one."""
    clients.make_topic(one.address)
    clients.fill(work, one.address)
    with postgres(work.directory) as server:
        began = work.start()
        hoist = {"transforms": "hoist", "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value"}
        one.create(
            "rows",
            connector_class="JdbcSinkConnector",
            topics=clients.TOPIC,
            connection_url=f"jdbc:postgresql://{HOST}:{server.port}/postgres",
            connection_user=server.user,
            insert_mode="upsert",
            pk_mode="record_key",
            pk_fields="id",
            auto_create="true",
            table_name_format="rows",
            **hoist,
            **{"transforms.hoist.field": "value"},
        )
        until(lambda: _committed(one, "rows") >= work.count, functools.partial(one.check, "rows"), 0.05)
        seconds = time.perf_counter() - began
        keys, _ = work.records()
        if (rows := server.ask("SELECT count(*) FROM rows")) != len(set(keys)):
            raise Wrong(f"{len(set(keys))} rows were to be there, {rows} are")
        return rate(work.count, seconds)


def _committed(one: Worker, name: str) -> int:
    document: Any = one.call("GET", f"/connectors/{name}/offsets")
    return sum(each["offset"]["kafka_offset"] for each in document["offsets"])


def capture(one: Worker, work: Work) -> Measure:
    """Changed rows of a PostgreSQL table, as JSON in Debezium's envelope, into a topic; see ``written``."""
    clients.make_topic(one.address)
    with postgres(work.directory) as server:
        fill_table(server, work)
        one.create(
            "changes",
            connector_class="PostgresConnector",
            database_hostname=HOST,
            database_port=server.port,
            database_user=server.user,
            database_dbname="postgres",
            topic_prefix="shop",
            envelope="true",
            key_converter=_JSON,
            value_converter=_JSON,
            transforms="route",
            **{"slot.name": "benches", "snapshot.mode": "no_data", "table.include.list": "public.rows"},
            **{"transforms.route.type": "RegexRouter", "transforms.route.regex": ".*", "transforms.route.replacement": clients.TOPIC},
        )
        until(
            lambda: server.ask("SELECT count(*) FROM pg_replication_slots WHERE active") == 1, functools.partial(one.check, "changes"), 0.1
        )
        began = work.start()
        with changing(server):
            return written(one, work, "changes", began)


OPERATIONS = operations(_running, (*SHARED, json_to_parquet, upserts, capture))
