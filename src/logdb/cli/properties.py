"""Java's property files, as far as Kafka's users write them: ``key=value`` lines and comments."""

import click


def parse(text: str) -> dict[str, str]:
    """The values by key; a line that is none is left out."""
    pairs = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", "!")):
            pairs[key.strip()] = value.strip()
    return pairs


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
