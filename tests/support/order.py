"""Which tests share a worker of xdist, and which begin first."""

SPARK = "integration/spark/"
"""They share one Spark session: a worker runs them all."""

CLUSTERS = "integration/cluster/"
"""Each has a cluster of its own: one worker runs them, one after the other."""

SPREAD: tuple[str, ...] = ("crash/",)
"""Their tests share nothing and take long: each goes to the worker that is free."""

ORDER = (CLUSTERS, SPARK, "crash/", "integration/", "property/", "fuzz/", "compat/", "examples/", "unit/")
"""What takes long begins first, so that no worker is idle in the end."""


def key_of(nodeid: str) -> str:
    """A test's path below ``tests``, and its name."""
    return nodeid.removeprefix("tests/")


def place(nodeid: str) -> int:
    """Where a test stands in ``ORDER``."""
    key = key_of(nodeid)
    return next((number for number, begin in enumerate(ORDER) if key.startswith(begin)), len(ORDER))


def share(nodeid: str) -> str:
    """What a test shares its worker with: its file, so that what a module makes is made once; or as said above."""
    key = key_of(nodeid)
    for together in (SPARK, CLUSTERS):
        if key.startswith(together):
            return together
    return key if key.startswith(SPREAD) else key.split("::", maxsplit=1)[0]
