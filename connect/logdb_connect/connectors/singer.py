"""Runs a Singer tap: a program of others that writes records and states as JSON lines to its standard output.

The tap's state is the source offset.  Records up to a STATE message go into one transaction with that state, unless there are more than
``batch.size``: then a restart may bring records since the last state again.
"""

import json
import logging
import os
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least, revealed
from logdb_connect.connectors import limits
from logdb_connect.data import SourceRecord
from logdb_connect.errors import ConnectError
from logdb_connect.plugin import Properties, SourceConnector, SourceTask

_log = logging.getLogger(__name__)

_LINE_MAX = 1 << 24
_IDLE_S = 0.2
_STOP_S = 5.0
_ERRORS_SHOWN = 1000


class SingerSourceTask(SourceTask):
    """Runs the tap, again and again.

    State:
        _state: The last state that the tap wrote.
        _records: Stream, key and value of records since then.
        _rest: The beginning of a line.
        _next_run_s: When the tap runs next.
    """

    _process: "subprocess.Popen[bytes] | None" = None

    def start(self, properties: Properties) -> None:
        self._config = config = SingerSourceConnector.config_def.parse(properties)
        self._command = shlex.split(config["tap.command"])
        limits.check_command(self._command[0])
        self._partition = {"tap": config["tap.name"] or os.path.basename(self._command[0])}
        found = self.context.offset(self._partition)
        self._state = None if found is None else found["state"]
        self._keys: dict[str, Sequence[str]] = {}
        self._records: list[tuple[str, Any, Any]] = []
        self._ready: list[SourceRecord] = []
        self._rest = b""
        self._next_run_s = 0.0

    def poll(self) -> list[SourceRecord] | None:
        if self._process is None and time.monotonic() >= self._next_run_s:
            self._run()
        if self._process is None:
            self.context.wait(_IDLE_S)
            return None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _IDLE_S)[0]:
            return None
        data = os.read(self._process.stdout.fileno(), 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_MAX:
            raise ConnectError(f"{self._command[0]} wrote a line of more than {_LINE_MAX} bytes")
        for line in filter(bytes.strip, lines):
            self._take(line)
        if not data:
            self._end()
        elif len(self._records) >= self._config["batch.size"]:
            self._flush()
        ready, self._ready = self._ready, []
        return ready or None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._close()

    def _run(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="logdb-tap-")  # only this user can read it
        arguments = list(self._command)
        secret = revealed(self._config["tap.config"])
        catalog = self._config["tap.catalog"]
        state = None if self._state is None else json.dumps(self._state)
        for name, text in (("config", secret), ("state", state), ("catalog", catalog)):
            if text:
                path = os.path.join(self._directory.name, f"{name}.json")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                arguments += [f"--{name}", path]
        self._errors = open(os.path.join(self._directory.name, "stderr"), "w+b")  # noqa: SIM115 closed with the process
        try:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
            )
        except OSError as error:
            self._close()
            raise ConnectError(f"Cannot run {self._command[0]}: {error.strerror}") from error

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            match message["type"]:
                case "RECORD":
                    value, stream = message["record"], message["stream"]
                    names = self._keys.get(stream) or ()
                    self._records.append((stream, {name: value.get(name) for name in names} or None, value))
                case "SCHEMA":
                    self._keys[message["stream"]] = message.get("key_properties") or ()
                case "STATE":
                    self._state = message["value"]
                    self._flush()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConnectError(f"{self._command[0]} wrote a line that is no Singer message: {line[:200]!r}") from error

    def _flush(self) -> None:
        self._ready += (
            SourceRecord(
                topic=self._config["topic.prefix"] + stream,
                key=key,
                value=value,
                source_partition=self._partition,
                source_offset={"state": self._state},
            )
            for stream, key, value in self._records
        )
        self._records = []

    def _end(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _ERRORS_SHOWN))
        errors = self._errors.read().decode(errors="replace").strip()
        self._close()
        if code != 0 or self._rest:
            raise ConnectError(f"{self._command[0]} ended with the exit code {code}: {errors or 'it wrote no error'}")
        self._flush()
        self._next_run_s = time.monotonic() + self._config["tap.interval.ms"] / 1000

    def _close(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        self._errors.close()
        self._directory.cleanup()


class SingerSourceConnector(SourceConnector):
    """The records of a Singer tap: each stream to a topic."""

    task_class = SingerSourceTask
    version = "1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("tap.command", "STRING", REQUIRED, "The tap, by absolute path, and its arguments.", "HIGH"),
        ConfigKey("tap.config", "PASSWORD", None, "The tap's config, as JSON: it gets it by --config.", "HIGH"),
        ConfigKey("tap.catalog", "STRING", None, "The tap's catalog, as JSON: it gets it by --catalog.", "HIGH"),
        ConfigKey("tap.name", "STRING", "", "The name of the tap in offsets; by default that of its program.", "LOW"),
        ConfigKey("tap.interval.ms", "LONG", 60_000, "The pause between two runs.", "MEDIUM", at_least(0)),
        ConfigKey("topic.prefix", "STRING", "", "What the names of topics begin with; the stream follows.", "HIGH"),
        ConfigKey("batch.size", "INT", 10_000, "How many records are held back until the tap writes a state.", "LOW", at_least(1)),
    )

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [self._properties]

    def exactly_once(self, properties: Properties) -> bool:
        return False

    def check(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        try:
            limits.check_command(next(iter(shlex.split(config["tap.command"])), ""))
        except (ConnectError, ValueError) as error:
            return {"tap.command": str(error)}
        texts = {name: revealed(config[name]) for name in ("tap.config", "tap.catalog")}
        return {name: f"{name} must be JSON" for name, text in texts.items() if text and not _is_json(text)}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
