"""Output of the verbs: data on stdout, messages on stderr, tables for people, JSON lines for programs.

Control characters in journals are printed as escapes, so that a value cannot move the cursor or change the colours. A
table is cropped to the width of a terminal; in a file or a pipe it is complete and has no colours.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Self, TypeAlias

from ..core.bytes.outcome import Damage
from ..core.times import UNITS
from ..errors import WrongUse

SHOW_AFTER_SECONDS = 1.0
"""A progress bar appears after this time."""
ShownProgress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes done and the total, if it is known."""
_MEASURED_ROWS: Final = 50
"""The number of rows that are buffered to find the widths of a table's columns."""
_LEAST_WIDTH: Final = 12
"""The least width of a flexible column on a narrow terminal."""

BOLD: Final = "1"
DIM: Final = "2"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"

MILLISECONDS: Final = {"added": 1_000_000, "expires": 1_000_000}
"""Fields of records in milliseconds, and that unit in nanoseconds."""
_SIZES: Final[dict[str, int]] = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("", 1024), ("ib", 1024), ("b", 1000))
}
_SIZE: Final = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII | re.IGNORECASE)

_ENCODER: Final = json.JSONEncoder(ensure_ascii=True, separators=(", ", ": "))


# --- messages -------------------------------------------------------------------------------------------------------


def inform(message: str) -> None:
    """Print a message on stderr, in one line, after all output so far: both may go to one file."""
    sys.stdout.flush()
    print(f"logwright: {one_line(message)}", file=sys.stderr)


def warn(message: str) -> None:
    """Print a warning on stderr."""
    inform(f"warning: {message}")


def one_line(text: str) -> str:
    """Text with line breaks and control characters as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape_character(c) for c in text)


def place(path: Path, file: str) -> str:
    """The path of a file for messages; `file` is relative to the journal at `path`."""
    return str(path / file) if path.is_dir() else str(path.parent / file)


def describe(path: Path, damage: Damage) -> str:
    """A damaged range in one line."""
    return f"{place(path, damage.file)} @ {damage.start}: {damage.reason} ({damage.size} bytes, {damage.kind})"


# --- data -----------------------------------------------------------------------------------------------------------


def print_json(value: Any) -> None:
    """Print a JSON value on one line, in ASCII, independent of the locale."""
    sys.stdout.write(_ENCODER.encode(value) + "\n")


def print_line(text: str = "") -> None:
    """Print one line of plain text."""
    sys.stdout.write(one_line(text) + "\n")


def escape(data: bytes) -> str:
    r"""Bytes as text if they are UTF-8, else as ASCII; with escapes (`\n`, `\x00`) for unprintable characters."""
    try:
        return one_line(data.decode("utf-8"))
    except UnicodeDecodeError:
        return one_line(data.decode("ascii", "backslashreplace"))


def listed(records: list[str]) -> str:
    """The number of records (in base64), and the first of them."""
    if not records:
        return "none"
    first = escape(base64.b64decode(records[0]))
    return first if len(records) == 1 else f"{len(records)}, first {first}"


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a stream is open and leads to a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def styled(text: str, style: str, stream: IO[str]) -> str:
    """Text in a style (an ANSI code), or plain if output has no colours."""
    plain = not is_terminal(stream) or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[{style}m{text}\x1b[0m"


def cell_width(text: str) -> int:
    """The width of a text on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def crop(text: str, width: int) -> str:
    """A text cut to a width, with an ellipsis if it was cut."""
    if cell_width(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    while kept and cell_width(kept) > width - 1:
        kept = kept[:-1]
    return kept + "…"


# --- sizes and durations ---------------------------------------------------------------------------------------------


def parse_size(text: str) -> int:
    """Bytes of a size such as `4096`, `64k`, `10 MiB`, `2GB`: k, M, G, T and KiB… count by 1024, KB… by 1000."""
    match = _SIZE.fullmatch(text.strip())
    scale = _SIZES.get(match[2].lower()) if match is not None else None
    if match is None or scale is None:
        raise WrongUse(f"{text!r} is not a size: give bytes, or a number with a unit, such as 64k, 10MiB, 2GB")
    return int(match[1]) * scale


def format_duration(nanoseconds: int) -> str:
    """A duration in its two largest units: `3h 12m`, `850ms`."""
    if nanoseconds < 0:
        return f"-{format_duration(-nanoseconds)}"
    parts = []
    rest = nanoseconds
    for name in ("d", "h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, UNITS[name])
        if count:
            parts.append(f"{count}{name}")
        if len(parts) == 2 or (parts and not count):
            break
    return " ".join(parts) or "0s"


def format_size(size: int) -> str:
    """A number of bytes with three significant digits: `512 B`, `1.50 KiB`, `23.4 MiB`."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        amount /= 1024
        if amount < 1000 or unit == "PiB":
            break
    digits = 2 if amount < 10 else 1 if amount < 100 else 0
    return f"{amount:.{digits}f} {unit}"


# --- tables ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Column:
    """A column of a table. Only `flexible` ones are cropped if the terminal is too narrow."""

    name: str
    right: bool = False
    flexible: bool = False
    width: int = 0


class _Row(tuple[str, ...]):
    """The cells of a row, and its style on a terminal."""

    style = ""


class Table:
    """Prints rows in columns; the first rows are buffered until the widths are known.

    A table without rows has no header.
    """

    def __init__(self, columns: Sequence[Column] = ()) -> None:
        self.columns = list(columns)
        self._waiting: list[tuple[str, ...] | _Line] | None = []
        self._has_header = False
        self._terminal = is_terminal(sys.stdout)

    def add(self, *cells: str, style: str = "") -> None:
        """Add a row, with one cell for each column."""
        row = _Row(one_line(cell) for cell in cells)
        row.style = style
        self._take(row)

    def add_line(self, text: str, style: str) -> None:
        """Add a line across all columns."""
        self._take(_Line(one_line(text), style))

    def flush(self) -> None:
        """Print the buffered rows; later rows are printed at once."""
        waiting, self._waiting = self._waiting or [], None
        rows = [row for row in waiting if not isinstance(row, _Line)]
        if rows:
            self._print_header(rows)
        for row in waiting:
            self._print(row)

    def _take(self, row: tuple[str, ...] | _Line) -> None:
        if self._waiting is None:
            self._print(row)
            return
        self._waiting.append(row)
        if len(self._waiting) >= _MEASURED_ROWS:
            self.flush()

    def _measure(self, rows: Sequence[tuple[str, ...]]) -> None:
        for number, column in enumerate(self.columns):
            column.width = max([len(column.name), *(cell_width(row[number]) for row in rows)])
        if not self._terminal:
            return
        available = shutil.get_terminal_size().columns - 2 * (len(self.columns) - 1)
        excess = sum(column.width for column in self.columns) - available
        for column in sorted(self.columns, key=lambda column: -column.width):
            if excess > 0 and column.flexible:
                given = min(excess, max(0, column.width - _LEAST_WIDTH))
                column.width -= given
                excess -= given

    def _print(self, row: tuple[str, ...] | _Line) -> None:
        if isinstance(row, _Line):
            sys.stdout.write(styled(row.text, row.style, sys.stdout) + "\n")
            return
        if not self._has_header:
            self._print_header([row])
        style = row.style if isinstance(row, _Row) else ""
        text = self._aligned(row)
        sys.stdout.write((styled(text, style, sys.stdout) if style else text) + "\n")

    def _print_header(self, rows: Sequence[tuple[str, ...]]) -> None:
        self._has_header = True
        self._measure(rows)
        header = self._aligned(tuple(column.name for column in self.columns))
        sys.stdout.write(styled(header, BOLD, sys.stdout) + "\n")

    def _aligned(self, row: tuple[str, ...]) -> str:
        cells = []
        for cell, column in zip(row, self.columns, strict=True):
            text = crop(cell, column.width) if self._terminal and column.flexible else cell
            width = column.width if text.isascii() else column.width + len(text) - cell_width(text)
            cells.append(text.rjust(width) if column.right else text.ljust(width))
        return "  ".join(cells).rstrip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or not issubclass(kind, BrokenPipeError):
            self.flush()


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    style: str


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    shown = [(one_line(name), one_line(fact)) for name, fact in facts]  # names of queues may contain anything
    width = max((len(name) for name, _ in shown), default=0)
    for name, fact in shown:
        sys.stdout.write(styled(name.ljust(width), BOLD, sys.stdout) + "  " + fact + "\n")


# --- progress -------------------------------------------------------------------------------------------------------


@contextmanager
def progress_bar(label: str, *, beside_rows: bool = False) -> Iterator[ShownProgress | None]:
    """A bar with percent and time left on stderr, shown on a terminal once something takes longer than a second.

    `beside_rows` says that rows are printed at the same time: then there is no bar if they also go to the terminal.
    Returns None if no bar is shown, so that callers need not count.
    """
    if not is_terminal(sys.stderr) or (beside_rows and is_terminal(sys.stdout)):
        yield None
        return
    bar = _Bar(label)
    try:
        yield bar
    finally:
        bar.close()


def start_bar(column: Any) -> Any:
    """A bar of rich on stderr, with percent and time left, and a column of its own."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), column, TimeRemainingColumn()]
    # No redirection: rich would send our stdout to the bar's stream, and so not to the pipe.
    console = Console(file=sys.stderr)
    bar = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    bar.start()
    return bar


class _Bar:
    """Imports rich only when the bar is shown. Without a total it shows how much is done."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int | None) -> None:
        if self._bar is None:
            if time.monotonic() - self._started < SHOW_AFTER_SECONDS:
                return
            self._show(total)
        self._bar.update(self._task, completed=done, total=total)

    def _show(self, total: int | None) -> None:
        from rich.progress import DownloadColumn

        self._bar = start_bar(DownloadColumn())
        self._task = self._bar.add_task(self._label, total=total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
