"""kill -9 at random of workers, broker, PostgreSQL and S3 server: from a file over a topic to rows, objects and a file, each line once."""

import contextlib
import random
import tempfile
import time
from pathlib import Path

import pytest
import sqlalchemy

from support.connect_workers import KILLS, SHARED, WORKER, BrokerProcess, WorkerProcess, random_seed, written
from support.moto_server import CREDENTIALS
from support.ports import free_port
from support.s3_server import S3Server
from support.waiting import until

FLUSH_SIZE = 10


@pytest.fixture
def s3_server():
    with tempfile.TemporaryDirectory() as directory:
        server = S3Server(Path(directory))
        yield server
        server.kill()


def connectors(directory, shop, s3, bucket):
    endless = {"max.retries": "1000000", "retry.backoff.ms": "50", "errors.retry.timeout": "-1"}
    return {
        "source": {"connector.class": "FileStreamSource", "file": f"{directory}/in.txt", "topic": "lines"},
        "file": {"connector.class": "FileStreamSink", "file": f"{directory}/out.txt", "topics": "lines"},
        "rows": {
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "topics": "lines",
            "connection.url": f"jdbc:postgresql://127.0.0.1:{shop.server.port}/{shop.name}",
            "connection.user": shop.user,
            "auto.create": "true",
            "transforms": "row",
            "transforms.row.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.row.field": "line",
            **endless,
        },
        "objects": {
            "connector.class": "io.confluent.connect.s3.S3SinkConnector",
            "topics": "lines",
            "s3.bucket.name": bucket,
            "store.url": s3.url,
            "flush.size": str(FLUSH_SIZE),
            "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
            **CREDENTIALS,
        },
    }


class Workers:
    """One standalone worker, or two that share connectors; each can be killed and started again."""

    def __init__(self, kind, directory, place, configs):
        self._kind, self.ports = kind, [free_port() for _ in range(1 if kind == "standalone" else 2)]
        properties = {**WORKER, "bootstrap.servers": place}
        if kind == "standalone":
            properties |= {"offset.storage.file.filename": f"{directory}/offsets"}
        else:
            properties |= {**SHARED, "session.timeout.ms": "1500"}
        more = [written(directory / f"{name}.properties", {"name": name, **one}) for name, one in configs.items()]
        self._files = [
            (written(directory / f"worker-{port}.properties", {**properties, "listeners": f"http://127.0.0.1:{port}"}),)
            for port in self.ports
        ]
        if kind == "standalone":
            self._files = [(*self._files[0], *more)]
        self.processes = [self._start(number) for number in range(len(self.ports))]
        if kind == "distributed":
            for name, one in configs.items():
                until(lambda name=name, one=one: self.processes[0].rest.call("PUT", f"/connectors/{name}/config", one)[0] in (200, 201))

    def _start(self, number):
        return WorkerProcess(self._kind, *self._files[number], port=self.ports[number])

    def kill(self, chance):
        number = chance.randrange(len(self.processes))
        self.processes[number].kill()
        self.processes[number].__exit__()
        return lambda: self.processes.__setitem__(number, self._start(number))

    def close(self):
        for process in self.processes:
            process.__exit__()

    def shown(self):
        """For a failure: states, and the last lines of the logs."""
        states = [self.processes[0].rest.call("GET", f"/connectors/{name}/status") for name in ("source", "file", "rows", "objects")]
        return "\n".join(map(str, [*states, *(line.rstrip() for process in self.processes for line in process.stderr[-40:])]))


def killed(server):
    server.kill()
    return server.start


def rows(shop):
    with contextlib.suppress(sqlalchemy.exc.OperationalError, sqlalchemy.exc.ProgrammingError):
        return [line for (line,) in shop.ask("SELECT line FROM lines")]
    return []


def in_objects(s3, bucket):
    return [line.strip('"') for data in s3.objects(bucket).values() for line in data.decode().splitlines()]


@pytest.mark.parametrize("kind", ["standalone", "distributed"])
def test_each_line_is_once_in_rows_objects_and_file(postgres_shop, s3_server, tmp_path, kind):
    chance = random.Random(random_seed())
    bucket, shop = s3_server.s3.bucket(kind), postgres_shop
    out, wanted = tmp_path / "out.txt", []
    with contextlib.ExitStack() as stack:
        broker = BrokerProcess(tmp_path / "db", "--session-timeout-ms-min", "1000")
        stack.callback(broker.kill)
        workers = Workers(kind, tmp_path, broker.place, connectors(tmp_path, shop, s3_server.s3, bucket))
        stack.callback(workers.close)
        for _ in range(KILLS):
            for _ in range(chance.randrange(1, 30)):
                new = [f"line {len(wanted) + number}" for number in range(chance.randrange(1, 60))]
                with (tmp_path / "in.txt").open("a") as file:
                    file.write("".join(f"{line}\n" for line in new))
                wanted += new
                time.sleep(chance.random() / 20)  # kills fall anywhere
            victims = chance.sample(("worker", "worker", "broker", "postgres", "s3"), chance.choice((1, 1, 1, 2, 3)))
            others = {"broker": broker, "postgres": shop.server, "s3": s3_server}
            returns = {one: killed(others[one]) if one in others else workers.kill(chance) for one in dict.fromkeys(victims)}
            time.sleep(chance.random() / 2)
            for one in sorted(returns, key=lambda one: one != "broker"):  # a worker begins only where a broker answers
                returns[one]()
        try:
            until(lambda: out.exists() and len(out.read_text().splitlines()) >= len(wanted), "all lines are in the file", 60)
            until(lambda: len(rows(shop)) >= len(wanted), "all lines are in the table", 60)
            whole = len(wanted) // FLUSH_SIZE * FLUSH_SIZE
            until(lambda: len(in_objects(s3_server.s3, bucket)) >= whole, "all whole objects are there", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{workers.shown()}") from None
    assert out.read_text().splitlines() == wanted
    assert sorted(rows(shop)) == sorted(wanted)
    assert sorted(in_objects(s3_server.s3, bucket)) == sorted(wanted[:whole])
