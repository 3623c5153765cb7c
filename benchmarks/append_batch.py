"""Appending Arrow record batches of 100,000 messages, not durable.

The limit is a plain `write` of the same bytes, a batch at a time, by somebody who has them ready.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.journals import BATCH_ROWS, batch_of, segment_of
from benchmarks.measure import Clock, Figure, Plan, Turns
from logwright.formats.sej.writer import Writer


def ours(place: Path, batch: object, batches: int) -> float:
    clock = Clock(processor=True)
    with Writer(place / "batches", segment_size=1 << 40) as writer, clock.running():
        for _ in range(batches):
            writer.append_batch(batch)
        writer.flush()
    shutil.rmtree(place / "batches")
    return clock.per_item_ns(batches * BATCH_ROWS)


def plain_write(place: Path, data: bytes, batches: int) -> float:
    clock = Clock(processor=True)
    path = place / "plain"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    with clock.running():
        for _ in range(batches):
            written = 0
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
    os.fsync(descriptor)  # as ours does when it is closed, so that the next one finds the disk as idle
    os.close(descriptor)
    path.unlink()
    return clock.per_item_ns(batches * BATCH_ROWS)


def run(plan: Plan) -> list[Figure]:
    """Ours against the limit."""
    batches = plan.amount(7, 3)
    batch = batch_of(0)
    with Writer(plan.place / "bytes") as writer:
        writer.append_batch(batch)
    data = segment_of(plan.place / "bytes").read_bytes()
    shutil.rmtree(plan.place / "bytes")
    turns = Turns(plan.rounds).run(
        {
            "ours": lambda: ours(plan.place, batch, batches),
            "plain": lambda: plain_write(plan.place, data, batches),
        }
    )
    return [
        Figure("append_batch", "Writer.append_batch from Arrow", turns.median("ours"), turns.median("plain"), "ns",
               "plain write of the same bytes", 0.5, spread=turns.results["ours"])
    ]  # fmt: skip
