"""`logwright stats`: records and bytes by key, type, operation and minute, and sizes by quantile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..core.bytes.outcome import Damage, Mode
from ..core.times import shown_time
from .arguments import DAMAGE_FOUND, GOOD, chosen_format, journal_verb, local_option, mode_option, naming_path
from .output import Column, Table, describe, escape, format_size, print_facts, print_json, print_line, warn

if TYPE_CHECKING:
    from ..arrow.statistics import Groups, Statistics

_BAR_WIDTH: Final = 24
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_MOST_MINUTES: Final = 1000


@journal_verb(
    "stats",
    examples=[
        ("what a journal consists of", "logwright stats orders"),
        ("the ten largest of each, for a program", "logwright stats queues --json --top 10"),
        ("of a damaged journal, without what is damaged", "logwright stats damaged --mode permissive"),
    ],
)
@click.option("--top", metavar="N", type=click.IntRange(min=1), default=8, show_default=True, help="Groups to list.")
@local_option
@mode_option
def command(path: Path, top: int, local: bool, mode: Mode, format_name: str | None, as_json: bool) -> int:
    """Count records and bytes by key, type, operation and minute, and print the quantiles of sizes.

    The key is that of --key in `dump`. Records are read by columns, in little memory for any size; in yeltsin a row is
    an operation of a transaction. Quantiles are right to within 1 %. If there are very many keys, those that are rare
    are counted together. Minutes are those of the most records, in order of time; in JSON all of them, up to 1000.
    """
    from ..arrow.dataset import dataset
    from ..arrow.statistics import columns_of, count

    damages: list[Damage] = []

    def note(damage: Damage) -> None:
        if damage.kind != "torn_tail":
            damages.append(damage)
        warn(f"skipped: {describe(path, damage)}")

    format = chosen_format(path, format_name)
    with naming_path(path.parent):  # a dataset names the journal
        found = dataset(path, mode=mode, on_damage=note, format=format.name)
        statistics = count(format, found.scanner(columns=columns_of(format)).to_batches())
    if as_json:
        print_json({"format": format.name, **_as_json(statistics, top)})
    else:
        _print(format.name, statistics, top, local)
    return DAMAGE_FOUND if damages else GOOD


def _as_json(statistics: Statistics, top: int) -> dict[str, Any]:
    from ..arrow.statistics import QUANTILES, as_json

    sizes = statistics.sizes
    minutes = sorted(statistics.minutes.largest(_MOST_MINUTES))
    return {
        "records": sizes.records,
        "bytes": sizes.total,
        "sizes": {
            "smallest": sizes.smallest,
            **{f"p{share * 100:g}": sizes.quantile(share) for share in QUANTILES},
            "largest": sizes.largest,
        },
        **{
            name: [
                {name: as_json(value), "records": records, "bytes": size}
                for value, records, size in groups.largest(top)
            ]
            for name, groups in statistics.groups.items()
        },
        "minutes": [{"minute": at, "records": records, "bytes": size} for at, records, size in minutes],
    }


def _print(format: str, statistics: Statistics, top: int, local: bool) -> None:
    from ..arrow.statistics import QUANTILES

    sizes = statistics.sizes
    shown = [("smallest", sizes.smallest), *((f"{share:.0%}", sizes.quantile(share)) for share in QUANTILES)]
    shown.append(("largest", sizes.largest))
    facts = [("format", format), ("records", str(sizes.records)), ("bytes", format_size(sizes.total))]
    if sizes.records:
        facts.append(("sizes", ", ".join(f"{name} {format_size(size or 0)}" for name, size in shown)))
    print_facts(facts)
    for name, groups in statistics.groups.items():
        _print_groups(name, groups, groups.largest(top))
    minutes = statistics.minutes
    chosen = sorted(minutes.largest(top))
    _print_groups("minute", minutes, [(shown_time(at, local=local), *rest) for at, *rest in chosen])


def _print_groups(name: str, groups: Groups, listed: list[Any]) -> None:
    """The groups as a table with bars, relative to the largest."""
    if not listed:
        return
    print_line()
    most = max(records for _, records, _ in listed)
    columns = [Column(name, flexible=True), Column("records", right=True), Column("bytes", right=True), Column("")]
    with Table(columns) as table:
        for value, records, size in listed:
            text = escape(value) if isinstance(value, bytes) else str(value)
            table.add(text, str(records), format_size(size), bar(records / most))
    others = len(groups.found) - len(listed)
    if others or groups.rest[0]:
        print_line(f"and {'at least ' if groups.rest[0] else ''}{others} more")


def bar(share: float) -> str:
    """A bar for a share of the largest value, to an eighth of a character."""
    eighths = max(1, round(share * _BAR_WIDTH * 8))
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
