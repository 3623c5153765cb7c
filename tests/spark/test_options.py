"""Options of sources and sinks: every reader refuses misspelt ones. No Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, LongType, StructType

from logwright.errors import WrongUse
from logwright.spark.paths import Paths
from logwright.spark.source import JournalSource, KestrelSource, SejSource

OFFSETS = StructType().add("offset", LongType())
VALUES = StructType().add("value", BinaryType())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sinse": "2026-01-01"}, "option sinse is unknown for reading a table of sej; did you mean since"),
        ({"splitbyte": "1m"}, "did you mean splitBytes?"),
        ({"startingoffsets": "latest"}, "option startingoffsets is unknown for reading a table"),
        ({"header": "true"}, "there are mode, from, to, since, until, pushFilters, splitBytes, batchBytes"),
    ],
)
def test_unknown_option_of_a_table_is_refused_with_suggestions(
    given: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WrongUse) as caught:
        SejSource({"path": str(tmp_path), **given}).reader(OFFSETS)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxrecordpertrigger": "5"}, "reading a stream of sej; did you mean maxRecordsPerTrigger"),
        ({"since": "2026-01-01"}, "option since is for tables; see startingOffsets"),
        ({"shardbit": "2"}, "option shardbit is unknown for reading a stream of sej"),
    ],
)
def test_unknown_option_of_a_stream_is_refused(given: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUse) as caught:
        SejSource({"path": str(tmp_path), **given}).streamReader(OFFSETS)
    assert message in str(caught.value)


@pytest.mark.parametrize("writer", ["writer", "streamWriter"])
def test_unknown_option_of_a_sink_is_refused(writer: str, tmp_path: Path) -> None:
    def write(source: Any) -> Any:
        return getattr(source, writer)(VALUES, False)

    with pytest.raises(WrongUse, match=r"option shrdbit is unknown for writing sej; did you mean shardBit\?"):
        write(SejSource({"path": str(tmp_path / "new"), "shrdBit": "2"}))
    with pytest.raises(WrongUse, match="option shardbit is unknown for writing kestrel; there are queue, txnAppId"):
        write(KestrelSource({"path": str(tmp_path / "new"), "shardBit": "2"}))
    assert not (tmp_path / "new").exists()


def test_options_added_by_spark_are_accepted(tmp_path: Path) -> None:
    sparks = {"path": str(tmp_path), "checkpointLocation": "c", "queryName": "q", "serialization.format": "1"}
    assert SejSource(sparks).reader(OFFSETS).paths == Paths((str(tmp_path),))
    assert SejSource(sparks).streamReader(OFFSETS).paths == Paths((str(tmp_path),))
    assert SejSource({**sparks, "__partition_columns": "[]"}).streamWriter(VALUES, False).root == tmp_path


def test_mode_accepts_the_spelling_of_spark(tmp_path: Path) -> None:
    assert SejSource({"path": str(tmp_path), "mode": "PERMISSIVE"}).reader(OFFSETS).mode == "permissive"
    with pytest.raises(WrongUse, match="mode 'lenient' is none of failfast, permissive, dropmalformed"):
        JournalSource({"path": str(tmp_path), "mode": "lenient"}).reader(StructType())


def test_schema_with_a_duplicate_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="column offset is in the schema twice"):
        SejSource({"path": str(tmp_path)}).reader(StructType().add("offset", LongType()).add("offset", LongType()))
