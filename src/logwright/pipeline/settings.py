"""The settings of a run of the pipeline, and the TOML file that contains them.

    journals = "journals"            # paths are relative to this file; URIs stay as they are
    out = "tables"
    mode = "permissive"              # or failfast, dropmalformed
    format = "parquet"               # or delta, iceberg
    tables = ["events", "messages", "activity", "damage"]    # all, when this is missing
    split = "64m"                    # how much one task reads, approximately
    batch = "1g"                     # how much one batch of an incremental run reads, at most
    local = "16m"                    # a batch that reads less is done without Spark
    moment = 2026-01-15T12:00:00Z    # the time of `kv_state` and of expired items; default: now

    [options]                        # of the data files, and of the table format: see `publish.open_publisher`
    compression = "zstd"

    [table.messages]
    partition_by = ["journal", "date"]      # columns of the table; `date` and `hour` are derived from its timestamp

    [[journal]]                      # the first one that matches a journal's name applies
    match = "orders*"
    decode = "json"                  # json, msgpack, bonjson, avro, text: the column `decoded` of its messages
    columns = { price = "double" }   # fields of the decoded values that become columns of `messages`
    mode = "failfast"

    [[journal]]
    match = "sensors"
    decode = "avro"
    schema = "sensors.avsc"

    [[journal]]
    match = "scratch*"
    exclude = true

An unknown key is an error, so that misspelt keys are not ignored.
"""

from __future__ import annotations

import datetime
import fnmatch
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, get_args

from ..core.bytes.outcome import Mode
from ..core.io.disk import REAL_DISK, Disk
from ..core.options import NamedOptions, suggest
from ..errors import WrongUse
from ..spark.options import parse_size

COLUMN_TYPES: Final = ("string", "bigint", "double", "boolean", "timestamp")
ACTIONS: Final = ("warn", "quarantine", "fail")
DECODERS: Final = ("json", "msgpack", "bonjson", "avro", "text")
BATCH_BYTES: Final = 1 << 30
SPLIT_BYTES: Final = 64 << 20
LOCAL_BYTES: Final = 16 << 20
MOST_INTERVAL_SECONDS: Final = 86_400

_URI: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_MOST_BYTES_OF_A_FILE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class JournalRule(NamedOptions):
    """Settings of the journals whose name matches `match`, a pattern such as `orders/*`."""

    match: str
    exclude: bool = False
    mode: Mode | None = None
    decode: str | None = None
    schema: str | None = None
    """The file with the Avro schema of the values."""
    columns: tuple[tuple[str, str], ...] = ()
    """Fields of decoded values that become columns, each with its type: see `COLUMN_TYPES`."""

    def __post_init__(self) -> None:
        if self.mode is not None:
            _one_of("mode", self.mode, get_args(Mode))
        if self.decode is not None:
            _one_of("decode", self.decode, DECODERS)
        if (self.decode == "avro") != (self.schema is not None):
            raise WrongUse(f'journal {self.match!r}: decode = "avro" and a schema belong together')
        if self.columns and self.decode is None:
            raise WrongUse(f"journal {self.match!r}: columns are fields of decoded values, so it needs decode")
        for name, kind in self.columns:
            _one_of(f"journal {self.match!r}, columns.{name}", kind, COLUMN_TYPES)

    def fits(self, name: str) -> bool:
        """Whether the rule applies to a journal of this name."""
        return fnmatch.fnmatchcase(name, self.match)


@dataclass(frozen=True, slots=True)
class TableRule(NamedOptions):
    """Settings of one table."""

    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expectation(NamedOptions):
    """A condition in SQL that the rows of a table should meet, and what is done if some do not: see `ACTIONS`."""

    table: str
    condition: str
    action: str = "warn"
    name: str | None = None

    def __post_init__(self) -> None:
        _one_of(f"expect {self.title!r}, action", self.action, ACTIONS)

    @property
    def title(self) -> str:
        """Its name, or its condition if it has none."""
        return self.name or self.condition

    @property
    def reason(self) -> str:
        """Why a row does not meet it."""
        return f"{'' if self.name is None else f'{self.name}: '}does not meet {self.condition}"


@dataclass(frozen=True, slots=True)
class Settings(NamedOptions):
    """The settings of a run: from the journals at or below `journals` to tables below `out`."""

    journals: str
    out: str
    mode: Mode = "permissive"
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    """The tables to make; all if empty."""
    incremental: bool = False
    follow: bool = False
    """Keep running and add what is new; implies `incremental`."""
    fail_on_data_loss: bool = True
    split_bytes: int = SPLIT_BYTES
    batch_bytes: int = BATCH_BYTES
    local_bytes: int = LOCAL_BYTES
    """A batch that reads less is done in this process, without Spark."""
    moment: datetime.datetime | None = None
    """The time of `kv_state` and of expired items; the time of the run if None."""
    table_rules: Mapping[str, TableRule] = field(default_factory=dict)
    journal_rules: tuple[JournalRule, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    interval_seconds: float | None = None
    """From one look at the journals to the next, with `follow`; None for as often as there is something new, and every
    second while there is not."""
    metrics: str | None = None
    """The file for metrics of Prometheus."""
    lineage: str | None = None
    """The file or URL for events of OpenLineage."""

    def __post_init__(self) -> None:
        _one_of("mode", self.mode, get_args(Mode))
        if self.interval_seconds is not None and not 0 < self.interval_seconds <= MOST_INTERVAL_SECONDS:
            raise WrongUse(f"interval must be more than 0 and at most {MOST_INTERVAL_SECONDS} seconds")

    def rule_of(self, journal: str) -> JournalRule:
        """The first rule that matches the name of a journal, or an empty rule."""
        return next((rule for rule in self.journal_rules if rule.fits(journal)), JournalRule(journal))

    def mode_of(self, journal: str) -> Mode:
        """What the pipeline does at damage in a journal."""
        return self.rule_of(journal).mode or self.mode

    def table_rule(self, table: str) -> TableRule:
        """The rule of a table."""
        return self.table_rules.get(table, TableRule())

    def chosen(self, known: Mapping[str, Any]) -> list[str]:
        """The tables to make, in the order of `known`."""
        for name in (*self.tables, *self.table_rules):
            _one_of("table", name, tuple(known))
        return [name for name in known if not self.tables or name in self.tables]


def load(file: Path | str, *, disk: Disk = REAL_DISK, **chosen: Any) -> Settings:
    """Read the settings of a pipeline file. Values in `chosen` that are not None override those of the file."""
    path = Path(file)
    opened = disk.open(path, "read")
    try:
        content = opened.read_at(0, _MOST_BYTES_OF_A_FILE)
    finally:
        opened.close()
    try:
        found = _settings_of(tomllib.loads(content.decode()), path.absolute().parent)
        found |= {name: value for name, value in chosen.items() if value is not None}
        for name in ("journals", "out"):
            if name not in found:
                raise WrongUse(f"{name} is neither in this file nor on the command line")
        return Settings(**found)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, WrongUse) as error:
        raise WrongUse(f"{path}: {error}") from None


def _settings_of(given: dict[str, Any], home: Path) -> dict[str, Any]:
    """The fields of `Settings` in a file."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        match name:
            case "journals" | "out":
                found[name] = _located(_text(name, value), home)
            case "mode" | "format":
                found[name] = _text(name, value)
            case "tables":
                found[name] = _texts(name, value)
                if not value:
                    raise WrongUse("tables must name at least one table; leave it out for all of them")
            case "fail_on_data_loss":
                found[name] = _flag(name, value)
            case "split" | "batch" | "local":
                found[f"{name}_bytes"] = _size(name, value)
            case "interval":
                if not isinstance(value, int | float) or isinstance(value, bool):
                    raise WrongUse(f"interval must be a number of seconds, not {value!r}")
                found["interval_seconds"] = float(value)
            case "metrics" | "lineage":
                found[name] = _located(_text(name, value), home)
            case "moment":
                found[name] = _moment(name, value)
            case "options":
                found[name] = _options(name, value)
            case "table":
                rules = _table(name, value).items()
                found["table_rules"] = {table: _table_rule(f"table.{table}", rule) for table, rule in rules}
            case "journal":
                if not isinstance(value, list):
                    raise WrongUse("rules for journals are written under [[journal]], with two brackets")
                found["journal_rules"] = tuple(_journal_rule(rule, home) for rule in value)
            case "expect":
                if not isinstance(value, list):
                    raise WrongUse("expectations are written under [[expect]], with two brackets")
                found["expectations"] = tuple(map(_expectation, value))
            case _:
                raise _unknown(name, "", _KNOWN)
    return found


_KNOWN: Final = (
    *("journals", "out", "mode", "format", "tables", "fail_on_data_loss", "split", "batch", "local"),
    *("moment", "interval", "metrics", "lineage", "options", "table", "journal", "expect"),
)


def _table_rule(place: str, given: Any) -> TableRule:
    rule = TableRule()
    for name, value in _table(place, given).items():
        if name == "partition_by":
            rule = replace(rule, partition_by=_texts(f"{place}.{name}", value))
        else:
            raise _unknown(name, place, ("partition_by",))
    return rule


def _journal_rule(given: Any, home: Path) -> JournalRule:
    rule = _table("journal", given)
    known = [field.name for field in fields(JournalRule)]
    for name, value in rule.items():
        if name not in known:
            raise _unknown(name, "journal", known)
        if name == "exclude":
            _flag("journal.exclude", value)
        elif name == "columns":
            fields_ = _table("journal.columns", value)
            rule = {**rule, name: tuple((key, _text(f"journal.columns.{key}", kind)) for key, kind in fields_.items())}
        else:
            _text(f"journal.{name}", value)
    if "match" not in rule:
        raise WrongUse('a [[journal]] needs a match, for example match = "orders/*"')
    if "schema" in rule:
        rule = {**rule, "schema": _located(rule["schema"], home)}
    return JournalRule(**rule)


def _expectation(given: Any) -> Expectation:
    found = _table("expect", given)
    known = [field.name for field in fields(Expectation)]
    for name, value in found.items():
        if name not in known:
            raise _unknown(name, "expect", known)
        _text(f"expect.{name}", value)
    for name in ("table", "condition"):
        if name not in found:
            raise WrongUse(f'an [[expect]] needs a {name}, as in table = "messages", condition = "price >= 0"')
    return Expectation(**found)


def _size(name: str, value: Any) -> int:
    return parse_size(
        name, str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(name, value)
    )


def _moment(name: str, value: Any) -> datetime.datetime:
    """A time, in UTC unless it has another zone."""
    if not isinstance(value, datetime.datetime):
        raise WrongUse(f"{name} must be a time such as 2026-01-15T12:00:00Z, not {value!r}")
    return value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)


def _located(text: str, home: Path) -> str:
    return text if _URI.match(text) else str(home / text)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise WrongUse(f"{name} must be a text, not {value!r}")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongUse(f"{name} must be true or false, not {value!r}")
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise WrongUse(f"{name} must be a list of texts, not {value!r}")
    return tuple(value)


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongUse(f"{name} must be a table, not {value!r}")
    return value


def _options(name: str, value: Any) -> dict[str, str]:
    """Options, as strings."""
    found = {}
    for key, item in _table(name, value).items():
        if not isinstance(item, str | int | float | bool):
            raise WrongUse(f"{name}.{key} must be a text, a number, true or false, not {item!r}")
        found[key] = str(item).lower() if isinstance(item, bool) else str(item)
    return found


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise WrongUse(f"{name}: there is no {value!r}; there are {', '.join(known)}")


def _unknown(name: str, place: str, known: tuple[str, ...] | list[str]) -> WrongUse:
    where = f" in {place}" if place else ""
    return WrongUse(f"{name!r} is not known{where}; {suggest(name, known)}")
