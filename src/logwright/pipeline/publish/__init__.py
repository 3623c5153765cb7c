"""How the tables of a batch become visible: Parquet directories, Delta and Iceberg. `publisher.py` says more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ...core.options import suggest
from ...errors import WrongUse
from .parquet import ParquetPublisher
from .publisher import Batch, Checkpoint, Publisher, TableFile, batch_of, part_name
from .store import S3_OPTIONS, LocalStore, S3Store, Store
from .transactions import Tables, TransactionPublisher

__all__ = ["FORMATS", "Batch", "Checkpoint", "Publisher", "TableFile", "batch_of", "open_publisher", "part_name"]

FORMATS: Final = ("parquet", "delta", "iceberg")
_OPTIONS: Final = {
    "parquet": (),
    "delta": S3_OPTIONS,
    "iceberg": (*S3_OPTIONS, "catalog", "namespace", "kept_snapshots"),
}
_CATALOG: Final = "catalog."


def open_publisher(out: str | Path, format: str = "parquet", options: Mapping[str, str] | None = None) -> Publisher:
    """Open a directory of tables for one run: a path, or for Delta and Iceberg also `s3://bucket/prefix`.

    Options for S3 are `endpoint`, `region`, `access_key`, `secret_key` and `session_token`; what is missing comes from
    the environment. Options for Iceberg are `namespace`, `kept_snapshots`, `catalog` (a name in the settings of
    pyiceberg), and the properties of a catalog, such as `catalog.type` and `catalog.uri`.
    """
    given = dict(options or {})
    if format not in FORMATS:
        raise WrongUse(f"there is no table format {format}; {suggest(format, FORMATS)}")
    for name in given:
        if name not in _OPTIONS[format] and not (format == "iceberg" and name.startswith(_CATALOG)):
            raise WrongUse(f"{format} tables have no option {name}; {suggest(name, _OPTIONS[format] or ('none',))}")
    if format == "parquet":
        if "://" in str(out):
            raise WrongUse("Parquet tables are written to a local directory: choose delta or iceberg for object stores")
        return ParquetPublisher(out)
    store = _open_store(str(out), given)
    try:
        tables = _delta(store) if format == "delta" else _iceberg(store, given)
    except BaseException:
        store.close()
        raise
    return TransactionPublisher(store, tables)


def _open_store(out: str, options: Mapping[str, str]) -> Store:
    if out.startswith("s3://"):
        return S3Store(out, options)
    if "://" in out:
        raise WrongUse(f"{out.partition('://')[0]}:// cannot be written to: tables go to a local directory or to s3://")
    return LocalStore(out)


def _delta(store: Store) -> Tables:
    try:
        from .delta import DeltaTables
    except ModuleNotFoundError as error:
        raise WrongUse(f"Delta tables need {error.name}: pip install 'logwright[delta]'") from error
    return DeltaTables(store, store.access.for_deltalake() if isinstance(store, S3Store) else None)


def _iceberg(store: Store, options: Mapping[str, str]) -> Tables:
    try:
        from .iceberg import KEPT_SNAPSHOTS, NAMESPACE, IcebergTables, open_catalog
    except ModuleNotFoundError as error:
        raise WrongUse(f"Iceberg tables need {error.name}: pip install 'logwright[iceberg]'") from error
    properties = {name.removeprefix(_CATALOG): value for name, value in options.items() if name.startswith(_CATALOG)}
    if isinstance(store, S3Store):
        properties = {**store.access.for_pyiceberg(), **properties}
    catalog = open_catalog(store, properties, options.get("catalog"))
    try:
        kept = int(options.get("kept_snapshots", KEPT_SNAPSHOTS))
        return IcebergTables(store, catalog, namespace=options.get("namespace", NAMESPACE), kept_snapshots=kept)
    except BaseException:
        catalog.close()
        raise
