"""The number of faults of each kind that a run has tried, per format; `conftest.py` prints the table at the end.

    COUNTS.add("torn tails", 3 * len(record), format="sej")

Each worker process of pytest-xdist counts for itself and sends its counts to the process that prints the table.
"""

from __future__ import annotations

from collections import Counter

FAULTS = (
    "torn tails",
    "crash states",
    "k-th call fails",
    "bit flips",
    "kill -9",
    "power cuts",
    "hostile inputs",
    "fuzzed inputs",
    "damages repaired",
    "interrupts",
)
"""The kinds of faults, in the order of the table."""


class Counts:
    """Numbers by fault and format."""

    def __init__(self) -> None:
        self._counter: Counter[tuple[str, str]] = Counter()

    def add(self, fault: str, number: int = 1, format: str = "core") -> None:
        """Count `number` more faults of a kind that were tried and handled."""
        if fault not in FAULTS:
            raise ValueError(f"there is no fault {fault!r}; known are {', '.join(FAULTS)}")
        self._counter[fault, format] += number

    def total(self, fault: str) -> int:
        """The number of faults of a kind, over all formats."""
        return sum(number for (kind, _), number in self._counter.items() if kind == fault)

    def dump(self) -> list[tuple[str, str, int]]:
        """The counts in a shape that can be sent to another process."""
        return [(fault, format, number) for (fault, format), number in sorted(self._counter.items())]

    def load(self, rows: list[tuple[str, str, int]]) -> None:
        """Add the counts of another process."""
        for fault, format, number in rows:
            self.add(fault, number, format)

    def table(self) -> list[str]:
        """The lines of the table; empty if nothing was counted."""
        formats = sorted({format for _, format in self._counter})
        if not formats:
            return []
        rows = [["fault", *formats, "total"]]
        for fault in FAULTS:
            numbers = [self._counter.get((fault, format), 0) for format in formats]
            rows.append([fault, *(f"{number:,}" if number else "-" for number in (*numbers, sum(numbers)))])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return [_line(row, widths) for row in rows]


def _line(row: list[str], widths: list[int]) -> str:
    first, *others = row
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


COUNTS = Counts()
