"""Java's property files, as far as Kafka's users write them: ``key=value`` lines and comments."""


def parse(text: str) -> dict[str, str]:
    """The values by key; a line that is none is left out."""
    pairs = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", "!")):
            pairs[key.strip()] = value.strip()
    return pairs
