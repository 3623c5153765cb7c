"""What can be wrong with settings in themselves: said before Spark starts, and before anything is read.

What only Spark knows, whether it has a table format at all, is asked right after it has started.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ..errors import WrongUse
from .decoding import loaded
from .forms import options_of
from .settings import FILE_FORMATS, JournalRule, Settings
from .staging import MADE_OF_TIME, TIMES
from .tables import DAMAGE, EVENTS, FILES, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark.reading import Journal

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
"""The columns of tables, for who has no Spark to ask. Of a table that is not here they are checked when it is made."""
_DECODED: Final = ("decoded", "decode_error")
_LEAST_LIKENESS: Final = 0.7


def check_settings(settings: Settings, tables: Sequence[Table]) -> None:
    """Raise `WrongUse` for what cannot be done, whatever the journals are."""
    _check_increments(settings, tables)
    _check_format(settings, tables)
    for table in tables:
        _check_partitions(settings, table)
    loaded(settings.journal_rules)


def _check_increments(settings: Settings, tables: Sequence[Table]) -> None:
    if (settings.incremental or settings.follow) and not any(table.name == "events" for table in tables):
        for table in tables:
            if table.needs_all_events:
                raise WrongUse(f"by increments the table {table.name} needs the table events: choose both, or neither")


def _check_format(settings: Settings, tables: Sequence[Table]) -> None:
    """Refuse what is nearly the name of a format that there is, and what would make tables that nobody can read."""
    if settings.format not in FILE_FORMATS:
        near = difflib.get_close_matches(settings.format.lower(), FILE_FORMATS, 1, _LEAST_LIKENESS)
        if near:
            raise WrongUse(f"format: there is no {settings.format!r}; did you mean {near[0]}?")
    for table in tables if settings.format == "csv" else ():
        options = options_of("csv", settings.options, settings.table_rule(table.name).options)
        if {name.lower(): value for name, value in options.items()}["header"].lower() != "true":
            raise WrongUse("options.header: tables in csv are read again by the names in their first line")


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
    """Let Spark say whether it has the format of the tables, which may be in a package of its own."""
    jvm, session = spark._jvm, spark._jsparkSession
    assert jvm is not None
    sources = jvm.org.apache.spark.sql.execution.datasources.DataSource
    sources.lookupDataSource(settings.format, session.sessionState().conf())


def unused_rules(rules: Sequence[JournalRule], journals: Sequence[Journal]) -> list[str]:
    """A sentence for each rule that fits none of the journals. What is excluded is not among these."""
    return [
        f"no journal fits the rule match = {rule.match!r}"
        for rule in rules
        if not rule.exclude and not any(rule.fits(journal.name) for journal in journals)
    ]
