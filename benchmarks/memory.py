"""Memory: writing and reading a journal of 4 GiB, each in a separate process, stays below 200 MiB.

The tables of a queue with a backlog of 10 million items of 100 bytes are made within 500 MiB.

The figure is the peak of the resident memory of the whole process, including the interpreter and pyarrow.
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

BACKLOG_LIMIT_MIB = 500.0
WRITE_BACKLOG = """
import pyarrow as pa
from logwright.kestrel.files.writer import Writer as QueueWriter
items = pa.record_batch({"data": pa.array([VALUE] * 10_000)})
with QueueWriter(journal / "work") as writer:
    for _ in range(rows // len(items)):
        writer.append_batch(items)
"""
MAKE_BACKLOG = """
import pyarrow as pa
from logwright import arrow
from logwright.core.format import find_format
from logwright.core.read.materializer import Continued
materials = find_format("kestrel").materials
saved, queue = str(journal / "saved"), journal / "work"
with materials.materializer(Continued("work", None, journal / "scratch")) as materializer:
    for batch in arrow.batches(queue, list(materials.sources), format="kestrel"):
        for _ in materializer.add(batch):
            pass
    with pa.OSFile(saved, "wb") as sink:
        materializer.save(sink)
with pa.OSFile(saved) as source, materials.materializer(Continued("work", source, journal / "scratch")) as materializer:
    assert sum(made.num_rows for _, made in materializer.live(0)) == rows
"""


def peak_mib(code: str, *arguments: object) -> float:
    """The peak memory of a process that runs this code."""
    whole = PRELUDE + code + "\nprint(peak_bytes())"
    done = subprocess.run(
        [sys.executable, "-c", whole, *map(str, arguments)], stdout=subprocess.PIPE, check=True, text=True
    )
    return int(done.stdout) / 2**20


def run(plan: Plan) -> list[Figure]:
    """Run each once: memory hardly varies."""
    rows = plan.amount(4 << 30, 256 << 20) // MESSAGE_BYTES
    journal = plan.place / "memory"
    size = f"{rows * MESSAGE_BYTES / 2**30:.2g} GiB"
    figures = []
    for name, code in WAYS.items():
        plan.log(f"memory: {name}, {size}")
        peak = peak_mib(code, journal, rows)
        limit = f"limit of {LIMIT_MIB:g} MiB"
        figures.append(Figure("memory", f"{name}, {size}", peak, LIMIT_MIB, "MiB", limit, 1.0, spread=[peak]))
    shutil.rmtree(journal)
    return [*figures, backlog(plan)]


def backlog(plan: Plan) -> Figure:
    """Make the tables of a queue without consumers, save them, and open them again, with all rows live."""
    rows = plan.amount(10_000_000, 1_000_000)
    name = f"tables of a queue of {rows / 1e6:g} M waiting items"
    plan.log(f"memory: {name}")
    directory = plan.place / "backlog"
    directory.mkdir()
    peak_mib(WRITE_BACKLOG, directory, rows)
    peak = peak_mib(MAKE_BACKLOG, directory, rows)
    shutil.rmtree(directory)
    limit = f"limit of {BACKLOG_LIMIT_MIB:g} MiB"
    return Figure("memory", name, peak, BACKLOG_LIMIT_MIB, "MiB", limit, 1.0, spread=[peak])
