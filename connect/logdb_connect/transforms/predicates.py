"""Predicates, and the transform that is of use only with one."""

from collections.abc import Mapping
from typing import Any, ClassVar

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey
from logdb_connect.data import ConnectRecord
from logdb_connect.plugin import Predicate, Transform
from logdb_connect.transforms import base


class Filter(Transform):
    """Drops each record that reaches it. Use it with a predicate."""

    def apply(self, record: ConnectRecord) -> None:  # noqa: ARG002
        return None


class TopicNameMatches(Predicate):
    """Holds for records of a topic whose whole name matches."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            "pattern",
            "STRING",
            REQUIRED,
            "A regular expression for matching against the name of a record's topic.",
            check=lambda value: base.not_blank(value) or base.is_regex(value),
        )
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        self._pattern = base.compiled("pattern", config["pattern"])

    def test(self, record: ConnectRecord) -> bool:
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey(Predicate):
    """Holds for records with a header of this name."""

    config_def: ClassVar[ConfigDef] = ConfigDef(ConfigKey("name", "STRING", REQUIRED, "The header name.", check=base.not_blank))

    def configure(self, config: Mapping[str, Any]) -> None:
        self._name = config["name"]

    def test(self, record: ConnectRecord) -> bool:
        return any(each.key == self._name for each in record.headers)


class RecordIsTombstone(Predicate):
    """Holds for records without a value."""

    def test(self, record: ConnectRecord) -> bool:
        return record.value is None
