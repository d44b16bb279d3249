"""Variables in properties, ``${file:/etc/secrets.properties:password}``, and the providers of their values (KIP-297).

A worker names its providers in ``config.providers``; ``config.providers.<name>.class`` says what each is, and
``config.providers.<name>.param.<parameter>`` configures it.  A connector's properties are stored, shown and returned with the variables.
The values are looked up when a connector or a task starts, and whenever properties are validated.

A value is a ``Secret``: ``repr`` hides it.  Messages and traces that a worker logs or returns go through ``Providers.redact``.

Unlike Kafka, a variable of a known provider that has no value is an error; Kafka passes the text of the variable on, as a password.
"""

import importlib
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote, quote_plus

from logdb.cli.terminal import properties as java_properties
from logdb_connect.errors import ConfigError
from logdb_connect.transforms.base import compiled

SIZE_MAX: Final = 1 << 20
"""Bytes of a file that a provider reads."""
_REDACTED_MIN = 4  # a shorter value is in many words
_SECRETS_MAX = 10_000
_PACKAGE = "org.apache.kafka.common.config.provider."


class Secret(str):
    """A text from a provider.  It works as any other text, but ``repr`` hides it: that of properties, too."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


class ConfigProvider(Protocol):
    """What a provider implements; it is made without arguments."""

    def configure(self, parameters: Mapping[str, str]) -> None:
        """``parameters`` are the properties below ``config.providers.<name>.param.``."""

    def get(self, path: str, key: str) -> str | None:
        """The value of ``${name:path:key}``; None: there is none.

        Raises:
            ValueError: The path may not be read.
            OSError: The path cannot be read.
        """

    def close(self) -> None:
        """Release what it holds."""


class _AllowedPaths:
    """What files a provider may read: those below ``allowed.paths``, wherever symbolic links lead; without that, all."""

    def configure(self, parameters: Mapping[str, str]) -> None:
        self._allowed: list[str] = []
        for path in filter(None, (each.strip() for each in parameters.get("allowed.paths", "").split(","))):
            if not os.path.isabs(path):
                raise ValueError(f"allowed.paths: Path {path} is not absolute")
            if not os.path.exists(path):
                raise ValueError(f"allowed.paths: Path {path} does not exist")
            self._allowed.append(os.path.realpath(path))

    def close(self) -> None:
        pass

    def _text(self, path: str) -> str:
        """The content of a regular file."""
        real = os.path.realpath(path)
        if self._allowed and not any(os.path.commonpath([real, each]) == each for each in self._allowed):
            raise ValueError(f"the path {path} is not below allowed.paths")
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError(f"the path {path} is no regular file")
            data = file.read(SIZE_MAX + 1)
        if len(data) > SIZE_MAX:
            raise ValueError(f"the file {path} has more than {SIZE_MAX} bytes")
        return data.decode()


class FileConfigProvider(_AllowedPaths):
    """Keys of property files: ``${file:/path:key}``."""

    def get(self, path: str, key: str) -> str | None:
        if not path:
            return None
        text = self._text(path)
        try:
            return java_properties.parse(text).get(key)
        except ValueError:  # its text has a part of the file
            raise ValueError(f"the file {path} has a wrong escape") from None


class DirectoryConfigProvider(_AllowedPaths):
    """Whole files of a directory, as Kubernetes mounts secrets: ``${dir:/path:file}``."""

    def get(self, path: str, key: str) -> str | None:
        if not path:
            return None
        if key in {"", ".", ".."} or "/" in key:
            raise ValueError(f"{key!r} is no name of a file")
        try:
            return self._text(os.path.join(path, key))
        except FileNotFoundError:
            return None


class EnvVarConfigProvider:
    """Variables of the environment: ``${env:NAME}``."""

    def configure(self, parameters: Mapping[str, str]) -> None:
        pattern = parameters.get("allowlist.pattern")
        self._pattern = None if pattern is None else compiled("allowlist.pattern", pattern)

    def close(self) -> None:
        pass

    def get(self, path: str, key: str) -> str | None:
        if path:
            raise ValueError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return os.environ.get(key) if self._pattern is None or self._pattern.fullmatch(key) else None


_CLASSES: Final[Mapping[str, type[Any]]] = {
    _PACKAGE + made.__name__: made for made in (FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider)
}


class Providers:
    """The providers of one worker.

    Any thread may resolve properties.
    """

    def __init__(self, worker: Mapping[str, str]) -> None:
        """Make those that a worker's properties name.

        Raises:
            ConfigError: A class is unknown, or refuses its parameters.
        """
        self._secrets: dict[str, None] = {}
        self._providers: dict[str, ConfigProvider] = {}
        for name in filter(None, (each.strip() for each in worker.get("config.providers", "").split(","))):
            self._providers[name] = _made(name, worker)

    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """Properties with values in place of variables.  A variable of an unknown provider stays.

        Raises:
            ConfigError: A provider has no such value, or cannot read it.
        """
        return {name: self._resolved(name, text) if "${" in text else text for name, text in config.items()}

    def redact(self, text: str) -> str:
        """A text without the values that were resolved, also as URLs have them; a value shorter than four characters stays."""
        for secret in sorted(self._secrets, key=len, reverse=True):  # one may be the begin of another one
            text = text.replace(secret, "[hidden]")
        return text

    def close(self) -> None:
        for provider in self._providers.values():
            provider.close()

    def _resolved(self, name: str, text: str) -> str:
        made, at, is_secret = "", 0, False
        while (start := text.find("${", at)) >= 0 and (end := text.find("}", start)) >= 0:
            found = self._value(name, text[start + 2 : end].split(":", 2))
            if found is None:
                made, at = made + text[at : start + 2], start + 2
            else:
                made, at, is_secret = made + text[at:start] + found, end + 1, True
        made += text[at:]
        return Secret(made) if is_secret else text

    def _value(self, name: str, parts: Sequence[str]) -> str | None:
        """The value of a variable; None where it has no provider here."""
        provider = self._providers.get(parts[0]) if len(parts) > 1 else None
        if provider is None:
            return None
        path, key = (parts[1], parts[2]) if len(parts) == 3 else ("", parts[1])
        variable = "${" + ":".join(parts) + "}"
        try:
            found = provider.get(path, key)
        except UnicodeDecodeError:  # its text has the bytes
            raise ConfigError(name, f"Invalid value {variable} for configuration {name}: {path} is not UTF-8") from None
        except OSError as error:
            raise ConfigError(name, f"Invalid value {variable} for configuration {name}: {error.strerror}: {path}") from None
        except ValueError as error:
            raise ConfigError(name, f"Invalid value {variable} for configuration {name}: {error}") from None
        if found is None:
            raise ConfigError(name, f"Invalid value {variable} for configuration {name}: the provider {parts[0]} has no such value")
        if len(found) >= _REDACTED_MIN and len(self._secrets) < _SECRETS_MAX:
            self._secrets |= dict.fromkeys(_forms(found))
            if len(stripped := found.strip()) >= _REDACTED_MIN:  # a file may end with a line feed
                self._secrets |= dict.fromkeys(_forms(stripped))
        return found


def _forms(text: str) -> Sequence[str]:
    """How messages may have a value: as it is, as in URLs, as in ``repr``."""
    return text, quote(text, safe=""), quote(text), quote_plus(text), repr(text)[1:-1]


def _made(name: str, worker: Mapping[str, str]) -> ConfigProvider:
    setting = f"config.providers.{name}.class"
    text = worker.get(setting)
    if not text:
        raise ConfigError(setting, f'Missing required configuration "{setting}" which has no default value.')
    made: Any = _CLASSES.get(text)
    if made is None:
        module, _, attribute = text.partition(":")
        try:
            made = importlib.import_module(module).__dict__[attribute] if attribute else None
        except (ImportError, KeyError, ValueError) as error:
            raise ConfigError(setting, f"Invalid value {text} for configuration {setting}: {error}") from None
        if made is None:
            known = ", ".join(sorted(_CLASSES))
            raise ConfigError(setting, f"Invalid value {text} for configuration {setting}: must be one of {known}, or module:Class")
    prefix = f"config.providers.{name}.param."
    provider: ConfigProvider = made()
    try:
        provider.configure({key.removeprefix(prefix): value for key, value in worker.items() if key.startswith(prefix)})
    except ValueError as error:
        raise ConfigError(setting, f"config.providers.{name}.param.{error}") from None
    return provider
