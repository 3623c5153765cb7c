"""preview: the beginning of a table that the pipeline wrote as Parquet, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset


class Preview(NamedTuple):
    """How many rows a table has, and the first of them, by the names of the columns."""

    rows: int
    columns: list[str]
    first: list[dict[str, Any]]


def preview(table: Path | str, count: int, columns: Sequence[str] = ()) -> Preview:
    """The first `count` rows of a table, of these columns as far as it has them; of all of them when none is named."""
    data = pyarrow.dataset.dataset(table, format="parquet", partitioning="hive")
    names = [name for name in columns or data.schema.names if name in data.schema.names]
    return Preview(data.count_rows(), names, data.head(count, columns=names).to_pylist())
