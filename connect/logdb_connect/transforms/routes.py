"""Transforms of the topic's name."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from logdb_connect import logical
from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey
from logdb_connect.data import ConnectRecord
from logdb_connect.errors import ConfigError, DataError
from logdb_connect.java_dates import DatePattern
from logdb_connect.plugin import Transform
from logdb_connect.transforms import base

_REFERENCE = re.compile(r"\\(.)|\$\{([A-Za-z][A-Za-z0-9]*)\}|\$(\d)|([\\$])", re.DOTALL)


class RegexRouter(Transform):
    """Renames the topic of a record if the whole name matches."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("regex", "STRING", REQUIRED, "Regular expression to use for matching.", "HIGH", base.IS_REGEX),
        ConfigKey("replacement", "STRING", REQUIRED, "Replacement string; $1 and ${name} stand for groups.", "HIGH"),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        self._regex, self._replacement = base.compiled("regex", config["regex"]), config["replacement"]
        self._last: tuple[str, str] | None = None
        groups = self._regex.groups
        for found in _REFERENCE.finditer(self._replacement):
            if found[4] is not None:
                raise ConfigError("replacement", f"Illegal group reference in {self._replacement!r}: quote {found[4]} by \\")
            if (found[3] is not None and int(found[3]) > groups) or (found[2] is not None and found[2] not in self._regex.groupindex):
                raise ConfigError("replacement", f"No group {found[3] or found[2]} in the regular expression {config['regex']!r}")

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        if self._last is None or self._last[0] != record.topic:
            self._last = record.topic, self._renamed(record.topic)
        topic = self._last[1]
        return record if topic == record.topic else record.replace(topic=topic)

    def _renamed(self, topic: str) -> str:
        found: re.Match[str] | None = self._regex.search(topic)
        if found is None or self._regex.fullmatch(topic) is None:
            return topic
        start, end = found.span()
        return f"{topic[:start]}{self._expanded(found)}{topic[end:]}"

    def _expanded(self, found: "re.Match[str]") -> str:
        """The replacement, as ``java.util.regex.Matcher`` reads it: of ``$12`` as many digits as there are groups."""
        made: str = ""
        at, text = 0, self._replacement
        while (reference := _REFERENCE.search(text, at)) is not None:
            made += text[at : reference.start()]
            at = reference.end()
            if reference[1] is not None:
                made += str(reference[1])
                continue
            group: str | int = reference[2] if reference[2] is not None else int(reference[3])
            while isinstance(group, int) and text[at : at + 1].isdigit() and group * 10 + int(text[at]) <= self._regex.groups:
                group = group * 10 + int(text[at])
                at += 1
            made += str(found.group(group) or "")
        return f"{made}{text[at:]}"


class TimestampRouter(Transform):
    """Adds the record's timestamp to the name of its topic."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            "topic.format",
            "STRING",
            "${topic}-${timestamp}",
            "Format string which can contain ${topic} and ${timestamp} as placeholders for the topic and timestamp, respectively.",
            "HIGH",
        ),
        ConfigKey(
            "timestamp.format",
            "STRING",
            "yyyyMMdd",
            "Format string for the timestamp that is compatible with java.text.SimpleDateFormat.",
            "HIGH",
        ),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        self._format = config["topic.format"]
        try:
            self._pattern = DatePattern(config["timestamp.format"])
        except ValueError as error:
            message = f"Invalid value {config['timestamp.format']} for configuration timestamp.format: {error}"
            raise ConfigError("timestamp.format", message) from None

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        if record.timestamp_ms is None:
            raise DataError(f"Timestamp missing on record of topic {record.topic}")
        text = self._pattern.format(logical.timestamp_of(record.timestamp_ms))
        return record.replace(topic=self._format.replace("${topic}", record.topic).replace("${timestamp}", text))
