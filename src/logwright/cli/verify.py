"""`logwright verify`: checks every byte, and lists each problem with its place."""

from __future__ import annotations

from pathlib import Path

import click

from ..core.read.report import Report
from .arguments import DAMAGE_FOUND, GOOD, journal_verb, opened
from .output import Column, Table, format_size, print_json, print_line, progress_bar


@journal_verb(
    "verify",
    examples=[
        ("check a journal; see the exit code", "logwright verify orders"),
        ("list the problems, for a program", "logwright verify damaged --json"),
        ("check all shards below a root", "logwright verify events"),
        ("exit with 1 for known losses too", "logwright verify orders --strict"),
    ],
)
@click.option("--strict", is_flag=True, help="Exit with 1 for known losses as well.")
def command(path: Path, strict: bool, format_name: str | None, as_json: bool) -> int:
    """Check every byte, and print each problem with its file and position.

    Needs no lock and changes nothing. Exits with 1 if there is a problem, including a torn tail; harmless
    irregularities are listed as anomalies. Records that earlier repairs have removed are listed as losses: the journal
    is sound, with known losses, and the exit code is 0 unless --strict is given.
    """
    with opened(path, format_name) as reader, progress_bar("verifying") as progress:
        report = reader.verify(progress=progress)
    code = GOOD if report.sound and not (strict and report.losses) else DAMAGE_FOUND
    if as_json:
        print_json(report.as_json())
        return code
    print_line(f"{path}: {_found(report)} ({report.format}, {report.records} records, {format_size(report.bytes)})")
    for loss in report.losses:
        print_line(loss.describe())
    listed = [("problem", problem) for problem in report.problems]
    listed += [("anomaly", anomaly) for anomaly in report.anomalies]
    with Table([Column("severity"), Column("kind"), Column("place"), Column("message")]) as table:
        for severity, problem in listed:
            table.add(severity, problem.kind, f"{problem.file} @ {problem.position}", problem.message)
    return code


def _found(report: Report) -> str:
    """The result in a few words."""
    if not report.sound:
        return f"{len(report.problems)} problem{'' if len(report.problems) == 1 else 's'}"
    return "sound, with known losses" if report.losses else "sound"
