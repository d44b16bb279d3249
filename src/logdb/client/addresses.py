"""What a database is named by: a directory, or URLs of servers.

Knows what only looks like one of them, and what was meant then: nobody wants a directory called ``localhost:8080``.  Does not
know what is there.
"""

import os
import re
from collections.abc import Iterable

# Compiled when they are needed first, which for most names is never.
_URL = r"(?is)(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)"
_BROKEN_URL = r"(?is)(?P<scheme>https?|file)(?::/?|//)(?P<rest>[^/].*)"  # it lacks a colon or a slash
_HOST_AND_PORT = r"(?a)(?://)?(?:[^/@]*@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]*)(?P<port>:\d{1,5}(?:/.*)?)"


def directory_or_urls(given: object) -> str | tuple[str, ...]:
    """The directory, or the URLs, that ``logdb.open`` is given.

    Raises:
        ValueError: It looks like something else; says what was meant.
        TypeError: It is neither.
    """
    if isinstance(given, str) and "://" in given and (found := re.fullmatch(_URL, given)) and found["scheme"].lower() != "file":
        return (given,)
    if isinstance(given, str) or (isinstance(given, os.PathLike) and isinstance(os.fspath(given), str)):
        return path_of(given)
    urls = tuple(given) if isinstance(given, Iterable) and not isinstance(given, bytes | bytearray | dict) else (None,)
    if not all(isinstance(url, str) for url in urls):
        raise TypeError(f"{given!r:.80} is {type(given).__name__}: wanted is a directory (str or os.PathLike), a URL, or several URLs")
    return urls


def path_of(given: object) -> str:
    """The path of a directory or a file: a name, which is looked at closely, or a ``Path``, which is a path unless it was a URL.

    Raises:
        ValueError: It looks like something else; says what was meant.
        TypeError: It is neither.
    """
    path: object = given if isinstance(given, str) else os.fspath(given) if isinstance(given, os.PathLike) else None
    if not isinstance(path, str):
        raise TypeError(f"{given!r:.80} is {type(given).__name__}: wanted is a path (str or os.PathLike)")
    if "\0" in path:
        raise ValueError(f"{path!r} holds a NUL, which no path does")
    if found := _url(path):
        if found["scheme"].lower() == "file":
            raise ValueError(f"{path!r}: a path is written without 'file:': '/{found['rest'].lstrip('/')}'")
        raise ValueError(f"{without_credentials(path)!r} is no path: a server is {url_meant(path)!r}")
    if isinstance(given, str):
        _check_name(path)
    return path


def _check_name(name: str) -> None:
    """See that what somebody has written as the name of a directory or a file is meant as one."""
    if not name:
        raise ValueError("'' names no directory; '.' is the current one")
    if name.strip() != name:
        raise ValueError(f"{name!r} begins or ends with a space; pathlib.Path({name!r}) is a path of that name")
    if name == ":memory:":
        raise ValueError(f"{name!r}: no database is kept in memory: give a directory, such as one of tempfile.mkdtemp()")
    if ":" in name and re.fullmatch(_HOST_AND_PORT, name):
        shown = without_credentials(name)
        raise ValueError(f"{shown!r}: which is meant? {url_meant(name)!r} is the server there, './{shown}' a path of that name")
    if (expanded := os.path.expanduser(name)) != name:
        raise ValueError(f"{name!r} is not expanded here: os.path.expanduser gives {expanded!r}; './{name}' is a path of that name")


def url_meant(name: str) -> str | None:
    """The URL of the server that is meant by a URL, by one without a colon or a slash, or by host and port; None: by none of these."""
    if found := _url(name):
        return f"{found['scheme'].lower()}://{without_credentials(found['rest'])}" if found["scheme"].lower() != "file" else None
    if found := re.fullmatch(_HOST_AND_PORT, name):
        return f"http://{found['host'] or 'localhost'}{found['port']}"
    return None


def _url(name: str) -> "re.Match[str] | None":
    """A URL, whole or broken, by its parts."""
    return (re.fullmatch(_URL, name) or re.fullmatch(_BROKEN_URL, name)) if ":" in name or "//" in name else None


def without_credentials(url: str) -> str:
    """A URL, or a part of one, without the user and the password that it may hold."""
    return re.sub(r"(^|//)[^/@]*@", r"\1", url, count=1)
