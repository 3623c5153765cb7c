"""`logwright verify`: checks everything, and says what is wrong and where."""

from __future__ import annotations

from pathlib import Path

from .arguments import DAMAGE_FOUND, GOOD, format_option, json_option, opened, path_argument, verb
from .output import Column, Table, print_json, print_line, progress_bar
from .times import format_size


@verb(
    "verify",
    examples=[
        ("check a journal; the exit code tells", "logwright verify orders"),
        ("what is wrong, for a program", "logwright verify damaged --json"),
        ("check all shards below a root", "logwright verify events"),
    ],
)
@path_argument
@format_option
@json_option
def command(path: Path, format_name: str | None, as_json: bool) -> int:
    """Check every byte, and print each problem with its file and position.

    Needs no lock and changes nothing. Exits with 1 when there is a problem, a torn tail included; what is odd but
    harmless is listed as an anomaly.
    """
    with opened(path, format_name) as reader, progress_bar("verifying") as progress:
        report = reader.verify(progress=progress)
    if as_json:
        print_json(report.as_json())
        return GOOD if report.sound else DAMAGE_FOUND
    problems = f"{len(report.problems)} problem{'' if len(report.problems) == 1 else 's'}"
    found = "sound" if report.sound else problems
    print_line(f"{path}: {found} ({report.format}, {report.records} records, {format_size(report.bytes)})")
    listed = [("problem", problem) for problem in report.problems]
    listed += [("anomaly", anomaly) for anomaly in report.anomalies]
    with Table([Column("severity"), Column("kind"), Column("place"), Column("message")]) as table:
        for severity, problem in listed:
            table.add(severity, problem.kind, f"{problem.file} @ {problem.position}", problem.message)
    return GOOD if report.sound else DAMAGE_FOUND
