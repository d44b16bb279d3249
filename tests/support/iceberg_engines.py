"""Engines that read Iceberg tables."""

import duckdb
import polars as pl


def by_pyiceberg(found):
    return found.scan().to_arrow()


def by_polars(found):
    return pl.scan_iceberg(found, reader_override="native").collect().to_arrow()


def by_polars_with_pyiceberg(found):
    return pl.scan_iceberg(found, reader_override="pyiceberg").collect().to_arrow()


def by_duckdb(found):
    """Its extension for Iceberg is no package that can be installed here: it reads the files that the snapshot names."""
    paths = data_files(found)
    return duckdb.read_parquet(paths).to_arrow_table() if paths else found.schema().as_arrow().empty_table()


def data_files(found):
    """The paths of the files that the current snapshot names."""
    return [task.file.file_path.removeprefix("file://") for task in found.scan().plan_files()]
