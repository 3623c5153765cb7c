"""`logwright torture`: kills writers on a disk of the user's choice, and checks what they have acknowledged."""

from __future__ import annotations

import contextlib
import math
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from ..core.format import FORMATS
from ..errors import WrongUse
from ..torture.run import DiskFull, Interrupt, Result, Torture
from .arguments import DAMAGE_FOUND, GOOD, WRONG_USE, json_option, verb
from .output import RED, Column, Table, inform, is_terminal, print_json, print_line, start_bar

DEFAULT_SECONDS: Final = 60.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@verb(
    "torture",
    examples=[
        ("all writers, on the disk of this directory, for a few seconds", "logwright torture . --seconds 5"),
        ("one writer, with a number of kills", "logwright torture . --format sej --kills 3"),
    ],
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="How long to run; 60 by default.")
@click.option(
    "--kills", type=click.IntRange(min=1), help="Instead of a time: this number of faults for each row of the table."
)
@click.option(
    "--format",
    "format_names",
    type=click.Choice(list(FORMATS)),
    multiple=True,
    help="Only the writer of this format; can be repeated.",
)
@click.option("--power-cuts", is_flag=True, help="Also cut the power of a file system on a loop device; needs root.")
@click.option("--seed", type=int, help="Make the random choices of an earlier run; by default a new seed.")
@click.option("--keep", is_flag=True, help="Keep the journals.")
@json_option
def command(
    directory: Path,
    seconds: float | None,
    kills: int | None,
    format_names: tuple[str, ...],
    power_cuts: bool,
    seed: int | None,
    keep: bool,
    as_json: bool,
) -> int:
    """Kill writers on the disk of DIRECTORY, and check that everything acknowledged is there.

    Writes journals of every format, with each sync policy, in processes of their own, and kills these with SIGKILL at
    random points: while they write, open, recover, rotate and pack. After each kill the journal is verified, read and
    opened again. Every acknowledged record must be there, unchanged and in order, and no other. The journals are in a
    new directory in DIRECTORY, which is removed at the end, unless something has failed. Nothing else is touched.

    With --power-cuts the same is done on ext4 on a loop device, whose power is cut.

    Exits with 1 if anything is lost or wrong. A full disk, or another refusal of the system, is no loss: exit code 2.
    """
    if seconds is not None and kills is not None:
        raise WrongUse("give --seconds or --kills, not both")
    if seconds is not None and math.isnan(seconds):
        raise WrongUse("--seconds nan is not a time")
    seed = random.randrange(10**9) if seed is None else seed
    with _signals() as interrupt, Torture(directory, interrupt, seed=seed, keeps=keep) as torture:
        for format in format_names or FORMATS:
            torture.add_kills(format)
        for format in (format_names or FORMATS) if power_cuts else ():
            torture.add_power_cuts(format)
        try:
            _run(torture, DEFAULT_SECONDS if seconds is None else seconds, kills)
        except DiskFull as error:
            _show(torture.results, as_json)
            inform(f"error: the disk is full: {error}; no loss was found; make space and run this again")
            return WRONG_USE
        except KeyboardInterrupt:
            _show(torture.results, as_json)
            raise
        _show(torture.results, as_json)
        if torture.keeps:
            inform(f"the journals are in {torture.directory}")
    for result in torture.results:
        for failure in result.failures:
            inform(f"failed: {result.format}, {result.policy}, after {result.fault} {result.faults}: {failure}")
    if torture.has_failed:
        inform(f"seed {seed}")
        return DAMAGE_FOUND
    if not as_json:
        faults = sum(result.faults for result in torture.results)
        print_line(f"nothing acknowledged was lost in {faults} kills and power cuts")
        untried = sum(not result.faults for result in torture.results)
        if untried:
            print_line(f"{untried} of {len(torture.results)} were not tried: give it more --seconds, or use --kills")
    return GOOD


def _run(torture: Torture, seconds: float, kills: int | None) -> None:
    """Run for a time, or until each writer was killed a number of times."""
    started = time.monotonic()
    total = seconds if kills is None else float(kills * len(torture.results))
    with _bar(total) as update:
        while not torture.is_over:
            faults = sum(result.faults for result in torture.results)
            done = time.monotonic() - started if kills is None else faults
            update(done, faults)
            tried = (result for result in torture.results if not result.failures)
            if done >= total or (kills is not None and all(result.faults >= kills for result in tried)):
                return
            torture.step()


def _show(results: list[Result], as_json: bool) -> None:
    if as_json:
        for result in results:
            print_json(result.as_json())
        return
    names = ("faults", "acknowledged", "checked", "lost", "seconds")
    columns = [Column("format"), Column("policy"), Column("fault"), *(Column(name, right=True) for name in names)]
    with Table([*columns, Column("result")]) as table:
        for result in results:
            numbers = [f"{number:,}" for number in (result.faults, result.acknowledged, result.checked, result.lost)]
            cells = [result.format, result.policy, result.fault, *numbers, f"{result.seconds:.1f}"]
            verdict = "failed" if result.failures else "good" if result.faults else "not tried"
            table.add(*cells, verdict, style=RED if result.failures else "")


@contextlib.contextmanager
def _signals() -> Iterator[Interrupt]:
    """Let Ctrl-C, and requests to end, end the run at a safe point."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, interrupt.handle) for number in _SIGNALS}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _bar(total: float) -> Iterator[Any]:
    """A function that shows the progress on a terminal, and the number of faults so far."""
    if not is_terminal(sys.stderr):
        yield lambda done, faults: None
        return
    from rich.progress import TextColumn

    bar = start_bar(TextColumn("{task.fields[faults]} faults"))
    task = bar.add_task("torture", total=total, faults=0)
    try:
        yield lambda done, faults: bar.update(task, completed=done, faults=faults)
    finally:
        bar.stop()
