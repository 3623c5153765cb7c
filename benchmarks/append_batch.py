"""Appending Arrow record batches of 100,000 messages, not durable.

The limit is a plain `write` of the same bytes, prepared in advance, one batch at a time.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.journals import BATCH_ROWS, batch_of, segment_of
from benchmarks.measure import Clock, Figure, Plan, Turns
from logwright.sej.files.writer import Writer


def in_turns(place: Path, batch: object, data: bytes, batches: int) -> dict[str, float]:
    """Append a batch, write the same bytes plainly, and so on, to two files that grow alike."""
    ours, plain = Clock(processor=True), Clock(processor=True)
    path = place / "plain"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    with Writer(place / "batches", segment_size=1 << 40) as writer:
        for _ in range(batches):
            with ours.running():
                writer.append_batch(batch)
                writer.flush()
            with plain.running():
                written = 0
                while written < len(data):
                    written += os.write(descriptor, memoryview(data)[written:])
    os.close(descriptor)
    path.unlink()
    shutil.rmtree(place / "batches")
    rows = batches * BATCH_ROWS
    return {"ours": ours.per_item_ns(rows), "plain": plain.per_item_ns(rows)}


def run(plan: Plan) -> list[Figure]:
    """Compare with the limit."""
    batches = plan.amount(7, 3)
    batch = batch_of(0)
    with Writer(plan.place / "bytes") as writer:
        writer.append_batch(batch)
    data = segment_of(plan.place / "bytes").read_bytes()
    shutil.rmtree(plan.place / "bytes")
    turns = Turns(plan.rounds).run({}, lambda: in_turns(plan.place, batch, data, batches))
    return [
        Figure("append_batch", "Writer.append_batch from Arrow", turns.median("ours"), turns.median("plain"), "ns",
               "plain write of the same bytes", 0.5, spread=turns.results["ours"])
    ]  # fmt: skip
