"""Mirrors that die at a given point."""

import pytest

from logdb.client.mirror import Mirror
from logdb.codec import convert


def copy_without_the_last_batch(mirror: Mirror) -> None:
    """Copy, and die before the last batch of the first append, as a marker is."""

    def dies(where, batches):
        *begun, _marker = [bytes(image) for image, _ in convert.headers(batches)]
        append(where, bytearray(b"".join(begun)))
        raise KeyboardInterrupt

    append, mirror._append = mirror._append, dies
    with pytest.raises(KeyboardInterrupt):
        mirror.copy()
