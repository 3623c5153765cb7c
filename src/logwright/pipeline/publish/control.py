"""What publishers remember in `OUT/_logwright/`, in JSON.

    pipeline.json    the checkpoint: the number of the batch that all tables have reached, and its state
    manifest.json    the batch under way: committed, but perhaps not in all tables yet
    format.json      the format of the tables; Parquet if it is missing
    lock             one run at a time, on file systems that have locks

The manifest is written before the first table changes, and removed after the checkpoint was written. An opening that
finds it completes the batch. Without one, whatever a batch has written is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import Disk
from ...core.publish.protocol import read_json
from ...errors import WrongUse
from .publisher import Checkpoint, TableFile

HOME: Final = "_logwright"
CHECKPOINT: Final = "pipeline.json"
MANIFEST: Final = "manifest.json"
FORMAT: Final = "format.json"
LOCK: Final = "lock"
CHECKPOINT_HINT: Final = "restore it from a copy, or rebuild the tables in another directory"
MANIFEST_HINT: Final = "restore it from a copy: without it the batch is not completed"


def parse_checkpoint(found: Any) -> Checkpoint:
    """The checkpoint that a file says."""
    return Checkpoint(int(found["batch"]), dict(found["state"]))


def as_json(file: TableFile) -> dict[str, Any]:
    """A data file as JSON, without its table."""
    found = {"name": file.name, "rows": file.rows, "bytes": file.bytes}
    return {**found, "partition": dict(file.partition)} if file.partition else found


def parse_file(table: str, found: Any) -> TableFile:
    """The data file that `as_json` has described."""
    partition = {str(name): None if value is None else str(value) for name, value in found.get("partition", {}).items()}
    return TableFile(table, str(found["name"]), int(found["rows"]), int(found["bytes"]), partition)


def by_table(files: Iterable[TableFile]) -> dict[str, list[TableFile]]:
    """Files by the name of their table."""
    found: dict[str, list[TableFile]] = {}
    for file in files:
        found.setdefault(file.table, []).append(file)
    return found


def with_changes(
    before: Mapping[str, list[TableFile]], added: Iterable[TableFile], removed: Iterable[TableFile]
) -> dict[str, list[TableFile]]:
    """The files of all tables after a batch. `WrongUse` if it removes a file that a table does not have."""
    after = {table: {file.name: file for file in files} for table, files in before.items()}
    for file in removed:
        if after.get(file.table, {}).pop(file.name, None) is None:
            raise WrongUse(f"{file.table}/{file.name} is to be removed, but the table does not have this file")
    for file in added:
        names = after.setdefault(file.table, {})
        if file.name in names:
            raise WrongUse(f"{file.table}/{file.name} is to be added, but the table already has this file")
        names[file.name] = file
    return {table: list(files.values()) for table, files in after.items()}


def refuse_others(disk: Disk, out: Path) -> None:
    """Raise `WrongUse` for a directory that no publisher has created."""
    if not disk.exists(out):
        return
    if not disk.is_directory(out):
        raise WrongUse(f"{out} is not a directory")
    if any(disk.exists(out / HOME / name) for name in (CHECKPOINT, MANIFEST, FORMAT)):
        return
    refuse_names(str(out), disk.list_directory(out))


def refuse_names(out: str, names: Iterable[str]) -> None:
    """Raise `WrongUse` if a directory without a checkpoint has anything else."""
    others = [name for name in names if name != HOME]
    if others:
        raise WrongUse(f"{out} contains other files ({others[0]}, …): choose a new or empty directory for tables")


def refuse_format(out: str, wanted: str, found: str) -> None:
    """Raise `WrongUse` if the tables have another format."""
    if wanted != found:
        raise WrongUse(f"{out} has tables in the format {found}, not {wanted}: choose another directory")


def read_format(disk: Disk, out: Path) -> str | None:
    """The format of the tables in a directory; None if it is not recorded."""
    path = out / HOME / FORMAT
    return read_json(disk, path, lambda found: str(found["format"]), "format of the tables", CHECKPOINT_HINT)
