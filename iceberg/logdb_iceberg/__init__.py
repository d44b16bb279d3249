"""Topics as tables of Apache Iceberg (docs/inside/iceberg.md).  Programs use ``tail``."""

from typing import Any

__all__ = ["tail"]


def __getattr__(name: str) -> Any:
    """``tail`` needs pyiceberg, which takes a second to import."""
    if name == "tail":
        from logdb_iceberg.tails import tail

        return tail
    raise AttributeError(f"module 'logdb_iceberg' has no attribute {name!r}")
