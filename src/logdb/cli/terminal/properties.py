"""Java's property files, as ``java.util.Properties`` reads them, in UTF-8."""

import re
from collections.abc import Iterator, Mapping

import click

_BLANKS = " \t\f"
_PAIR = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    """The values by key.

    Raises:
        ValueError: The number of an escape is no character's.
    """
    return {_unescaped(pair[1]): _unescaped(pair[2]) for line in _lines(text) if (pair := _PAIR.fullmatch(line))}


def _lines(text: str) -> Iterator[str]:
    """The lines without comments and blank ones; one that ends in an odd number of backslashes goes on in the next."""
    begun = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_BLANKS)
        if not begun and line.startswith(("#", "!")):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2
        begun += line[: len(line) - goes_on]
        if begun and not goes_on:
            yield begun
            begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1]
        if code == "u":
            raise ValueError(f"{text!r}: \\u needs four hexadecimal digits")
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16")  # Java escapes an emoji as two characters


def trimmed(pairs: Mapping[str, str]) -> dict[str, str]:
    """Values without blanks around them, as Kafka takes those of configs."""
    return {key: value.strip() for key, value in pairs.items()}


def read(path: str) -> dict[str, str]:
    """The values of a file.

    Raises:
        click.UsageError: It cannot be read.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return parse(file.read())
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path}: {error}") from None
