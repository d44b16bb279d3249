"""Debezium's engine in a JVM of its own: changes of PostgreSQL as JSON, handed to a function that counts them."""

import functools
import subprocess
import time
from pathlib import Path

from benches.peers import failure, not_importable
from benches.peers._postgres import Postgres, changing, fill_table, postgres, why_missing
from benches.peers.kafka.jars import CACHE, DEBEZIUM
from benches.workload import Measure, Work, Wrong, rate

_PROGRAM = Path(__file__).parent / "kafka" / "ChangeCapture.java"
_CLASSES = CACHE / "debezium-classes"
_HEAP = ("-Xms256m", "-Xmx2g", "-XX:+UseG1GC")
_START_S = 90


@functools.cache
def missing() -> str | None:
    """Fetch and compile at the first call."""
    if reason := not_importable("psycopg2") or why_missing() or DEBEZIUM.missing():
        return reason
    return failure(["javac", "-d", _CLASSES, "-cp", f"{DEBEZIUM.directory}/*", _PROGRAM], 120)


def capture(work: Work) -> Measure:
    """Changed rows, until the last one is counted.  The slot is active before the first change."""
    command = ["java", *_HEAP, "-cp", f"{_CLASSES}:{DEBEZIUM.directory}/*", "ChangeCapture"]
    with postgres(work.directory) as server, (work.directory / "debezium.log").open("wb") as log:
        fill_table(server, work)
        command += [str(server.port), str(work.count), str(work.directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            try:
                _await_slot(server, process, work.directory / "debezium.log")
                began = work.start()
                with changing(server):
                    assert process.stdout is not None
                    said = next((line.strip() for line in process.stdout if line.startswith(("done", "ended"))), "")
                    seconds = time.perf_counter() - began
                if said != "done":
                    raise Wrong(said)
            finally:
                process.kill()
    return rate(work.count, seconds)


def _await_slot(server: Postgres, process: "subprocess.Popen[str]", log: Path) -> None:
    until_s = time.monotonic() + _START_S
    while server.ask("SELECT count(*) FROM pg_replication_slots WHERE active") != 1:
        if process.poll() is not None or time.monotonic() > until_s:
            raise Wrong(f"no slot is active, exit {process.poll()}: {log.read_text(errors='replace')[-500:]}")
        time.sleep(0.1)


OPERATIONS = {"capture": capture}
