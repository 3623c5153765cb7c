"""Memory: writing and reading a journal of 4 GiB, each in a process of its own, stays below 200 MiB.

The figure is the peak of resident memory of the whole process, the interpreter and pyarrow included.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from benchmarks.measure import MESSAGE_BYTES, Figure, Plan

LIMIT_MIB = 200.0

PRELUDE = """
import sys
from pathlib import Path
from benchmarks.measure import KEY, VALUE, peak_bytes
from logwright.sej.files.reader import Reader
from logwright.sej.files.writer import Writer
journal, rows = Path(sys.argv[1]), int(sys.argv[2])
"""

WRITE_BATCHES = """
from benchmarks.journals import BATCH_ROWS, batch_of
batch = batch_of(0)
with Writer(journal) as writer:
    for first in range(0, rows, BATCH_ROWS):
        writer.append_batch(batch.slice(0, min(BATCH_ROWS, rows - first)))
"""

WAYS = {
    "writing by append_batch": WRITE_BATCHES,
    "appending to it in a loop": """
with Writer(journal) as writer:
    for _ in range(rows // 10):
        writer.append(VALUE, KEY)
rows += rows // 10
""",
    "reading as objects": "assert sum(1 for _ in Reader(journal)) >= rows",
    "reading as Arrow batches": "assert sum(batch.num_rows for batch in Reader(journal).batches()) >= rows",
    "verifying": "assert Reader(journal).verify().sound",
}


def peak_mib(code: str, *arguments: object) -> float:
    """The peak of a process that runs this code."""
    whole = PRELUDE + code + "\nprint(peak_bytes())"
    done = subprocess.run(
        [sys.executable, "-c", whole, *map(str, arguments)], stdout=subprocess.PIPE, check=True, text=True
    )
    return int(done.stdout) / 2**20


def run(plan: Plan) -> list[Figure]:
    """Each way once: memory, unlike time, hardly varies."""
    rows = plan.amount(4 << 30, 256 << 20) // MESSAGE_BYTES
    journal = plan.place / "memory"
    size = f"{rows * MESSAGE_BYTES / 2**30:.2g} GiB"
    figures = []
    for name, code in WAYS.items():
        plan.tell(f"memory: {name}, {size}")
        peak = peak_mib(code, journal, rows)
        limit = f"limit of {LIMIT_MIB:g} MiB"
        figures.append(Figure("memory", f"{name}, {size}", peak, LIMIT_MIB, "MiB", limit, 1.0, spread=[peak]))
    shutil.rmtree(journal)
    return figures
