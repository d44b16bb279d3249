"""A sink task on Spark: it starts a driver, and tells of what the driver says.

The driver is a process of its own: its JVM, its errors and its end are not the worker's.  It ends with the worker, even if the worker is
killed.  Spark's checkpoint says which records are done.  Their offsets are also committed to the connector's group, so that the offsets
and the lag of the connector can be seen.
"""

import contextlib
import json
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from logdb import LogdbError, OffsetAndMetadata, TopicPartition
from logdb_connect.client import Client, shown
from logdb_connect.config import revealed
from logdb_connect.errors import ConnectError
from logdb_connect.other_servers import security_of
from logdb_connect.plugin import Properties
from logdb_connect.runtime.tasks import Backoff, Report, Target, TaskId, TaskRunner
from logdb_connect.spark.settings import hadoop

logger = logging.getLogger(__name__)

_LOOK_S, _STOP_S = 0.2, 3.0
_SECRET = re.compile("secret|password|token|credential|access[.]?key", re.IGNORECASE)
"""In names of settings that are private; Spark hides nearly the same ones in its log."""
_OF_THE_START = ("spark.driver.", "spark.executor.", "spark.master", "spark.pyspark.", "spark.python.", "spark.sql.", "spark.ui.")
"""Begins of settings that the start of Spark looks at, or has defaults for."""
_COMMAND = (sys.executable, "-c", "from logdb_connect.spark import driver; driver.main()")


class SparkSettings(NamedTuple):
    """What a driver needs.  ``kind``: ``objects`` or ``sql``; ``pattern``: of the topics; ``config``: the connector's, parsed."""

    kind: str
    pattern: str
    group_id: str
    worker: Mapping[str, str]
    config: Mapping[str, Any]
    used_topic: Callable[[str], None]


class SparkRunner(TaskRunner):
    """Runs a sink on Spark."""

    def __init__(
        self, task_id: TaskId, target: Target, report: Report, *, properties: Properties, client: Client, settings: SparkSettings
    ) -> None:
        super().__init__(task_id, target, report)
        self._properties, self._client, self._settings = properties, client, settings
        self._driver: _Driver | None = None
        self._known_topics: set[str] = set()

    def _run(self) -> None:
        backoff = Backoff(self)
        while not self.is_stopping():
            if self.is_paused():
                self.report("PAUSED")
                self.wait(0.5)
                continue
            try:
                failed = self._drive()
            except LogdbError as error:
                if not error.retriable:
                    raise
                logger.warning("task %s: the database does not answer, a retry follows: %s", self.id, error)
                backoff.pause()
                continue
            if failed is not None:
                raise ConnectError(f"The query on Spark failed. {failed}")
            backoff.reset()

    def _drive(self) -> str | None:
        """Run a driver until the task is paused or stopped, or fails: why."""
        with tempfile.TemporaryDirectory(prefix="logdb-spark-", ignore_cleanup_errors=True) as directory:  # with the mode 0700
            return self._watch(_Driver(self._job(directory), self._environment()))

    def _watch(self, driver: "_Driver") -> str | None:
        self._driver = driver
        try:
            while not self.is_stopping() and not self.is_paused():
                message = driver.message(_LOOK_S)
                if message is None:
                    if driver.has_ended():
                        return driver.last_words()
                elif "failed" in message:
                    return str(message["failed"])
                elif "started" in message:
                    self.report("RUNNING")
                else:
                    self._done(message)
            for message in driver.stop(_STOP_S if self.state == "RUNNING" else 0):
                if "batch" in message:
                    self._done(message)
            return None
        finally:
            self._driver = None
            driver.kill()

    def _done(self, message: Mapping[str, Any]) -> None:
        """Note a micro-batch that is done."""
        offsets = offsets_of(message["offsets"])
        self.count(sink_task_sink_record_read_total=message["rows"], sink_task_sink_record_send_total=message["rows"])
        for topic in {at.topic for at in offsets} - self._known_topics:
            self._known_topics.add(topic)
            self._settings.used_topic(topic)
        try:
            self._client.commit_for(self._settings.group_id, offsets)
        except LogdbError as error:
            logger.warning("task %s: the offsets of Spark are not shown in the group: %s", self.id, error)

    def _close(self) -> None:
        """The driver has ended."""

    def _cut_off(self) -> None:
        if (driver := self._driver) is not None:
            driver.kill()

    # ------------------------------------------------------------ the job

    def _job(self, directory: str) -> dict[str, Any]:
        """What the driver gets; ``directory``: for its private file."""
        settings, given = self._settings, {name: str(revealed(text)) for name, text in self._properties.items()}
        config = settings.config
        conf = {name: text for name, text in given.items() if name.startswith("spark.") and name != "spark.master"}
        return {
            "name": self.id.connector,
            "kind": settings.kind,
            "master": config["spark.master"],
            "conf": {**(hadoop(config) if settings.kind == "objects" else {}), **conf},
            "private": private_names(self._properties),
            "directory": directory,
            "worker": {name: str(revealed(text)) for name, text in settings.worker.items()},
            "config": given,
            "place": self._place(),
            "pattern": settings.pattern,
            "starting": self._starting(),
            "max_offsets": config["logdb.spark.max.offsets.per.trigger"],
            "interval_ms": config["logdb.spark.trigger.interval.ms"],
        }

    def _place(self) -> dict[str, str]:
        place = self._client.place
        if place.startswith((".", "/")) or os.path.isdir(place):
            return {"path": os.path.abspath(place)}
        scheme = "https" if security_of(self._settings.worker, "bootstrap.servers").tls else "http"
        return {"url": ",".join(each if "://" in each else f"{scheme}://{each}" for each in shown(place).split(","))}

    def _environment(self) -> dict[str, str]:
        """Credentials: Spark keeps options, so they are none."""
        told = security_of(self._settings.worker, "bootstrap.servers")
        user, password = told.user, told.password
        if user is None:
            user, password = _credentials(self._client.place)
        more = {} if user is None else {"LOGDB_USER": user, "LOGDB_PASSWORD": password or ""}
        return {**os.environ, **more}

    def _starting(self) -> str:
        """Where a query without a checkpoint begins: at the group's offsets, of a former run by a worker; else at the first record."""
        committed = self._client.committed(self._settings.group_id)
        if not committed:
            return "earliest"
        wanted, offsets = re.compile(self._settings.pattern), dict[str, dict[str, int]]()
        for topic in filter(wanted.search, self._client.topics()):
            at = (committed.get(TopicPartition(topic, one.partition)) for one in self._client.topic_state(topic).partitions)
            offsets[topic] = {str(number): -2 if one is None else one.offset for number, one in enumerate(at)}
        return json.dumps(offsets) if offsets else "earliest"


class _Driver:
    """The process, and its messages."""

    def __init__(self, job: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
        )
        self._messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._errors: deque[str] = deque(maxlen=50)
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()
        self._say(json.dumps(job))

    def message(self, wait_s: float) -> dict[str, Any] | None:
        with contextlib.suppress(queue.Empty):
            return self._messages.get(timeout=wait_s)
        return None

    def has_ended(self) -> bool:
        return self._process.poll() is not None and self._messages.empty() and not self._readers[0].is_alive()

    def last_words(self) -> str:
        """Why it ended without a message."""
        self._readers[1].join(1)
        return f"Its driver ended with {self._process.returncode}:\n{''.join(self._errors)}"

    def stop(self, wait_s: float) -> list[dict[str, Any]]:
        """Have the query end; the messages that it still had."""
        self._say("stop")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)
        found = []
        while (message := self.message(0.01)) is not None:
            found.append(message)
        return found

    def kill(self) -> None:
        """End it now, with its JVM: they are a process group.  A micro-batch that is cut off runs again."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._messages.put(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._errors.append(line.decode(errors="replace"))


def _credentials(place: str) -> tuple[str | None, str | None]:
    """User and password of the first URL that has them."""
    for url in map(urlsplit, place.split(",")):
        if url.username is not None:
            return unquote(url.username), unquote(url.password or "")
    return None, None


def private_names(properties: Properties) -> list[str]:
    """Settings of Spark that nobody else may see: by their name, or since a config provider gave them."""
    given = ((name, type(text) is not str) for name, text in properties.items() if name.startswith("spark."))
    return [name for name, is_given in given if _SECRET.search(name) or (is_given and not name.startswith(_OF_THE_START))]


def offsets_of(text: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets that format("logdb") reports of a stream."""
    found = json.loads(text)
    return {
        TopicPartition(topic, int(number)): OffsetAndMetadata(int(offset))
        for topic, partitions in found.get("offsets", found).items()
        for number, offset in partitions.items()
    }
