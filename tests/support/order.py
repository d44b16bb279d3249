"""Which tests share a worker of xdist, and which begin first."""

SPARK = "integration/spark/"
"""They share one Spark session: a worker runs them all."""

OWN_SPARK = tuple(f"{SPARK}test_{name}.py" for name in ("demo_spark", "machine_kills", "run", "sinks_kill", "standalone", "stream_kill"))
"""These start a Spark of their own: they go to any worker."""

CLUSTERS = "integration/cluster/"
"""Each has a cluster of its own: one worker runs them, one after the other."""

SPREAD: tuple[str, ...] = ("crash/",)
"""Their tests share nothing and take long: each goes to the worker that is free."""

LONGEST = (
    "compat/test_spark_kafka.py",
    "compat/",
    "integration/test_how_to.py",
    "integration/connect/",
    "integration/kafka/",
    "integration/test_tutorial.py",
    "integration/test_packaging.py",
)
"""Files that take a minute or more."""

ORDER = (CLUSTERS, *OWN_SPARK, SPARK, *LONGEST, "crash/", "integration/", "property/", "fuzz/", "examples/", "unit/")
"""What takes long begins first, so that no worker is idle in the end; the first that fits counts."""


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
        if key.startswith(together) and not key.startswith(OWN_SPARK):
            return together
    return key if key.startswith(SPREAD) else key.split("::", maxsplit=1)[0]
