"""`logwright demo`: writes sample journals, and shows what the other verbs do with them.

The contents are the same in every run. The examples in the help of the other verbs use these journals.
"""

from __future__ import annotations

import datetime
import json
import os
import random
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from .. import appendfile, kestrel, sej, versioned, yeltsin
from .. import open as open_journal
from ..core.format import FORMATS
from ..core.times import NANOSECONDS, parse_time
from ..errors import WrongUse
from .arguments import DAMAGE_FOUND, GOOD, json_option, verb
from .output import BOLD, Column, Table, escape, print_json, print_line, styled

MARKER: Final = ".logwright-demo"
"""A file that marks the directory as made by the demo, which may be replaced."""
PIPELINE_FILE: Final = "pipeline.toml"
_PIPELINE_SETTINGS: Final = """\
# Decode the values of these journals, which are JSON.
[[journal]]
match = "*"
decode = "json"
"""
_SEED: Final = 20260115
_ORDERS: Final = 3000
_EVENTS: Final = 600
_SEGMENT_BYTES: Final = 64 * 1024
_FIRST_TIME: Final = "2026-01-15T08:00:00Z"
_CONSUMED: Final = {"billing": 2900, "report": 1200}
_TORN_BYTES: Final = 17
"""How much of the last message of the torn copy is missing."""
_DAMAGED_OFFSET: Final = 1500
_MAILS: Final = 120
_UNSENT: Final = 20
_JOBS: Final = 30
_MOVES: Final = 400
_ACCOUNT_PAGES: Final = 3
_ACCOUNT_ROWS: Final = 4
_QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that runs for a minute: full compilation would take half of its time."""
_TRANSFERS: Final = 120
_STORE_BYTES: Final = 8 * 1024
_SENSORS: Final = 20
_READINGS_FILE_BYTES: Final = 2048

_CUSTOMERS: Final = ("ada", "björn", "chen", "dalia", "emeka", "fatima", "grete", "hugo")
_GOODS: Final = ("bolt", "gear", "lamp", "pump", "rope", "valve")
_ACTIONS: Final = ("created", "paid", "packed", "sent")


@dataclass(frozen=True, slots=True)
class Sample:
    """A journal that the demo wrote."""

    name: str
    format: str
    records: int
    about: str

    def as_json(self, directory: Path) -> dict[str, Any]:
        path = str(directory / self.name)
        return {"path": path, "format": self.format, "records": self.records, "about": self.about}


@verb(
    "demo",
    examples=[
        ("write sample journals into the directory demo", "logwright demo"),
        ("run other verbs on them", "logwright demo --run"),
        ("make tables and a report from them on Spark", "logwright demo --pipeline"),
    ],
)
@click.argument("directory", type=click.Path(path_type=Path), default=Path("demo"))
@click.option("--run", is_flag=True, help="Run other verbs on the journals, and print their output.")
@click.option("--pipeline", is_flag=True, help="Run the pipeline on the journals: tables in DIRECTORY-tables.")
@click.option("--format", "format_name", type=click.Choice(list(FORMATS)), help="Only journals of this format.")
@json_option
def command(directory: Path, run: bool, pipeline: bool, format_name: str | None, as_json: bool) -> int:
    """Write sample journals into DIRECTORY (by default demo), the same in every run.

    A directory made by this verb is replaced; any other one must be empty.
    """
    _empty_directory(directory)
    samples = [sample for name, write in _WRITERS.items() if format_name in (None, name) for sample in write(directory)]
    if as_json:
        print_json({"directory": str(directory), "journals": [sample.as_json(directory) for sample in samples]})
    else:
        with Table([Column("journal"), Column("format"), Column("records", right=True), Column("what it is")]) as table:
            for sample in samples:
                table.add(str(directory / sample.name), sample.format, str(sample.records), sample.about)
    code = _show(directory) if run else GOOD
    return max(code, _show_pipeline(directory)) if pipeline else code


def _empty_directory(directory: Path) -> None:
    """Make an empty directory with our marker in it."""
    if directory.is_dir() and (directory / MARKER).is_file():
        for entry in directory.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise WrongUse(f"{directory} already exists and was not made by this demo: choose another directory")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARKER).write_text("Made by `logwright demo`, which may remove everything here.\n")
    (directory / PIPELINE_FILE).write_text(_PIPELINE_SETTINGS)


# --- sample journals of sej -----------------------------------------------------------------------------------------


def _write_sej(directory: Path) -> list[Sample]:
    random_numbers = random.Random(_SEED)
    orders = list(_orders(random_numbers))
    _write_orders(directory / "orders", orders)
    shutil.copytree(directory / "orders", directory / "torn")
    _tear(directory / "torn")
    shutil.copytree(directory / "orders", directory / "damaged")
    _damage(directory / "damaged")
    _write_events(directory / "events", random_numbers)
    return [
        Sample("orders", "sej", _ORDERS, "a journal with several segments and two consumers"),
        Sample("torn", "sej", _ORDERS - 1, "the same after a crash: its last message is cut short"),
        Sample("damaged", "sej", _ORDERS - 1, f"the same with bad bytes in message {_DAMAGED_OFFSET}"),
        Sample("events", "sej", _EVENTS, "a root of four shards"),
    ]


def _orders(random_numbers: random.Random) -> Iterator[tuple[int, bytes, int, bytes]]:
    """Timestamp, key, type and value of each message: about four hours of a small shop."""
    now = parse_time(_FIRST_TIME)
    for number in range(_ORDERS):
        now += int(random_numbers.expovariate(1 / 4.8) * NANOSECONDS) + 1_000_000
        customer, good = random_numbers.choice(_CUSTOMERS), random_numbers.choice(_GOODS)
        action = random_numbers.randrange(len(_ACTIONS))
        value = {
            "order": 10_000 + number // len(_ACTIONS),
            "action": _ACTIONS[action],
            "item": good,
            "count": random_numbers.randint(1, 40),
            "price": round(random_numbers.uniform(0.5, 250), 2),
        }
        yield now, f"customer/{customer}".encode(), action, json.dumps(value).encode()


def _write_orders(path: Path, orders: list[tuple[int, bytes, int, bytes]]) -> None:
    with sej.Writer(path, segment_size=_SEGMENT_BYTES) as writer:
        for timestamp, key, type, value in orders:
            writer.append(value, key=key, type=type, timestamp=timestamp)
    for name, consumed in _CONSUMED.items():
        with sej.Offset(path, name) as position:
            position.commit(consumed)


def _tear(path: Path) -> None:
    """Cut the last message short, as a crash in the middle of a write does."""
    last = max((path / "jnl").glob("*.jnl"))
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - _TORN_BYTES)


def _damage(path: Path) -> None:
    """Change the size at the end of one message, as a failing disk may."""
    with open_journal(path) as reader:
        message: Any = next(reader.scan(_DAMAGED_OFFSET, _DAMAGED_OFFSET + 1))
    with (path / message.file).open("r+b") as file:
        file.seek(message.span.end - 2)
        file.write(b"\xff\xff")


def _write_events(path: Path, random_numbers: random.Random) -> None:
    now = parse_time(_FIRST_TIME)
    with sej.ShardedWriter(path, "web", 2) as writer:
        for number in range(_EVENTS):
            now += random_numbers.randrange(NANOSECONDS, 60 * NANOSECONDS)
            visitor = f"visitor-{random_numbers.randrange(50):02d}".encode()
            writer.append(json.dumps({"page": f"/goods/{number % 37}"}).encode(), key=visitor, timestamp=now)


# --- sample journals of kestrel -------------------------------------------------------------------------------------


def _write_kestrel(directory: Path) -> list[Sample]:
    random_numbers = random.Random(_SEED)
    queues = directory / "queues"
    records = _write_mail(queues / "mail", random_numbers) + _write_jobs(queues / "jobs", random_numbers)
    return [Sample("queues", "kestrel", records, "two queues, one of them with a file that was rotated")]


def _write_mail(path: Path, random_numbers: random.Random) -> int:
    """A queue whose consumer reserves each mail, and sometimes fails to send it."""
    now_ms = parse_time(_FIRST_TIME) // 1_000_000
    operations = 0
    with kestrel.Writer(path) as writer:
        for number in range(_MAILS):
            now_ms += random_numbers.randrange(1000, 60_000)
            mail = {"to": random_numbers.choice(_CUSTOMERS), "order": 10_000 + number}
            writer.addx(json.dumps(mail, ensure_ascii=False).encode(), added=now_ms)
            operations += 1
        for number in range(_MAILS - _UNSENT):
            writer.remove_tentative()
            fails = random_numbers.random() < 0.1
            if fails:
                writer.unremove(number + 1)
                writer.remove()  # after a failure it is removed without a reservation
            else:
                writer.confirm_remove(number + 1)
            operations += 3 if fails else 2
        writer.remove_tentative()
    return operations + 1


def _write_jobs(path: Path, random_numbers: random.Random) -> int:
    """A queue whose items expire; its first file was rotated, under the time at which that happened."""
    now_ms = parse_time(_FIRST_TIME) // 1_000_000
    for _ in range(2):
        with kestrel.Writer(path) as writer:
            for number in range(_JOBS):
                now_ms += random_numbers.randrange(1000, 60_000)
                writer.addx(f"job {number}".encode(), expires=now_ms + 3_600_000, added=now_ms)
                if number % 3:
                    writer.remove()
        if not list(path.parent.glob("jobs.*")):
            path.rename(path.with_name(f"jobs.{now_ms}"))
    return 2 * (_JOBS + _JOBS * 2 // 3)


# --- sample journals of versioned -----------------------------------------------------------------------------------


def _write_versioned(directory: Path) -> list[Sample]:
    random_numbers = random.Random(_SEED)
    stores = directory / "stores"
    records = _write_fleet(stores, random_numbers)
    return [Sample("stores", "versioned", records, "a store whose journal was rotated; its archives have the history")]


def _write_fleet(stores: Path, random_numbers: random.Random) -> int:
    """The positions of the trucks of a small shop: every few minutes one reports, and sometimes one is sold."""
    now = parse_time(_FIRST_TIME)
    options: dict[str, Any] = {"capacity": _STORE_BYTES, "background": False, "clock": lambda: now}
    with versioned.VersionedKVStore(stores, "fleet", **options) as store:
        for _ in range(_MOVES):
            now += random_numbers.randrange(NANOSECONDS, 90 * NANOSECONDS)
            truck = f"truck/{random_numbers.randrange(12)}"
            if random_numbers.random() < 0.05:
                store.remove(truck)
            else:
                place = {
                    "lat": round(random_numbers.uniform(47, 54), 4),
                    "lon": round(random_numbers.uniform(6, 15), 4),
                }
                store.insert(truck, {**place, "load": random_numbers.choice(_GOODS)})
    with open_journal(stores) as reader:
        return reader.count()


# --- sample journals of yeltsin -------------------------------------------------------------------------------------


def _write_yeltsin(directory: Path) -> list[Sample]:
    pages = directory / "pages"
    pages.mkdir()
    records = _write_accounts(pages / "accounts.jrnl", random.Random(_SEED))
    return [Sample("pages", "yeltsin", records, "accounts on the pages of a table, changed by transactions")]


def _write_accounts(path: Path, random_numbers: random.Random) -> int:
    """Transfers between accounts, each in one transaction; an account is a row of twelve digits."""
    now = parse_time(_FIRST_TIME) // NANOSECONDS
    pages = [65566 + number * 65536 for number in range(_ACCOUNT_PAGES)]
    rows = {(page, row): 1000 for page in pages for row in range(_ACCOUNT_ROWS)}
    with yeltsin.TransactionJournal(path) as journal:
        for page in pages:
            now += random_numbers.randrange(1, 60)
            opening = b"".join(b"%011d\n" % rows[page, row] for row in range(_ACCOUNT_ROWS))
            new: list[yeltsin.Operation] = [
                yeltsin.Allocate(page, 0, 0),
                yeltsin.Modify(page, 0, bytes(len(opening)), opening),
            ]
            journal.append(new, timestamp=now, flags=1)
        for number in range(_TRANSFERS):
            now += random_numbers.randrange(1, 60)
            moves = []
            amount = random_numbers.randrange(1, 500)
            is_void = number % 17 == 16  # not enough in the account
            for change, place in zip((-amount, amount), random_numbers.sample(list(rows), 2), strict=True):
                page, row = place
                before, after = b"%011d\n" % rows[place], b"%011d\n" % (rows[place] + change)
                moves.append(yeltsin.Modify(page, 12 * row, before, after))
                rows[place] += 0 if is_void else change
            journal.append(moves, timestamp=now, end=0xFE if is_void else 0xFF, flags=1)
        return int(journal.count)


# --- sample journals of appendfile ----------------------------------------------------------------------------------


def _write_appendfile(directory: Path) -> list[Sample]:
    """Readings of sensors, one segment for each round. The program was started three times, and never caught up."""
    random_numbers = random.Random(_SEED)
    path = directory / "readings"
    for rounds, done in ((6, 3), (2, 0), (1, 0)):
        with appendfile.Writer(path, file_bytes=_READINGS_FILE_BYTES, recovering=True) as writer:
            next(writer.recovery(), None)
            for number in range(rounds * _SENSORS):
                reading = {"sensor": number % _SENSORS, "celsius": round(random_numbers.uniform(-5, 25), 1)}
                writer.append(json.dumps(reading).encode())
                if number % _SENSORS == _SENSORS - 1 and number < rounds * _SENSORS - 1:
                    writer.register_checkpoint()
            for _ in range(done):
                writer.check_checkpoint()
    with open_journal(path) as reader:
        return [Sample("readings", "appendfile", reader.count(), "segments, some of which wait to be recovered")]


_WRITERS: Final[dict[str, Callable[[Path], list[Sample]]]] = {
    "sej": _write_sej,
    "kestrel": _write_kestrel,
    "versioned": _write_versioned,
    "appendfile": _write_appendfile,
    "yeltsin": _write_yeltsin,
}
assert set(_WRITERS) <= set(FORMATS)


# --- the show -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Command:
    """A command of the demo, its purpose, and its expected exit code."""

    purpose: str
    line: str
    code: int = GOOD


_ACTS: Final = (
    _Command("What is in this directory?", "inspect {0}/orders"),
    _Command("Its first messages, with their values decoded:", "dump {0}/orders --limit 5 --decode json"),
    _Command("The same for a program:", "dump {0}/orders --limit 2 --json --decode json"),
    _Command(
        "How many came from ten to eleven?", "count {0}/orders --since 2026-01-15T10:00Z --until 2026-01-15T11:00Z"
    ),
    _Command("Is every byte as it should be?", "verify {0}/orders"),
    _Command("And of the copy that a crash cut short?", "verify {0}/torn", DAMAGE_FOUND),
    _Command("What would a repair do?", "repair {0}/torn --plan"),
    _Command("Do it. What is cut off is kept:", "repair {0}/torn --yes"),
    _Command("And now?", "verify {0}/torn"),
    _Command("How far have the consumers come?", "offsets {0}/orders"),
    _Command("What could be removed, now that they have passed it?", "clean {0}/orders --plan"),
    _Command("The latest messages of all shards:", "tail {0}/events -n 3"),
    _Command("Which items wait in a queue, and which are reserved?", "state {0}/queues/jobs"),
    _Command("What became of its third mail?", "history {0}/queues/mail mail@103"),
    _Command("Where were the trucks at ten?", "state {0}/stores --at 2026-01-15T10:00Z"),
    _Command("Where has one of them been?", "history {0}/stores truck/7"),
    _Command("And what has changed within half an hour?", "diff {0}/stores 2026-01-15T10:00Z 2026-01-15T10:30Z"),
    _Command("What was on the pages of a table before its tenth transaction?", "state {0}/pages --at 10"),
    _Command("Which bytes did that transaction change?", "diff {0}/pages/accounts.jrnl 40 41"),
    _Command("What does recovery return to a program that checked three rounds, and was killed?", "state {0}/readings"),
    _Command("To Parquet, for everything that reads it:", "convert {0}/orders {0}/orders.parquet --to parquet"),
    _Command("And back to a journal:", "convert {0}/orders.parquet {0}/again --to sej"),
    _Command("Which has the same messages:", "tail {0}/again -n 2"),
)


def _show(directory: Path) -> int:
    """Run the commands; whether each had its expected exit code."""
    place = shlex.quote(str(directory))
    wrong = sum(_perform(act.purpose, act.line.format(place)) != act.code for act in _ACTS)
    print_line()
    same = _same_messages(directory / "orders", directory / "again")
    print_line(f"{directory / 'orders'} and {directory / 'again'} hold {'the same' if same else 'DIFFERENT'} messages.")
    print_line(f"The files are in {directory.resolve()}.")
    return GOOD if same and not wrong else DAMAGE_FOUND


def _perform(purpose: str, line: str) -> int:
    """Print the purpose of a command line, run it, and return its exit code."""
    from . import main

    print_line()
    print_line(purpose)
    sys.stdout.write(styled(f"$ logwright {line}", BOLD, sys.stdout) + "\n")
    sys.stdout.flush()
    code = main(shlex.split(line))
    sys.stderr.flush()
    if code == 130:
        raise KeyboardInterrupt
    if code != GOOD:
        print_line(f"(exit code {code})")
    return code


def _same_messages(one: Path, other: Path) -> bool:
    with sej.Reader(one) as first, sej.Reader(other) as second:
        return all(a == b for a, b in zip(first, second, strict=True))


# --- the pipeline ---------------------------------------------------------------------------------------------------

_ROWS: Final = 4
_SHOWN: Final = {
    "events": ("format", "journal", "file", "position", "size", "sequence", "timestamp", "key"),
    "messages": ("journal", "shard", "offset", "timestamp", "type", "key", "decoded"),
    "activity": ("format", "journal", "minute", "records", "bytes"),
    "queue_items": ("queue", "item", "state", "data", "expires", "xid", "attempts", "done_position"),
    "kv_history": ("store", "k", "version", "o", "deleted", "valid_from", "valid_to"),
    "kv_state": ("store", "k", "o", "timestamp"),
    "segments": ("journal", "generation", "segment", "complete", "checked", "records", "bytes"),
    "consumers": ("journal", "consumer", "offset", "next", "lag", "status"),
    "damage": ("journal", "file", "position", "size", "kind", "reason"),
    "files": ("journal", "part", "file", "bytes", "first", "next"),
}
"""The columns of a table that fit on a screen; by default all columns."""


def _show_pipeline(directory: Path) -> int:
    """Make tables from the journals, and show the beginning of each. The journals contain damage on purpose."""
    tables = directory.with_name(f"{directory.name}-tables")
    settings = shlex.quote(str(directory / PIPELINE_FILE))
    places = f"--journals {shlex.quote(str(directory))} --out {shlex.quote(str(tables))}"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _QUICK_JAVA)
    code = _perform("All journals as tables, by Spark:", f"pipeline run {places} --config {settings}")
    if code not in (GOOD, DAMAGE_FOUND):
        return code
    for path in sorted(entry for entry in tables.iterdir() if entry.is_dir() and not entry.name.startswith("_")):
        _show_table(path)
    print_line()
    print_line(f"The report, for a browser: {(tables / 'report.html').resolve()}")
    print_line(f"The tables, for everything that reads Parquet: {tables.resolve()}")
    return GOOD


def _show_table(path: Path) -> None:
    """The first rows of a table."""
    from ..pipeline.parquet import preview

    found = preview(path, _ROWS, _SHOWN.get(path.name, ()))
    numbers = {name for row in found.first for name, value in row.items() if isinstance(value, int)}
    print_line()
    sys.stdout.write(styled(f"{path.name}: {found.rows} rows", BOLD, sys.stdout) + "\n")
    with Table([Column(name, right=name in numbers) for name in found.columns]) as table:
        for row in found.first:
            table.add(*(_cell(row[name]) for name in found.columns))


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        return escape(value)
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return "" if value is None else str(value)
