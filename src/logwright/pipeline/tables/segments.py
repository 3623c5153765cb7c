"""The table segments: the segments of journals with checkpoints.

    events = tables.events(spark.read.format("logwright").load("journals"))
    segments(events).where("not checked").show()

A row is a segment of a journal of the format appendfile, in the columns

    journal, generation, segment    which one
    complete                        whether a checkpoint has closed it, and no repair has removed records from it
    checked                         whether it was checked, so that a recovery does not return it
    records, bytes                  the number of its data records, and of their bytes
    first_file, first_position      where it begins
    last_file, last_position        its last record

`generation` is null for segments written since the journal was last opened. For segments that a recovery has put aside
together it is the id of the file after them. Ids of segments keep increasing across generations, but the last segment
of a generation, which no checkpoint has closed, may have the same id as the first one of the next. A file has the name
that it had when it was read.

If the first files of a checked segment were removed, the row describes the remaining files. A segment is not complete
if some of its records are in a file that the table `damage` names. Open segments without data are left out, as are
segments with ids of more than 63 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OF: Final = ("journal", "generation")
_ASIDE: Final = r"^\.logwright/recovery/([0-9]+)/"


def segments(events: DataFrame) -> DataFrame:
    """Every segment of all journals with checkpoints."""
    records = events.where("format = 'appendfile'").select(
        "journal",
        _number(F.nullif(F.regexp_extract("file", _ASIDE, 1), F.lit(""))).alias("generation"),
        *(_number(F.get_json_object("detail", f"$.{name}")).alias(name) for name in ("segment", "checked", "current")),
        F.coalesce(F.get_json_object("detail", "$.lost") == "true", F.lit(False)).alias("lost"),
        F.octet_length("value").alias("size"),
        "file",
        "position",
        F.struct(F.coalesce("sequence", F.lit(2**63 - 1)).alias("sequence"), "position").alias("place"),
    )
    ends = records.groupBy(*_OF).agg(
        F.max_by("checked", F.when(F.col("checked").isNotNull(), F.col("place"))).alias("first_unchecked"),
        F.max("current").alias("open"),
    )
    found = records.groupBy(*_OF, "segment").agg(
        F.count("size").alias("records"),
        F.coalesce(F.sum("size"), F.lit(0)).cast("bigint").alias("bytes"),
        F.max("lost").alias("lost"),
        F.min_by(F.struct("file", "position"), "place").alias("first"),
        F.max_by(F.struct("file", "position"), "place").alias("last"),
    )
    same = [found[name].eqNullSafe(ends[name]) for name in _OF]
    is_closed, is_checked = F.col("segment") < F.col("open"), F.col("segment") < F.col("first_unchecked")
    return (
        found.join(F.broadcast(ends), same)
        .where(is_closed | (F.col("records") > 0))
        .select(
            *(found[name] for name in _OF),
            "segment",
            (is_closed & ~F.col("lost")).alias("complete"),
            is_checked.alias("checked"),
            "records",
            "bytes",
            F.col("first.file").alias("first_file"),
            F.col("first.position").alias("first_position"),
            F.col("last.file").alias("last_file"),
            F.col("last.position").alias("last_position"),
        )
    )


def _number(text: Column) -> Column:
    """A whole number parsed from text; null if it does not fit 63 bits."""
    return text.try_cast("bigint")
