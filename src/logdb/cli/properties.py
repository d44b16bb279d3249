"""Java's property files, as far as Kafka's users write them: ``key=value`` lines, which go on behind a backslash, and comments."""

from collections.abc import Iterator

import click


def parse(text: str) -> dict[str, str]:
    """The values by key; a line that is none is left out."""
    pairs = {}
    for line in _lines(text):
        key, equals, value = line.partition("=")
        if equals:
            pairs[key.strip()] = value.strip()
    return pairs


def _lines(text: str) -> Iterator[str]:
    """The lines without comments; one that ends in an odd number of backslashes goes on in the next."""
    begun = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not begun and line.startswith(("#", "!")):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2
        line, begun = begun + line.removesuffix("\\" * goes_on), ""
        if goes_on:
            begun = line
        else:
            yield line
    yield begun


def read(path: str) -> dict[str, str]:
    """The values of a file.

    Raises:
        click.UsageError: It cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from None
