"""Memory is bounded: any operation on a journal of 300 MB takes only a few megabytes more than on a small one.

Each operation runs in its own process, which reports the rise of its peak resident memory. The journal is a sparse
file: its values are holes, so it takes neither time to write nor disk space.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from logwright.sej.bytes.layout import HEAD, OVERHEAD, TRAILER, VALUE_SIZE, segment_name

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of a process's memory is read from /proc"
)

MESSAGES = 3000
VALUE_BYTES = 100_000
MIB = 1 << 20

PRELUDE = """
import sys
from pathlib import Path
import pyarrow.compute
from logwright import arrow
from logwright.sej.files.reader import Reader
from logwright.sej.files.scanner import Scanner
from logwright.sej.files.writer import Writer
import logwright.sej.tables.spark_columns  # what is measured is the memory of data, not of code
journal, folder = Path(sys.argv[1]), Path(sys.argv[2])

def peak_bytes():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

before = peak_bytes()
"""


def sparse_journal(directory: Path, messages: int, value_bytes: int, per_segment: int) -> Path:
    """A journal whose values are zeros that take no disk space."""
    (directory / "jnl").mkdir(parents=True)
    size = OVERHEAD + value_bytes
    for first in range(0, messages, per_segment):
        with (directory / "jnl" / segment_name(first)).open("wb") as file:
            for offset in range(first, min(first + per_segment, messages)):
                file.seek((offset - first) * size)
                file.write(HEAD.pack(offset, offset, 0, 0) + VALUE_SIZE.pack(value_bytes))
                file.seek((offset - first + 1) * size - TRAILER.size)
                file.write(TRAILER.pack(size))
    return directory


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_journal(tmp_path_factory.mktemp("memory") / "j", MESSAGES, VALUE_BYTES, 1000)


def rise_bytes(work: str, journal: Path, folder: Path) -> int:
    """The rise of the peak memory of a process by some work."""
    code = PRELUDE + work + "\nprint(peak_bytes() - before)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(journal), str(folder)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    "work",
    [
        "assert sum(1 for message in Reader(journal)) == 3000",
        "assert sum(1 for located in Reader(journal).scan()) == 3000",
        "assert Reader(journal).count() == 3000",
        "assert sum(1 for message in Scanner(journal, timeout=0)) == 3000",
        "assert len(Reader(journal).last(10)) == 10",
        "assert Reader(journal).find_time(2500) == 2500",
        "assert Reader(journal).verify().records == 3000",
        "assert sum(batch.num_rows for batch in arrow.batches(journal)) == 3000",
        "assert sum(batch.num_rows for batch in arrow.read(journal)) == 3000",
        "assert arrow.to_arrow(journal, ['offset', 'timestamp', 'size']).num_rows == 3000",
    ],
)
def test_reading_300_mb_takes_little_memory(work: str, journal: Path, tmp_path: Path) -> None:
    assert rise_bytes(work, journal, tmp_path) < 40 * MIB


def test_measured_memory_is_the_used_memory(journal: Path, tmp_path: Path) -> None:
    assert rise_bytes("kept = list(Reader(journal).messages(stop=1100))", journal, tmp_path) > 95 * MIB


def test_converting_300_mb_takes_the_memory_of_a_few_row_groups(journal: Path, tmp_path: Path) -> None:
    work = "assert arrow.to_parquet(journal, folder / 'p', row_group_bytes=4 << 20).rows == 3000"
    assert rise_bytes(work, journal, tmp_path) < 80 * MIB


def test_converting_it_back_takes_little_memory(journal: Path, tmp_path: Path) -> None:
    arrow_work = "arrow.to_parquet(journal, folder / 'p', row_group_bytes=32 << 20, stop=1500)"
    rise_bytes(arrow_work, journal, tmp_path)
    work = "assert arrow.from_parquet(folder / 'p', folder / 'k') == 1500"
    assert rise_bytes(work, journal, tmp_path) < 80 * MIB


@pytest.mark.parametrize(
    "work",
    [
        "for number in range(1000): writer.append(value, b'key')",
        "for number in range(10): writer.append_batch(pyarrow.record_batch({'value': [value] * 100}))",
    ],
    ids=["append", "append_batch"],
)
def test_writing_100_mb_takes_little_memory(work: str, journal: Path, tmp_path: Path) -> None:
    whole = f"""
import pyarrow
value = bytes({VALUE_BYTES})
with Writer(folder / "w", segment_size=30_000_000) as writer:
    {work}
"""
    assert rise_bytes(whole, journal, tmp_path) < 40 * MIB
