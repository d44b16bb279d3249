"""Which tests share a worker of xdist, and which begin first."""

SPARK = ("integration/spark/",)
"""A worker runs them all: most share one Spark session."""

OTHER_SPARKS = (
    *(f"compat/test_spark_{name}.py" for name in ("kafka", "kafka_at_nodes", "real_time", "iceberg")),
    *(f"integration/connect/test_{name}.py" for name in ("spark", "spark_on_s3")),
    "integration/test_tutorial.py",
    "integration/test_how_to.py",
)
"""Each starts Sparks of its own.  One worker runs them all: Spark gives a Python worker 10 s, too few on a busy machine."""

CLUSTERS = ("integration/cluster/",)
"""Each has a cluster of its own: one worker runs them, one after the other."""

SPREAD: tuple[str, ...] = ("crash/",)
"""Their tests share nothing and take long: each goes to the worker that is free."""

LONGEST = ("compat/", "integration/connect/", "integration/kafka/", "integration/test_packaging.py")
"""Files that take a minute or more."""

ORDER = (*SPARK, *OTHER_SPARKS, *CLUSTERS, *LONGEST, "crash/", "integration/", "property/", "fuzz/", "examples/", "unit/")
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
    for together in (SPARK, OTHER_SPARKS, CLUSTERS):
        if key.startswith(together):
            return together[0]
    return key if key.startswith(SPREAD) else key.split("::", maxsplit=1)[0]
