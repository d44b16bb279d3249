"""Whether the properties of a connector are right (``AbstractHerder.validateConnectorConfig``).

The answer has the definition, the value and the errors of each property: those that every connector has, those of its class, and those
of its transforms and predicates.
"""

import logging
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from logdb_connect.catalogue import Kind
from logdb_connect.client import below, is_directory
from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey
from logdb_connect.errors import ConfigError, ConnectError
from logdb_connect.plugin import Connector
from logdb_connect.plugins import kind_of
from logdb_connect.runtime import settings
from logdb_connect.runtime.isolation import NEEDS_A_SERVER
from logdb_connect.spark.settings import on_spark, shared_faults

if TYPE_CHECKING:
    from logdb_connect.runtime.worker import Worker

logger = logging.getLogger(__name__)
_CONVERTERS: tuple[tuple[str, Kind], ...] = (
    ("key.converter", "converter"),
    ("value.converter", "converter"),
    ("header.converter", "header_converter"),
)
_PARTS: tuple[tuple[str, Kind, str], ...] = (("transforms", "transformation", "Transforms"), ("predicates", "predicate", "Predicates"))


class BadRequest(ConnectError):
    """A request is wrong."""


def validate(worker: "Worker", plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
    """The answer of ``PUT /connector-plugins/{plugin}/config/validate``.

    Raises:
        BadRequest: ``connector.class`` is missing, or is another class.
        ConfigError: There is no such class.
    """
    given = config.get("connector.class")
    if not given:
        raise BadRequest(f"Connector config {sorted(config)} contains no connector type: connector.class is missing")
    made: type[Connector] = worker.plugins.connector(given)
    if plugin and worker.plugins.connector(plugin) is not made:
        raise BadRequest(f"Included connector type {given} does not match request type {plugin}")
    try:
        resolved, errors = worker.resolve(config), {}
    except ConfigError as error:
        resolved, errors = dict(config), {error.name: str(error)}
    definition = definition_of(worker, made, resolved)
    errors |= _topic_errors(made, resolved) | _converter_errors(worker, resolved) | _worker_errors(worker, made, resolved)
    entries = definition.validate(resolved, errors)
    known = {entry["definition"]["name"] for entry in entries}
    if not any(entry["value"]["errors"] for entry in entries):
        found = made().validate(resolved)
        entries = definition.validate(resolved, {**errors, **found})
        errors |= {name: fault for name, fault in found.items() if name not in known}
    entries += [_unknown(name, fault) for name, fault in errors.items() if name not in known]
    for entry in entries:  # a variable of a config provider is shown, never its value
        name = entry["value"]["name"]
        if name in config and entry["value"]["value"] is not None and config[name] != resolved.get(name):
            entry["value"]["value"] = config[name]
    groups = sorted({str(shown["group"]) for entry in entries if (shown := entry["definition"]) and shown["group"]})
    for entry in entries:
        entry["value"]["errors"] = [worker.redact(fault) for fault in entry["value"]["errors"]]
    count = sum(len(entry["value"]["errors"]) for entry in entries)
    return {"name": worker.plugins.name_of(made), "error_count": count, "groups": groups, "configs": entries}


def check(worker: "Worker", config: Mapping[str, str]) -> None:
    """Refuse wrong properties.

    Raises:
        BadRequest: All errors, one in a line; or there is no such class.
    """
    try:
        answer = validate(worker, "", config)
    except ConfigError as error:
        if error.name == "connector.class":
            raise BadRequest(str(error)) from error
        raise
    faults = [fault for entry in answer["configs"] for fault in entry["value"]["errors"]]
    if faults:
        lines = "\n".join(faults)
        raise BadRequest(
            f"Connector configuration is invalid and contains the following {len(faults)} error(s):\n{lines}\n"
            "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
        )


def definition_of(worker: "Worker", made: type[Connector], config: Mapping[str, str]) -> ConfigDef:
    """All properties that a connector may have."""
    definition = (settings.SOURCE if kind_of(made) == "source" else settings.SINK) + made.config_def
    for setting, kind, group in _PARTS:
        for alias in definition[setting].parse(config.get(setting, "")):
            definition += _part(worker, setting, kind, f"{group}: {alias}", alias, config)
    return definition


def _part(worker: "Worker", setting: str, kind: Kind, group: str, alias: str, config: Mapping[str, str]) -> ConfigDef:
    """The properties of a transform or a predicate."""
    prefix = f"{setting}.{alias}."

    def problem(_: Any) -> str | None:
        try:
            worker.plugins.find(config.get(f"{prefix}type", ""), (kind,), f"{prefix}type")
        except ConfigError as error:
            return str(error)
        return None

    keys = [ConfigKey(f"{prefix}type", "CLASS", REQUIRED, f"Class of {alias}.", "HIGH", problem, group=group)]
    if setting == "transforms":
        predicates = settings.CONNECTOR["predicates"].parse(config.get("predicates", ""))

        def unknown(alias: Any) -> str | None:
            return None if alias is None or alias in predicates else f"must be one of predicates={','.join(predicates)}"

        text = "Predicate that decides which records it applies to."
        keys.append(ConfigKey(f"{prefix}predicate", "STRING", None, text, "MEDIUM", unknown, group=group))
        keys.append(ConfigKey(f"{prefix}negate", "BOOLEAN", False, "Apply it to the others.", group=group))
    definition = ConfigDef(*keys)
    name = config.get(f"{prefix}type")
    if name and problem(name) is None:
        part: ConfigDef = worker.plugins.find(name, (kind,), prefix).config_def  # type: ignore[attr-defined]
        definition += part.prefixed(prefix, group)
    return definition


def _topic_errors(made: type[Connector], config: Mapping[str, str]) -> dict[str, str]:
    """What a sink's topics lack."""
    if kind_of(made) != "sink":
        return {}
    topics, pattern = config.get("topics", "").strip(), config.get("topics.regex", "").strip()
    if topics and pattern:
        return dict.fromkeys(("topics", "topics.regex"), "topics and topics.regex are mutually exclusive options, but both are set.")
    if not topics and not pattern:
        return dict.fromkeys(("topics", "topics.regex"), "Must configure one of topics or topics.regex")
    if (queue := config.get("errors.deadletterqueue.topic.name", "").strip()) and queue in [one.strip() for one in topics.split(",")]:
        text = "The DLQ topic has the same name as one of the topics that the sink reads"
        return {"errors.deadletterqueue.topic.name": text}
    return {}


def _converter_errors(worker: "Worker", config: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with the converters that a connector names."""
    errors = {}
    for setting, kind in _CONVERTERS:
        if name := config.get(setting):
            try:
                made: Any = worker.plugins.find(name, (kind,), setting)
            except ConfigError as error:
                errors[setting] = f"Invalid value {name} for configuration {setting}: {error}"
                continue
            faulty = made.config_def.validate(below(f"{setting}.", config))
            errors |= {f"{setting}.{one['value']['name']}": fault for one in faulty for fault in one["value"]["errors"]}
    return errors


def _name_errors(name: str) -> dict[str, str]:
    """A name is a part of URLs, of log lines, and of the names of groups."""
    if controls := sorted({ord(each) for each in name if unicodedata.category(each) == "Cc"}):
        text = f"String may not contain control sequences but had the following ASCII chars: {', '.join(map(str, controls))}"
    elif name in {".", ".."}:
        text = "must be another name than . and .., which no URL can have"
    else:
        return {}
    return {"name": f"Invalid value {name!r} for configuration name: {text}"}


def _worker_errors(worker: "Worker", made: type[Connector], config: Mapping[str, str]) -> dict[str, str]:
    """What the worker's settings do not allow."""
    errors = _name_errors(config.get("name", ""))
    errors |= shared_faults(config, getattr(made, "spark", None), worker.plugins.name_of(made))
    if worker.config["connector.client.config.override.policy"] == "None":
        text = "The 'None' policy does not allow '{}' to be overridden in the connector configuration."
        errors = {name: text.format(name) for name in config if name.startswith(("producer.override.", "consumer.override."))}
    isolation = (config.get("task.isolation") or worker.config["task.isolation"]).strip()
    if isolation == "process" and is_directory(worker.properties) and not on_spark(config):
        errors["task.isolation"] = NEEDS_A_SERVER
    if kind_of(made) == "source" and config.get("transaction.boundary", "").strip() == "connector" and not _ends_transactions(made, config):
        text = "The connector does not support connector-defined transaction boundaries with the provided configuration."
        errors["transaction.boundary"] = f"{text} Set it to poll or interval."
    if kind_of(made) == "source" and config.get("exactly.once.support") == "required":
        if worker.config["exactly.once.source.support"] != "enabled":
            errors["exactly.once.support"] = "This worker does not have exactly-once source support enabled."
        elif callable(decide := getattr(made(), "exactly_once", None)) and not decide(config):
            errors["exactly.once.support"] = "The connector does not support exactly-once semantics with the provided configuration."
    return errors


def _ends_transactions(made: type[Connector], config: Mapping[str, str]) -> bool:
    can = getattr(made(), "can_define_transaction_boundaries", None)
    return callable(can) and bool(can(config))


def unknown_properties(worker: "Worker", config: Mapping[str, str]) -> list[str]:
    """Properties that no part of a connector knows."""
    try:
        made = worker.plugins.connector(config.get("connector.class", ""))
        definition = definition_of(worker, made, config)
    except ConfigError:
        return []
    known = (*settings.PREFIXES, *getattr(made, "prefixes", ()), *(("spark.",) if on_spark(config) else ()))
    return [name for name in definition.unknown(config) if not name.startswith(known)]


def _unknown(name: str, fault: str) -> dict[str, Any]:
    return {"definition": None, "value": {"name": name, "value": None, "recommended_values": [], "errors": [fault], "visible": True}}
