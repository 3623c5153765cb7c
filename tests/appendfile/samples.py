"""Sample journals, and the bytes that the original would write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from logwright.appendfile.bytes import codec
from logwright.appendfile.bytes.records import Checkpoint, Data, Record
from logwright.appendfile.files.files import add_lost_segments
from logwright.core.io.disk import REAL_DISK

DERIVED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "appendfile" / "derived.json").read_text())
SCENARIOS: dict[str, Any] = {scenario["name"]: scenario for scenario in DERIVED["scenarios"]}
HINT = Checkpoint(0, 0)


def data(*texts: str) -> list[Record]:
    """Data records, one for each text."""
    return [Data(text.encode()) for text in texts]


def encoded(*records: Record) -> bytes:
    return b"".join(map(codec.encode, records))


def write(directory: Path, files: dict[int, list[Record]], tail: bytes = b"") -> Path:
    """A journal of these files, the last one followed by some bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    for file_id, records in files.items():
        content = encoded(*records) + (tail if file_id == max(files) else b"")
        (directory / f"{file_id}.journal").write_bytes(content)
    return directory


def add_lost(directory: Path, file_id: int, segment: int) -> None:
    """Make the account of a journal say that a segment has lost records in a file."""
    add_lost_segments(REAL_DISK, directory, f"{file_id}.journal", file_id, [segment])
