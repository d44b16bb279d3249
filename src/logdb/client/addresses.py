"""The argument of ``logdb.open``: a directory, or URLs of servers; a mistyped one gets an error that says what was meant."""

import os
import re
from collections.abc import Iterable

# Compiled at the first use, which most names do not need.
_URL = r"(?is)(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)"
_BROKEN_URL = r"(?is)(?P<scheme>https?|file)(?::/?|//)(?P<rest>[^/].*)"  # a colon or a slash is missing
_HOST_AND_PORT = r"(?a)(?://)?(?:[^/@]*@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]*)(?P<port>:\d{1,5}(?:/.*)?)"


def directory_or_urls(given: object) -> str | tuple[str, ...]:
    """The directory, or the URLs, of the argument.

    Raises:
        ValueError: It looks like something else; the error says what was meant.
        TypeError: It is neither.
    """
    if isinstance(given, str) and "://" in given and (found := re.fullmatch(_URL, given)) and found["scheme"].lower() != "file":
        return (given,)
    if isinstance(given, str) or (isinstance(given, os.PathLike) and isinstance(os.fspath(given), str)):
        return path_of(given)
    urls = tuple(given) if isinstance(given, Iterable) and not isinstance(given, bytes | bytearray | dict) else (None,)
    if not all(isinstance(url, str) for url in urls):
        raise TypeError(f"{given!r:.80} is {type(given).__name__}: must be a directory (str or os.PathLike), a URL, or several URLs")
    return urls


def path_of(given: object) -> str:
    """The path of a directory or a file: a str is checked for mistakes, a ``Path`` only for a broken URL.

    Raises:
        ValueError: It looks like something else; the error says what was meant.
        TypeError: It is neither.
    """
    path: object = given if isinstance(given, str) else os.fspath(given) if isinstance(given, os.PathLike) else None
    if not isinstance(path, str):
        raise TypeError(f"{given!r:.80} is {type(given).__name__}: must be a path (str or os.PathLike)")
    if "\0" in path:
        raise ValueError(f"{path!r} contains a NUL character")
    if found := _url(path):
        if found["scheme"].lower() == "file":
            raise ValueError(f"{path!r}: a path is written without 'file:': '/{found['rest'].lstrip('/')}'")
        raise ValueError(f"{without_credentials(path)!r} is no path: a server is {url_meant(path)!r}")
    if isinstance(given, str):
        _check_name(path)
    return path


def _check_name(name: str) -> None:
    """Check that a str is meant as the name of a directory or a file."""
    if not name:
        raise ValueError("'' names no directory; '.' is the current one")
    if name.strip() != name:
        raise ValueError(f"{name!r} begins or ends with a space; pathlib.Path({name!r}) is a path of that name")
    if name == ":memory:":
        raise ValueError(f"{name!r}: no database is kept in memory: give a directory, such as one of tempfile.mkdtemp()")
    if ":" in name and re.fullmatch(_HOST_AND_PORT, name):
        shown = without_credentials(name)
        raise ValueError(f"{shown!r}: ambiguous: {url_meant(name)!r} is the server there, './{shown}' a path of that name")
    if (expanded := os.path.expanduser(name)) != name:
        raise ValueError(f"{name!r} is not expanded here: os.path.expanduser gives {expanded!r}; './{name}' is a path of that name")


def url_meant(name: str) -> str | None:
    """The server's URL that was meant by a URL, a broken one, or host and port; None without one."""
    if found := _url(name):
        return f"{found['scheme'].lower()}://{without_credentials(found['rest'])}" if found["scheme"].lower() != "file" else None
    if found := re.fullmatch(_HOST_AND_PORT, name):
        return f"http://{found['host'] or 'localhost'}{found['port']}"
    return None


def _url(name: str) -> "re.Match[str] | None":
    """The parts of a URL, whole or broken."""
    return (re.fullmatch(_URL, name) or re.fullmatch(_BROKEN_URL, name)) if ":" in name or "//" in name else None


def without_credentials(url: str) -> str:
    """A URL, or a part of one, without user and password."""
    return re.sub(r"(^|//)[^/]*@", r"\1", url, count=1)  # up to the last @: a password may have one
