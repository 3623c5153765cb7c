"""Iceberg tables, by `pyiceberg`: a snapshot adds and removes files that workers wrote, without reading their rows.

One commit per table and batch makes one snapshot. The number of the batch is in the properties of the snapshot and, for
the next opening, in those of the table. Columns are found in the files by name. Commits are not retried: if another one
has changed the table meanwhile, the batch fails.

The catalog is a SQLite database in `_logwright/` unless options name another one. For tables in an object store they
must. Each commit reads and writes all that the table remembers of its snapshots, so only the last ones are kept.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import partition_to_py
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    ResolveError,
    RESTError,
    ValidationError,
    ValidationException,
)
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType
from sqlalchemy.exc import SQLAlchemyError

from ...errors import LogwrightError, StorageFailed, WrongUse
from . import synced_io
from .control import HOME
from .publisher import TableFile
from .store import LocalStore, Store
from .transactions import Change, Tables

NAMESPACE: Final = "logwright"
KEPT_SNAPSHOTS: Final = 10
BATCH: Final = "logwright.batch"
"""The property of snapshots and tables that has the number of the last batch."""
_CATALOG_FILE: Final = "catalog.db"
_MOST_DEAD_MANIFESTS: Final = 10
_AT_ONCE: Final = 8
_PROPERTIES: Final = {
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.MANIFEST_MIN_MERGE_COUNT: "20",
    TableProperties.COMMIT_NUM_RETRIES: "0",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "5",
}


def open_catalog(store: Store, properties: Mapping[str, str], name: str | None = None) -> Catalog:
    """The catalog that properties describe, or that has this name in pyiceberg's own settings; SQLite by default."""
    found = dict(properties)
    if isinstance(store, LocalStore):
        found.setdefault("py-io-impl", synced_io.NAME)
        if name is None and not properties:
            found |= {"type": "sql", "uri": f"sqlite:///{store.path(f'{HOME}/{_CATALOG_FILE}')}"}
    elif name is None and "type" not in found and "uri" not in found:
        raise WrongUse(
            f"{store.out}: Iceberg tables in an object store need a catalog; use catalog.type and catalog.uri"
        )
    with _translated("open the catalog of", store.out):
        return load_catalog(name or NAMESPACE, **found)


class IcebergTables(Tables):
    """The Iceberg tables in a store, and their catalog, which is closed with them."""

    format: ClassVar[str] = "iceberg"

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        *,
        namespace: str = NAMESPACE,
        kept_snapshots: int = KEPT_SNAPSHOTS,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._namespace = namespace
        self._kept = kept_snapshots
        self._opened: dict[str, Table] = {}
        self._fitting: dict[str, tuple[pa.Schema, int]] = {}
        """The schema of the last commit to a table, and the one that the table had then: comparing them is slow."""
        with _translated("open the catalog of", store.out):
            catalog.create_namespace_if_not_exists(namespace)

    def batch(self, table: str) -> int:
        with _translated("read", self._store.uri(table)):
            found = self._open(table)
            return 0 if found is None else int(found.properties.get(BATCH, "0"))

    def files(self, table: str) -> list[TableFile]:
        with _translated("read", self._store.uri(table)):
            found = self._open(table)
            if found is None:
                return []
            return [
                TableFile(table, name, file.record_count, file.file_size_in_bytes, _partition_of(found.metadata, file))
                for name, file in self._data_files(found).items()
            ]

    def check(self, change: Change) -> None:
        found = self._opened.get(change.table)
        if found is None:
            return
        columns = tuple(field.name for field in found.spec().fields)
        if columns != change.partition_by:
            raise WrongUse(f"{self._store.uri(change.table)} is partitioned by {columns}, not {change.partition_by}")
        if self._fits(found, change):
            return
        try:
            self._add_columns(found.transaction(), change)  # which is not committed
        except (ValidationError, ResolveError, ValueError) as error:
            raise WrongUse(f"{self._store.uri(change.table)}: {error}") from error

    def commit(self, change: Change, batch: int) -> None:
        with _translated("commit to", self._store.uri(change.table)):
            table = self._opened.get(change.table) or self._create(change)
            removed = self._data_files(table) if change.removed else {}
            with table.transaction() as transaction:
                if not self._fits(table, change):
                    self._add_columns(transaction, change)
                transaction.set_properties({BATCH: str(batch)})
                metadata = transaction.table_metadata
                with ThreadPoolExecutor(_AT_ONCE) as pool:
                    added = list(pool.map(lambda file: self._data_file(metadata, file), change.added))
                if change.removed:
                    self._drop_dead_manifests(transaction, table, batch)
                if added or change.removed:
                    update = transaction.update_snapshot(snapshot_properties={BATCH: str(batch)})
                    with update.overwrite() if change.removed else update.merge_append() as snapshot:
                        for data_file in added:
                            snapshot.append_data_file(data_file)
                        for file in change.removed:
                            snapshot.delete_data_file(removed[file.name])
                self._forget_snapshots(transaction)
            self._fitting[change.table] = change.schema, table.metadata.current_schema_id

    def seal(self, table: str) -> Any:
        found = self._opened[table].current_snapshot()
        return {
            "metadata": self._opened[table].metadata_location,
            "snapshot": None if found is None else found.snapshot_id,
        }

    def vacuum(self, table: str, retention: datetime.timedelta) -> int:
        with _translated("vacuum", self._store.uri(table)):
            found = self._open(table)
            if found is None:
                return 0
            needed = _needed_files(found)
            oldest = datetime.datetime.now(datetime.UTC) - retention
            folder = self._store.uri(table)
            parts = self._store.parts(table)
            left = [name for name, info in parts.items() if f"{folder}/{name}" not in needed and info.mtime <= oldest]
            for name in left:
                self._store.remove(f"{table}/{name}")
            for info in self._store.filesystem.get_file_info(
                fs.FileSelector(self._store.path(f"{table}/metadata"), allow_not_found=True)
            ):
                if f"{folder}/metadata/{info.base_name}" not in needed and info.mtime <= oldest:
                    self._store.remove(f"{table}/metadata/{info.base_name}")
            return len(left)

    def close(self) -> None:
        self._opened.clear()
        self._catalog.close()

    def _open(self, table: str) -> Table | None:
        found = self._opened.get(table)
        if found is not None:
            found.refresh()
            return found
        with contextlib.suppress(NoSuchTableError):
            self._opened[table] = self._catalog.load_table((self._namespace, table))
        return self._opened.get(table)

    def _create(self, change: Change) -> Table:
        identifier = (self._namespace, change.table)
        location = self._store.uri(change.table)
        with self._catalog.create_table_transaction(identifier, change.schema, location, properties=_PROPERTIES) as new:
            with new.update_spec() as spec:
                for column in change.partition_by:
                    spec.add_identity(column)
            new.set_properties({TableProperties.DEFAULT_NAME_MAPPING: _name_mapping(new.table_metadata)})
        self._opened[change.table] = self._catalog.load_table(identifier)
        return self._opened[change.table]

    def _fits(self, table: Table, change: Change) -> bool:
        return self._fitting.get(change.table) == (change.schema, table.metadata.current_schema_id)

    def _add_columns(self, transaction: Transaction, change: Change) -> None:
        """Add the columns that a table does not have. `ValidationError` if one has another type."""
        before = transaction.table_metadata.schema()
        with transaction.update_schema() as update:
            update.union_by_name(change.schema)
        metadata = transaction.table_metadata
        if metadata.schema() != before:
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: _name_mapping(metadata)})

    def _data_files(self, table: Table) -> dict[str, DataFile]:
        """The data files of a table by name."""
        folder = f"{self._store.uri(table.name()[-1])}/"
        return {task.file.file_path.removeprefix(folder): task.file for task in table.scan().plan_files()}

    def _data_file(self, metadata: TableMetadata, file: TableFile) -> DataFile:
        """A new data file as its footer describes it."""
        path = self._store.path(f"{file.table}/{file.name}")
        schema = metadata.schema()
        statistics = data_file_statistics_from_parquet_metadata(
            pq.read_metadata(path, filesystem=self._store.filesystem),
            compute_statistics_plan(schema, metadata.properties),
            parquet_path_to_id_mapping(schema),
        )
        found = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._store.uri(file.table)}/{file.name}",
            file_format=FileFormat.PARQUET,
            partition=_record_of(metadata, file),
            file_size_in_bytes=file.bytes,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        found.spec_id = metadata.default_spec_id
        return found

    def _drop_dead_manifests(self, transaction: Transaction, table: Table, batch: int) -> None:
        """Make a snapshot without manifests that have no files any more, once there are many.

        Snapshots that remove files keep them, and read all of them.
        """
        snapshot = table.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(table.io)
        dead = [one for one in manifests if not one.has_added_files() and not one.has_existing_files()]
        if len(dead) >= _MOST_DEAD_MANIFESTS:
            with transaction.update_snapshot(snapshot_properties={BATCH: str(batch - 1)}).merge_append():
                pass

    def _forget_snapshots(self, transaction: Transaction) -> None:
        """Keep the last snapshots only, once there are twice as many."""
        found = sorted(transaction.table_metadata.snapshots, key=lambda one: one.sequence_number or 0)
        if len(found) > 2 * self._kept:
            ExpireSnapshots(transaction).by_ids([one.snapshot_id for one in found[: -self._kept]]).commit()


def _name_mapping(metadata: TableMetadata) -> str:
    return metadata.schema().name_mapping.model_dump_json()


def _record_of(metadata: TableMetadata, file: TableFile) -> Record:
    """The partition of a file as Iceberg stores it."""
    schema = metadata.schema()

    def value(name: str) -> Any:
        text, type = file.partition[name], schema.find_type(name)
        assert isinstance(type, PrimitiveType)
        return None if text is None else partition_to_py(type, text)

    return Record(*(value(field.name) for field in metadata.spec().fields))


def _partition_of(metadata: TableMetadata, file: DataFile) -> dict[str, str | None]:
    schema = metadata.schema()
    fields = metadata.specs()[file.spec_id].fields
    values = [file.partition[index] for index in range(len(fields))]
    return {
        field.name: None if value is None else field.transform.to_human_string(schema.find_type(field.name), value)
        for field, value in zip(fields, values, strict=True)
    }


def _needed_files(table: Table) -> set[str]:
    """All files that the snapshots of a table and its metadata use."""
    needed = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.snapshots():
        needed.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            needed.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            needed |= {entry.data_file.file_path for entry in entries}
    return needed


@contextlib.contextmanager
def _translated(action: str, uri: str) -> Iterator[None]:
    """Convert errors of the libraries to ours."""
    try:
        yield
    except LogwrightError:
        raise
    except OSError as error:
        raise StorageFailed(action, uri, error) from error
    except (CommitFailedException, ValidationException, RESTError, SQLAlchemyError) as error:
        raise StorageFailed(action, uri, OSError(str(error).partition("\n")[0])) from error
