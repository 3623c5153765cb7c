"""Checks of the settings that need no journals: they run before Spark starts and before anything is read.

Whether Spark has the table format is checked right after Spark has started.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ..errors import WrongUse
from .settings import FILE_FORMATS, JournalRule, Settings
from .staging import MADE_OF_TIME, TIMES
from .tables import DAMAGE, EVENTS, FILES, Table
from .tables.decoding import loaded
from .tables.storage import options_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark.reader import Journal

COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "events": EVENTS.names,
    "damage": DAMAGE.names,
    "messages": ("journal", "shard", "offset", "timestamp", "timestamp_ns", "type", "key", "value"),
    "activity": ("format", "journal", "minute", "records", "bytes"),
    "queue_items": (
        *("journal", "queue", "item", "state", "data", "added", "expires", "xid", "attempts"),
        *("added_file", "added_position", "reserved_file", "reserved_position", "done_file", "done_position"),
        "changes",
    ),
    "kv_history": (
        *("journal", "store", "k", "version", "o", "deleted", "valid_from", "valid_to"),
        *("valid_from_ns", "valid_to_ns", "sequence", "position"),
    ),
    "kv_state": ("journal", "store", "k", "o", "timestamp", "timestamp_ns", "sequence", "position"),
    "segments": (
        *("journal", "generation", "segment", "complete", "checked", "records", "bytes"),
        *("first_file", "first_position", "last_file", "last_position"),
    ),
    "transactions": (
        *("journal", "file", "transaction", "offset", "timestamp", "flags", "complete", "outcome"),
        *("operations", "pages", "bytes"),
    ),
    "page_versions": (
        *("journal", "file", "page", "version", "transaction", "timestamp", "op", "deleted", "ranges", "gaps"),
    ),
    "consumers": (
        *("format", "journal", "shard", "consumer", "offset", "first", "next"),
        *("lag", "missed", "status", "problem"),
    ),
    "files": FILES.names,
}
"""The columns of tables, for checks without Spark. Tables that are not listed are checked when they are made."""
_DECODED: Final = ("decoded", "decode_error")
_LEAST_LIKENESS: Final = 0.7


def check_settings(settings: Settings, tables: Sequence[Table]) -> None:
    """Raise `WrongUse` for settings that cannot work with any journals."""
    _check_increments(settings, tables)
    _check_format(settings, tables)
    for table in tables:
        _check_partitions(settings, table)
    loaded(settings.journal_rules)


def _check_increments(settings: Settings, tables: Sequence[Table]) -> None:
    if (settings.incremental or settings.follow) and not any(table.name == "events" for table in tables):
        for table in tables:
            if table.needs_all_events:
                raise WrongUse(
                    f"incremental runs of the table {table.name} need the table events: choose both, or neither"
                )


def _check_format(settings: Settings, tables: Sequence[Table]) -> None:
    """Refuse misspelt names of formats, and options that would make tables that cannot be read back."""
    if settings.format not in FILE_FORMATS:
        near = difflib.get_close_matches(settings.format.lower(), FILE_FORMATS, 1, _LEAST_LIKENESS)
        if near:
            raise WrongUse(f"format: there is no {settings.format!r}; did you mean {near[0]}?")
    for table in tables if settings.format == "csv" else ():
        options = options_of("csv", settings.options, settings.table_rule(table.name).options)
        if {name.lower(): value for name, value in options.items()}["header"].lower() != "true":
            raise WrongUse("options.header: must be true, because csv tables are read by the names in their first line")


def _check_partitions(settings: Settings, table: Table) -> None:
    columns = list(COLUMNS.get(table.name, ()))
    if not columns:
        return
    if table.decodes and any(rule.decode for rule in settings.journal_rules):
        columns += _DECODED
    made = MADE_OF_TIME if any(name in columns for name in TIMES) else ()
    for name in settings.table_rule(table.name).partition_by:
        if name not in columns and name not in made:
            there = ", ".join((*columns, *made))
            raise WrongUse(f"table.{table.name}.partition_by: there is no {name!r}; there are {there}")


def check_with(spark: SparkSession, settings: Settings) -> None:
    """Fail unless Spark has the format of the tables, which may need a package of its own."""
    jvm, session = spark._jvm, spark._jsparkSession
    assert jvm is not None
    sources = jvm.org.apache.spark.sql.execution.datasources.DataSource
    sources.lookupDataSource(settings.format, session.sessionState().conf())


def unused_rules(rules: Sequence[JournalRule], journals: Sequence[Journal]) -> list[str]:
    """A sentence for each rule that matches none of the journals. Rules that exclude journals are not checked."""
    return [
        f"no journal matches the rule match = {rule.match!r}"
        for rule in rules
        if not rule.exclude and not any(rule.fits(journal.name) for journal in journals)
    ]
