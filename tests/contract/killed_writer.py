"""A process that writes forever and reports its progress, until a test kills it.

It continues at the end of the journal. The record with index n is `subject.record(seed, n)`, so the test can derive the
expected records from the last reported number.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import struct
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from logwright.core.io.disk import REAL_DISK
from logwright.errors import NotFound
from tests.contract.subjects import SUBJECTS

COUNT = struct.Struct("<Q")
RECORDS_PER_FLUSH = 3


def write_for_ever(
    name: str, directory: str, seed: int, sync: str, options: dict[str, Any], acknowledgements: Connection
) -> None:
    """Append records, and send the number of acknowledged ones: after each record, or after each flush."""
    logging.disable(logging.CRITICAL)
    subject, home = SUBJECTS[name], Path(directory)
    count = 0
    with contextlib.suppress(NotFound):
        count = sum(1 for _ in subject.read(REAL_DISK, home))
    session = subject.open_session(REAL_DISK, home, sync=sync, **options)
    acknowledgements.send_bytes(COUNT.pack(count))
    for index in itertools.count(count):
        session.append(subject.record(seed, index))
        if sync == "always":
            acknowledgements.send_bytes(COUNT.pack(index + 1))
        elif index % RECORDS_PER_FLUSH == 0:
            session.flush()
            acknowledgements.send_bytes(COUNT.pack(index + 1))
