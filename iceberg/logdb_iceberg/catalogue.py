"""The metadata of one table as numbered files: the catalogue that pyiceberg commits to.

The layout is that of Iceberg's file-system tables.  The commit point is a hard link to the name ``vN.metadata.json``, which fails if
the number is taken.
"""

import os
import uuid
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from logdb.errors import CorruptionError, ReadFailed
from logdb.io import IO
from logdb.store.tables import current_metadata, metadata_version, read_metadata
from logdb_iceberg.files import SyncedFileIO, location_of, make_directory, opened, path_of, remove_files, sync_directory, write_through

METADATA_COUNT = 20
"""Versions of the metadata that are kept."""
NAMESPACE = "logdb"


class TableCatalogue(NoopCatalog):
    """The catalogue of the one table in ``directory``."""

    def __init__(self, directory: str, topic: str) -> None:
        super().__init__(NAMESPACE)
        self.directory, self._identifier, self._io = directory, (NAMESPACE, topic), SyncedFileIO()
        self._metadata = os.path.join(directory, "metadata")

    def create(self, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> Table:
        """Make the table, without a snapshot."""
        make_directory(self._metadata)
        metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, location_of(self.directory), dict(properties), uuid.uuid4())
        self._commit(1, metadata)
        return self.load_table(self._identifier)

    def load_table(self, identifier: str | tuple[str, ...] = ()) -> Table:  # noqa: ARG002 -- it has one
        """Raises NoSuchTableError."""
        found = current_metadata(IO(), self.directory)
        if found is None:
            raise NoSuchTableError(f"there is no table in {self.directory}")
        metadata = TableMetadataUtil.parse_obj(read_metadata(IO(), found[1]))
        return Table(self._identifier, metadata, location_of(found[1]), self._io, self)

    def commit_table(
        self,
        table: Table,  # noqa: ARG002 -- it has one
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Raises CommitFailedException if another commit came first."""
        current = self.load_table()
        for requirement in requirements:
            requirement.validate(current.metadata)
        metadata = update_table_metadata(current.metadata, updates, metadata_location=current.metadata_location)
        number = metadata_version(os.path.basename(current.metadata_location))
        assert number is not None
        location = self._commit(number + 1, metadata)
        return CommitTableResponse(metadata=metadata, **{"metadata-location": location})

    def _commit(self, number: int, metadata: TableMetadata) -> str:
        """Write a version of the metadata and give it its name, the commit point; returns its location."""
        path = os.path.join(self._metadata, f"v{number}.metadata.json")
        sync_directory(self._metadata)  # manifests have their names before metadata names them
        data = metadata.model_dump_json().encode()
        temporary = write_through(path, lambda file: _write(file, data))
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise CommitFailedException(f"{path} is there already: another commit came first; a retry is safe") from None
        finally:
            os.unlink(temporary)
        sync_directory(self._metadata)
        return location_of(path)

    def hint(self) -> None:
        """Say which version is the current one, for readers of the directory."""
        found = current_metadata(IO(), self.directory)
        assert found is not None
        path, data = os.path.join(self._metadata, "version-hint.text"), str(found[0]).encode()
        try:
            with opened(path) as file:
                if file.read(64) == data:
                    return
        except (FileNotFoundError, ReadFailed, CorruptionError):  # also a link or a pipe is replaced
            pass
        os.replace(write_through(path, lambda file: _write(file, data)), path)
        sync_directory(self._metadata)

    def remove_unnamed(self, table: Table, data_paths: set[str], manifest_paths: set[str]) -> None:
        """Remove the files that no snapshot names, and old metadata."""
        number = metadata_version(os.path.basename(path_of(table.metadata_location)))
        assert number is not None

        def is_old(name: str) -> bool:
            if (version := metadata_version(name)) is not None:
                return version <= number - METADATA_COUNT
            return os.path.join(self._metadata, name) not in manifest_paths and name != "version-hint.text"

        remove_files(self._metadata, is_old)
        data = os.path.join(self.directory, "data")
        remove_files(data, lambda name: os.path.join(data, name) not in data_paths)

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """``remove_unnamed`` does that."""


def _write(file: Any, data: bytes) -> None:
    file.write(data)


def properties_of(path: str) -> dict[str, str]:
    """The properties of the metadata in a file; of another file none."""
    document = read_metadata(IO(), path)
    return {**document.get("properties", {}), "location": document.get("location", "")}
