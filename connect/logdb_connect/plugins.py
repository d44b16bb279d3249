"""Classes by the names that people write in ``connector.class`` and the like.

Names come from the catalogue (Kafka's short names and Java names), from entry points, from the directories of ``plugin.path``, or
name a Python class: ``module:Class``.  A class is imported when it is used first.  A plugin that cannot be imported leaves the
others usable.
"""

import difflib
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from logdb_connect.catalogue import PLUGINS, Kind, Plugin
from logdb_connect.errors import ConfigError

logger = logging.getLogger(__name__)

_importing = threading.Lock()  # tasks begin side by side; Python 3.11 may fail to parse several modules at a time
GROUPS = ("logdb.connectors", "logdb.transforms", "logdb.converters")
_WHAT: dict[Kind, str] = {
    "source": "connector",
    "sink": "connector",
    "converter": "converter",
    "header_converter": "header converter",
    "transformation": "transform",
    "predicate": "predicate",
}


class Found(NamedTuple):
    """A plugin as ``/connector-plugins`` shows it."""

    name: str
    kind: Kind
    version: str


class Plugins:
    """All plugins of a worker.  Threading: any thread."""

    def __init__(self, plugin_path: Sequence[str] = (), allowed: Sequence[str] = ()) -> None:
        """Find the plugins.

        Args:
            plugin_path: Directories with Python modules and packages.
            allowed: Names of the only connectors that may be used; empty: all.
        """
        self._allowed = frozenset(allowed)
        self._lock = threading.Lock()
        self._plugins = list(PLUGINS)
        self._plugins += (Plugin(point.value, "source", point.value, (point.name,)) for point in _entry_points())
        self._guessed = {plugin.target for plugin in self._plugins[len(PLUGINS) :]}  # their kind is known once they are imported
        for directory in plugin_path:
            self._plugins += _of_directory(os.path.abspath(directory))

    def connector(self, name: str) -> type:
        """The class of a connector.

        Raises:
            ConfigError: No connector has this name, or it may not be used; the error lists the known ones.
        """
        made = self.find(name, ("source", "sink"), "connector.class")
        if self._allowed and not self._allowed & {name, self.name_of(made), *_names(self._plugin_of(made))}:
            known = ", ".join(sorted(self._allowed))
            raise ConfigError("connector.class", f"connector.class={name}: this worker allows only {known} (connector.classes.allowed)")
        return made

    def find(self, name: str, kinds: Sequence[Kind], setting: str) -> type:
        """The class that ``name`` means among plugins of ``kinds``.

        Raises:
            ConfigError: There is none, or it cannot be imported.
        """
        plugin = next((one for one in self._plugins if one.kind in kinds and name in _names(one)), None)
        if plugin is None and name in self._by_guess():
            plugin = next(one for one in self._plugins if name in _names(one))
        if plugin is None and ":" not in name:
            known = ", ".join(sorted({one.name for one in self._plugins if one.kind in kinds}))
            raise ConfigError(
                setting,
                f"Failed to find any class that implements {_WHAT[kinds[0]].capitalize()} and which name matches {name}, "
                f"available {_WHAT[kinds[0]]}s are: {known or 'none'}{self._hint(name, kinds)}",
            )
        made = _load(name if plugin is None else plugin.target, setting, None if plugin is None else plugin.extra)
        if not any(_is(made, kind) for kind in kinds):
            raise ConfigError(setting, f"{setting}={name}: is no {_WHAT[kinds[0]]}; it must have {_needs(kinds[0])}")
        return made

    def _hint(self, name: str, kinds: Sequence[Kind]) -> str:
        """The names that look like one, as a question."""
        known = {other.lower(): other for one in self._plugins if one.kind in kinds for other in sorted(_names(one), key=len, reverse=True)}
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)
        return f"; did you mean {known[near[0]]}?" if near else ""

    def name_of(self, made: type) -> str:
        """The name by which others know a class."""
        plugin = self._plugin_of(made)
        return f"{made.__module__}:{made.__qualname__}" if plugin is None else plugin.name

    def all(self) -> list[Found]:
        """All plugins that can be imported, by kind and name."""
        found = set()
        for plugin in self._plugins:
            kind, version = plugin.kind, _own_version()
            if plugin.target in self._guessed or not _is_ours(plugin):
                try:
                    made = _load(plugin.target, "plugin", None)
                except ConfigError as error:
                    logger.warning("%s", error)
                    continue
                kind, version = kind_of(made) or kind, str(getattr(made, "version", "undefined"))
            found.add(Found(plugin.name, kind, version))
        return sorted(found, key=lambda one: (list(_WHAT).index(one.kind), one.name))

    def _plugin_of(self, made: type) -> Plugin | None:
        target = f"{made.__module__}:{made.__qualname__}"
        return next((one for one in self._plugins if one.target == target), None)

    def _by_guess(self) -> set[str]:
        return {name for one in self._plugins if one.target in self._guessed for name in _names(one)}


_METHODS: dict[Kind, str] = {
    "converter": "from_connect",
    "header_converter": "from_connect_header",
    "transformation": "apply",
    "predicate": "test",
}


def kind_of(made: Any) -> Kind | None:
    """What a class is, by its methods; None: no plugin.  One that is several things is the first of them."""
    return next((kind for kind in _WHAT if _is(made, kind)), None)


def _is(made: Any, kind: Kind) -> bool:
    if not isinstance(made, type):
        return False
    if kind in ("source", "sink"):
        task = getattr(made, "task_class", None)
        return callable(getattr(made, "task_configs", None)) and callable(getattr(task, "poll" if kind == "source" else "put", None))
    return callable(getattr(made, _METHODS[kind], None))


def _needs(kind: Kind) -> str:
    if kind in ("source", "sink"):
        return "task_configs, and a task_class with poll (source) or put (sink)"
    return f"the method {_METHODS[kind]}"


def _names(plugin: Plugin | None) -> set[str]:
    """All names of a plugin: Java's, its last part, each with and without ``Connector``."""
    if plugin is None:
        return set()
    names = {plugin.name, plugin.target, *plugin.others}
    if ":" not in plugin.name:
        names.add(plugin.name.rpartition(".")[2])
    suffix = "Connector" if plugin.kind in ("source", "sink") else "Converter" if "converter" in plugin.kind else ""
    return names | {name.removesuffix(suffix) for name in names if suffix and ":" not in name}


def _load(target: str, setting: str, extra: str | None) -> type:
    module, _, name = target.partition(":")
    try:
        with _importing:
            made: Any = importlib.import_module(module)
        for part in name.split("."):
            made = getattr(made, part)
    except ModuleNotFoundError as error:
        hint = f"; it is in the extra {extra} of logdb" if extra and not module.startswith(str(error.name)) else ""
        raise ConfigError(setting, f"{target} needs the package {error.name}{hint}") from error
    except Exception as error:
        raise ConfigError(setting, f"{target} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(made, type):
        raise ConfigError(setting, f"{target} is no class")
    return made


def _is_ours(plugin: Plugin) -> bool:
    return plugin.target.startswith("logdb_connect.")


def version_of(made: type) -> str:
    """The version of a connector's class."""
    return _own_version() if made.__module__.startswith("logdb_connect.") else str(getattr(made, "version", "undefined"))


def _own_version() -> str:
    from logdb import __version__

    return __version__


def _entry_points() -> Iterator[importlib.metadata.EntryPoint]:
    for group in GROUPS:
        yield from importlib.metadata.entry_points(group=group)


def _of_directory(directory: str) -> Iterator[Plugin]:
    """The plugins in the modules of a directory, and in those of its subdirectories that are no packages."""
    if not os.path.isdir(directory):
        logger.warning("plugin.path: %s is not a directory", directory)
        return
    below = [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if not name.startswith((".", "_"))]
    roots = [one for one in below if os.path.isdir(one) and not os.path.exists(os.path.join(one, "__init__.py"))]
    for root in (directory, *roots):
        if root not in sys.path:
            sys.path.append(root)
        for name in _modules(root):
            yield from _of_module(name, root)


def _modules(root: str) -> Iterable[str]:
    for name in sorted(os.listdir(root)):
        path = os.path.join(root, name)
        if name.endswith(".py") or os.path.exists(os.path.join(path, "__init__.py")):
            yield name.removesuffix(".py")


def _of_module(name: str, root: str) -> Iterator[Plugin]:
    try:
        module = importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 -- a plugin of someone else
        logger.warning("plugin.path: %s in %s cannot be imported: %s: %s", name, root, type(error).__name__, error)
        return
    for made in vars(module).values():
        if isinstance(made, type) and made.__module__ == name and (kind := kind_of(made)) is not None:
            yield Plugin(f"{name}:{made.__qualname__}", kind, f"{name}:{made.__qualname__}", (made.__qualname__,))
