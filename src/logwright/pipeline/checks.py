"""Checks of the settings that need no journals: they run before Spark starts and before anything is read."""

from __future__ import annotations

from collections.abc import Sequence

from ..arrow.discovery import Journal
from ..core.options import suggest
from ..errors import WrongUse
from .decoding import loaded
from .expectations import check_expectations
from .parquet import COMPRESSIONS
from .publish import FORMATS
from .settings import JournalRule, Settings
from .tables import schema_of


def check_settings(settings: Settings, tables: Sequence[str]) -> None:
    """Raise `WrongUse` for settings that cannot work with any journals."""
    if settings.format not in FORMATS:
        raise WrongUse(f"format: there is no {settings.format!r}; {suggest(settings.format, FORMATS)}")
    compression = settings.options.get("compression", "lz4").lower()
    if compression not in COMPRESSIONS:
        raise WrongUse(f"options.compression: there is no {compression!r}; {suggest(compression, list(COMPRESSIONS))}")
    for table in tables:
        schema_of(table, settings)
    loaded(settings.journal_rules)
    check_expectations(settings, tables)


def unused_rules(rules: Sequence[JournalRule], journals: Sequence[Journal]) -> list[str]:
    """A sentence for each rule that matches none of the journals. Rules that exclude journals are not checked."""
    return [
        f"no journal matches the rule match = {rule.match!r}"
        for rule in rules
        if not rule.exclude and not any(rule.fits(journal.name) for journal in journals)
    ]
