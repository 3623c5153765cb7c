"""`python -m benchmarks [SUBJECT ...]`: runs the scripts, prints one table, writes JSON and a plot."""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import machine, report
from benchmarks.measure import Figure, Plan

SUBJECTS = (
    *("append", "append_batch", "scan_objects", "to_arrow", "durable", "seek"),
    *("kestrel", "replay", "bonjson", "versioned", "appendfile", "yeltsin", "queue_server", "memory"),
    *("hub", "query", "web", "spark", "pipeline"),
)
NEEDED_BYTES = {False: 7 << 30, True: 1 << 30}
RESULTS = Path(__file__).parent / "results"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Logwright against its peers.")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)}; all when none")
    parser.add_argument("--quick", action="store_true", help="less of everything: a minute, and coarser figures")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured, at least 3 (default: 5)")
    parser.add_argument("--directory", type=Path, help="where to write (default: the system's temporary directory)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where JSON and plot go (default: %(default)s)")
    options = parser.parse_args(arguments)
    unknown = set(options.subjects) - set(SUBJECTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    return options


def run(options: argparse.Namespace, place: Path, talk: Console) -> list[Figure]:
    """Measure the requested subjects."""
    plan = Plan(place, options.rounds, options.quick, lambda line: talk.print(f"[dim]  {line}[/]"), options.results)
    figures: list[Figure] = []
    for subject in options.subjects or SUBJECTS:
        talk.print(f"measuring {subject}")
        figures += importlib.import_module(f"benchmarks.{subject}").run(plan)
    return figures


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    talk = Console(stderr=True, highlight=False)
    place = Path(tempfile.mkdtemp(prefix="logwright-benchmarks-", dir=options.directory))
    try:
        free = shutil.disk_usage(place).free
        if free < NEEDED_BYTES[options.quick]:
            talk.print(f"{place} has {free >> 20} MiB left, and {NEEDED_BYTES[options.quick] >> 20} MiB are needed")
            return 2
        facts = machine.describe(place)
        figures = run(options, place, talk)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    report.print_table(figures, Console(width=None if sys.stdout.isatty() else 160))
    options.results.mkdir(parents=True, exist_ok=True)
    stamp = facts["when"].replace(":", "").replace("+0000", "Z")
    written = [options.results / f"{stamp}.json"]
    report.write_json(figures, facts, written[0])
    picture = written[0].with_suffix(".png")
    if report.plot(figures, facts, picture):
        written.append(picture)
    talk.print(f"written: {', '.join(map(str, written))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
