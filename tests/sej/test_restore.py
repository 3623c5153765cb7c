"""Segments restored from rows of tables have their original bytes, and journals appear complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.core.format import find_format
from logwright.core.io.disk import REAL_DISK, Disk
from logwright.core.publish.restore import Missing, Restored, RestoredJournal, Restoring, Written
from logwright.errors import DamagedJournal, LogwrightError, StorageFailed, WrongUse
from logwright.sej import Reader, ShardedWriter, Writer, list_offsets, open_reader, stable_hash
from logwright.sej.files.index import Index
from logwright.sej.model.offset import Offset
from logwright.sej.tables.restore import RESTORE, FileWriter
from tests.contract.scenarios import ForgetfulDisk
from tests.sej.samples import GOLDEN, make_journal
from tests.sej.test_golden import DAMAGED, OTHERS, SHARDED, TORN, WHOLE
from tests.support.faulty_disk import NEEDS_SPACE, Fault, every_fault, failing_calls
from tests.support.materializing import record_rows
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import Tree, read_tree

EXTREMES = [None, 0, -1, 1, -(2**63) + 1, 2**63 - 1, 1_500_000_000_123_456_789, -999, -1001]
Rows = dict[str, list[pa.RecordBatch]]
"""The rows of the table `messages` for each file."""


def random_journal(directory: Path, seed: int, *, disk: Disk = REAL_DISK, **options: Any) -> Path:
    """A journal with messages of every kind."""
    dice = random.Random(seed)
    with Writer(directory, disk=disk, **options) as writer:
        for number in range(dice.randrange(50, 400)):
            value = dice.randbytes(dice.choice([0, 0, 1, 30, 300]))
            key = dice.randbytes(dice.choice([0, 0, 5, 127]))
            writer.append(value, key, number % 256, dice.choice(EXTREMES))
    return directory


def rows_of(directory: Path, *, disk: Disk = REAL_DISK, batch_bytes: int = 1 << 20) -> Rows:
    """What the table `messages` has of a journal."""
    found: Rows = {}
    for batch in record_rows(find_format("sej"), directory, disk=disk, batch_bytes=batch_bytes).to_batches():
        for file in batch.column("file").unique().to_pylist():
            chosen = batch.filter(pa.compute.equal(batch.column("file"), file))
            found.setdefault(file, []).append(chosen)
    return found


def files_of(directory: Path, *, disk: Disk = REAL_DISK) -> dict[str, bytes]:
    """The segments and the offset files of a journal, or of all shards of one."""
    tree = read_tree(disk, directory)
    return {name: data for name, data in tree.items() if data is not None and name.endswith((".jnl", ".ofs"))}


def hashes_of(directory: Path) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files_of(directory).items()}


def write(target: Path, rows: Rows, files: Iterable[str], *, disk: Disk = REAL_DISK) -> list[Written]:
    """Write files, each from its rows."""
    written = []
    for file in files:
        writer = FileWriter(target, file, disk=disk)
        try:
            for batch in rows.get(file, []):
                writer.append_batch(batch)
            written += writer.finish()
        finally:
            writer.discard()
    return written


def copy_consumers(source: Path, target: Path, part: str = "", *, disk: Disk = REAL_DISK) -> None:
    RESTORE.write_consumers(target, part, list_offsets(disk, source / part), disk=disk)


# --- the same bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*WHOLE, *SHARDED])
def test_golden_journal_is_restored_byte_for_byte(name: str, tmp_path: Path) -> None:
    source = GOLDEN / name / ("root" if name in SHARDED else "sej")
    files = [file for file in files_of(source) if file.endswith(".jnl")]
    written = write(tmp_path, rows_of(source), files)
    for part in sorted({RESTORE.part_of(file) for file in files}):
        copy_consumers(source, tmp_path, part)
    assert hashes_of(tmp_path) == hashes_of(source)
    assert sum(one.records for one in written) == open_reader(source).count()
    assert open_reader(tmp_path).verify().problems == []
    assert RESTORE.missing(written, {}) == []


@pytest.mark.parametrize("seed", range(6))
def test_random_journal_in_any_pieces_is_restored_byte_for_byte(seed: int, tmp_path: Path) -> None:
    source = random_journal(tmp_path / "source", seed, segment_size=random.Random(seed).choice([3000, 20_000, 1 << 20]))
    rows = rows_of(source, batch_bytes=2000)
    dice = random.Random(seed)
    cut: Rows = {}
    for file, batches in rows.items():
        for batch in batches:
            at = 0
            while at < batch.num_rows:
                count = dice.choice([1, 2, 7, 1000])
                cut.setdefault(file, []).append(batch.slice(at, count))
                at += count
    write(tmp_path / "target", cut, files_of(source))
    assert files_of(tmp_path / "target") == files_of(source)


def test_value_larger_than_all_buffers_is_restored(tmp_path: Path) -> None:
    with Writer(tmp_path / "source") as writer:
        for size in (10, 3_000_000, 0, 700_000, 10):
            writer.append(b"x" * size, timestamp=size)
    write(tmp_path / "target", rows_of(tmp_path / "source"), files_of(tmp_path / "source"))
    assert files_of(tmp_path / "target") == files_of(tmp_path / "source")


def test_name_is_kept_as_written(tmp_path: Path) -> None:
    source = make_journal(tmp_path / "source", 5)
    (source / "jnl" / "0000000000000000.jnl").rename(source / "jnl" / "0.jnl")
    write(tmp_path / "target", rows_of(source), ["jnl/0.jnl"])
    assert files_of(tmp_path / "target") == files_of(source)


def test_restored_indexes_are_valid(tmp_path: Path) -> None:
    with Writer(tmp_path / "source", segment_size=2_000_000) as writer:
        for number in range(30_000):
            writer.append(b"v" * 80, timestamp=number)
    written = write(tmp_path / "target", rows_of(tmp_path / "source"), files_of(tmp_path / "source"))
    assert written[0].beside == ("idx/0000000000000000.idx",)
    reader = Reader(tmp_path / "target")
    for segment in reader.segments():
        with contextlib.closing(reader.open_file(segment)) as file:
            index = Index.load(REAL_DISK, segment, file.size())
            assert index is not None
            assert index.end(file) is not None
            assert len(index.entries) == file.size() // (256 * 1024) + 1
    assert reader.find_time(23_456) == 23_456
    with Writer(tmp_path / "target") as writer:
        assert (writer.recovered, writer.append(b"goes on")) == (None, 30_000)
    assert reader.verify().problems == []


# --- what is missing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*TORN, *DAMAGED, *OTHERS])
def test_damaged_golden_journal_is_restored_sound_with_its_gaps(name: str, tmp_path: Path) -> None:
    source = GOLDEN / name / "sej"
    written = write(tmp_path, rows_of(source), files_of(source))
    before, after = Reader(source), Reader(tmp_path)
    assert list(after.messages(mode="dropmalformed")) == list(before.messages(mode="dropmalformed"))
    gaps = RESTORE.missing(written, {"": before.next})
    problems = after.verify().problems
    assert [problem.kind for problem in problems] == ["gap"] * len(gaps)
    for problem, gap in zip(problems, gaps, strict=True):
        assert problem.message.startswith(f"the segment begins with offset {gap.next} where {gap.first} was expected")
    assert bool(gaps) == (name in (*DAMAGED, *OTHERS) and name != "midflip_value")
    assert {Path(file).name for file in files_of(source)} <= {Path(file).name for file in files_of(tmp_path)}


def test_jump_of_offsets_starts_a_new_segment(tmp_path: Path) -> None:
    source = make_journal(tmp_path / "source", 20, per_segment=100)
    ((file, (batch,)),) = rows_of(source).items()
    kept = [3, 4, 5, 9, 10, 17]
    written = write(tmp_path / "target", {file: [batch.take(pa.array(kept))]}, [file])
    assert [(one.file, one.first, one.next, one.records) for one in written] == [
        ("jnl/0000000000000000.jnl", 0, 0, 0),
        ("jnl/0000000000000003.jnl", 3, 6, 3),
        ("jnl/0000000000000009.jnl", 9, 11, 2),
        ("jnl/0000000000000011.jnl", 17, 18, 1),
    ]
    found = list(Reader(tmp_path / "target").messages(mode="dropmalformed"))
    assert found == [message for message in Reader(source) if message.offset in kept]
    assert RESTORE.missing(written, {"": 20}) == [
        Missing("", 0, 3),
        Missing("", 6, 9),
        Missing("", 11, 17),
        Missing("", 18, 20),
    ]


def test_missing_messages_are_reported_for_each_shard() -> None:
    written = [Written("2.001/jnl/a.jnl", 10, 15, 5, 0), Written("2.000/jnl/0.jnl", 0, 5, 5, 0)]
    written += [Written("2.000/jnl/7.jnl", 7, 9, 2, 0), Written("2.001/jnl/c.jnl", 12, 20, 8, 0)]
    assert RESTORE.missing(written, {"2.000": 9, "2.001": 21, "2.002": 5}) == [
        Missing("2.000", 5, 7),
        Missing("2.001", 20, 21),
    ]


# --- what is refused ------------------------------------------------------------------------------------------------


def changed(batch: pa.RecordBatch, name: str, values: list[Any]) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    return batch.set_column(at, batch.schema.field(name), pa.array(values, batch.schema.field(name).type))


@pytest.mark.parametrize(("name", "values", "error"), [
    ("offset", [0, 1, 1], r"jnl/0000000000000000\.jnl @ 80: the tables have offset 1 where 2 was expected"),
    ("offset", [0, 1, 0], "the tables have offset 0 where 2 was expected"),
    ("size", [40, 40, 41], r"jnl/0000000000000000\.jnl @ 0: .* from here on have 121 bytes, and they have 120"),
    ("offset", [0, None, 2], "column offset is null"),
    ("value", [b"", None, b""], "column value is null in row 1"),
    ("key", [b"", b"k" * 128, b""], "127"),
    ("type", [1, 256, 1], "column type has what is no type of a message: .*256"),
    ("type", [1, -1, 1], "column type has what is no type of a message"),
    ("type", [1, None, 1], "column type is null"),
])  # fmt: skip
def test_invalid_message_rows_are_refused(name: str, values: list[Any], error: str, tmp_path: Path) -> None:
    ((file, (batch,)),) = rows_of(make_journal(tmp_path / "source", 3)).items()
    writer = FileWriter(tmp_path / "target", file)
    with pytest.raises(DamagedJournal if "@" in error or "tables" in error else WrongUse, match=error):
        writer.append_batch(changed(batch, name, values))
    writer.discard()
    writer.discard()


@pytest.mark.parametrize("file", [
    "", "jnl", "jnl/", "/jnl/0.jnl", "../jnl/0.jnl", "jnl/../0.jnl", "jnl/0.jnl/", "a/b/jnl/0.jnl", "jnl/g.jnl",
    "idx/0.jnl", "./jnl/0.jnl", "3.00/../jnl/0.jnl", "1.002/jnl/0.jnl",
    "b c/jnl/0.jnl", "jnl/0.jnl\n", "jnl/0.jnl.crc", "ofs/a.ofs",
])  # fmt: skip
def test_invalid_segment_name_is_refused(file: str, tmp_path: Path) -> None:
    for refuse in (
        lambda: FileWriter(tmp_path, file),
        lambda: RESTORE.part_of(file),
        lambda: RESTORE.is_single_file(file),
    ):
        with pytest.raises(WrongUse, match="cannot be the name of a segment"):
            refuse()
    assert list(tmp_path.iterdir()) == []


def test_name_is_split_into_its_parts() -> None:
    assert [RESTORE.part_of(file) for file in ("jnl/0.jnl", "web.2.003/jnl/0.jnl", "plain/jnl/0.jnl", "0.jnl")] == [
        *("", "web.2.003", "plain", ""),
    ]
    assert [RESTORE.is_single_file(file) for file in ("0.jnl", "jnl/0.jnl")] == [True, False]


# --- consumers ------------------------------------------------------------------------------------------------------


def test_offsets_of_consumers_are_restored_byte_for_byte(tmp_path: Path) -> None:
    source = make_journal(tmp_path / "source", 5)
    for name, value in (("billing", 3), ("a.b-c_d", 0), ("late", 5)):
        with Offset(source, name) as offset:
            offset.commit(value)
    Offset(source, "fresh").close()
    write(tmp_path / "target", rows_of(source), ["jnl/0000000000000000.jnl"])
    copy_consumers(source, tmp_path / "target")
    assert files_of(tmp_path / "target") == files_of(source)
    assert files_of(tmp_path / "target")["ofs/fresh.ofs"] == b""
    with Offset(tmp_path / "target", "billing") as offset:
        assert offset.value == 3


def test_files_of_a_task_are_durable_with_their_names() -> None:
    disk = empty()
    rows = ROWS[JOURNALS[0]]
    write(OUT, rows, [file for file in FILES[JOURNALS[0]] if file.endswith(".jnl")], disk=disk)
    RESTORE.write_consumers(OUT, "", {"audit": 7, "late": None}, disk=disk)
    assert [change for change in disk.unsynced() if ".idx" not in change] == [], "only an index may be lost"


@pytest.mark.parametrize("name", ["", "a/b", "../out", "a\0b", "x" * 252])
def test_invalid_consumer_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="cannot be the name of a consumer"):
        RESTORE.write_consumers(tmp_path, "", {name: 1})
    assert list(tmp_path.iterdir()) == []


def test_invalid_shard_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="cannot be the name of a shard"):
        RESTORE.write_consumers(tmp_path, "..", {"a": 1})


# --- all or nothing -------------------------------------------------------------------------------------------------

SOURCE, OUT = Path("/source"), Path("/out")
JOURNALS = ["deep/er/plain", "sharded"]
SINGLE = "stray/0000000000000000.jnl"


def sources() -> tuple[dict[str, dict[str, bytes]], dict[str, Rows]]:
    """Three journals: their files, and their rows in the tables."""
    disk = SimulatedDisk()
    disk.make_directory(SOURCE)
    plain, sharded = SOURCE / JOURNALS[0], SOURCE / JOURNALS[1]
    make_journal(plain, 7, per_segment=5, disk=disk)
    for name, value in (("billing", 3), ("audit", 7)):
        with Offset(plain, name, disk=disk) as offset:
            offset.commit(value)
    with ShardedWriter(sharded, "web", 1, disk=disk) as writer:
        for number in range(6):
            writer.append(b"v" * 700 * number, b"%d" % number, timestamp=number)
    assert {stable_hash(b"", b"%d" % number) & 1 for number in range(6)} == {0, 1}
    files = {name: files_of(SOURCE / name, disk=disk) for name in JOURNALS}
    rows = {name: rows_of(SOURCE / name, disk=disk) for name in JOURNALS}
    make_journal(SOURCE / "alone", 4, disk=disk)
    ((_, data),) = files_of(SOURCE / "alone", disk=disk).items()
    (single,) = rows_of(SOURCE / "alone", disk=disk).values()
    name = Path(SINGLE).name
    return {**files, SINGLE: {"": data}}, {**rows, SINGLE: {name: single}}


FILES, ROWS = sources()


def restore_all(disk: Disk) -> Restored:
    """The steps of the pipeline, with sequential tasks."""
    with Restoring(disk, OUT, "request") as restoring:
        if restoring.completed is not None:
            return restoring.completed
        restoring.refuse_existing(ROWS)
        journals: dict[str, RestoredJournal] = {}
        for name, rows in ROWS.items():
            files = [file or Path(SINGLE).name for file in FILES[name] if not file.endswith(".ofs")]
            written: list[Written] = []
            for file in files:
                task = restoring.directory / "tasks" / f"{len(journals)}-{len(written)}"
                made = write(task, rows, [file], disk=disk)
                restoring.take(name, task, made)
                written += made
            records, size = sum(one.records for one in written), sum(one.bytes for one in written)
            journals[name] = RestoredJournal("sej", name, records, len(written), size)
        RESTORE.write_consumers(restoring.home_of(JOURNALS[0]), "", {"audit": 7, "billing": 3}, disk=disk)
        return restoring.publish(journals, {SINGLE: [Path(SINGLE).name]})


def present(disk: Disk) -> dict[str, dict[str, bytes]]:
    """The visible journals, each with its files; nothing else may be visible."""
    tree: Tree = read_tree(disk, OUT) if disk.is_directory(OUT) else {}
    seen = {name: data for name, data in tree.items() if data is not None and not name.startswith(".logwright/")}
    found: dict[str, dict[str, bytes]] = {}
    for name, data in seen.items():
        journal = next((journal for journal in ROWS if name == journal or name.startswith(f"{journal}/")), name)
        if not name.endswith(".idx"):
            found.setdefault(journal, {})[name.removeprefix(journal).removeprefix("/")] = data
    return found


def check(state: SimulatedDisk) -> None:
    """Each journal is complete or absent; after another restore all are complete, and nothing else is left."""
    before = present(state)
    assert before == {name: FILES[name] for name in before}, state.story
    if "restored" in state.marks:
        assert len(before) == len(FILES), state.story
    committed = state.exists(OUT / ".logwright" / "restore" / "manifest.json")
    if before and not committed:
        assert len(before) == len(FILES), state.story
        with pytest.raises(WrongUse, match="already exists"):
            restore_all(state)
    else:
        again = restore_all(state)
        assert (again.records, again.files, again.out) == (17, 5, str(OUT))
        assert again.completed == committed, state.story
    assert present(state) == FILES, state.story
    assert state.list_directory(OUT / ".logwright" / "restore") == ["lock"], state.story
    assert state.open_files == 0, state.story


def empty() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(OUT)
    disk.settle()
    return disk


def restored() -> SimulatedDisk:
    disk = empty()
    assert restore_all(disk).completed is False
    disk.mark("restored")
    return disk


def test_journals_are_restored_to_their_paths() -> None:
    disk = restored()
    assert present(disk) == FILES
    with pytest.raises(WrongUse, match=r"/out/deep/er/plain already exists, and is not overwritten"):
        restore_all(disk)
    assert present(disk) == FILES


def test_power_cut_leaves_each_journal_complete_or_absent() -> None:
    for state in restored().crash_states(most=3, kinds=("subset",), format="sej"):
        check(state)


def test_kill_leaves_each_journal_complete_or_absent() -> None:
    for state in restored().process_kills(format="sej"):
        check(state)


def half_done() -> Iterator[SimulatedDisk]:
    """Disks on which a restore was committed, and some journals are in place."""
    for state in restored().process_kills(format=""):
        if state.exists(OUT / ".logwright" / "restore" / "manifest.json"):
            yield state.copy()


def test_crash_during_completion_of_a_restore_does_no_harm() -> None:
    tried = set()
    for state in half_done():
        if len(present(state)) in tried:
            continue
        tried.add(len(present(state)))
        state.settle()
        assert restore_all(state).completed is True
        state.mark("restored")
        for after in state.crash_states(most=3, kinds=("subset",), format="sej"):
            check(after)
    assert tried == {0, 1, 2, 3}


def test_failure_of_any_call_leaves_each_journal_complete_or_absent() -> None:
    faults = [Fault(errno.EIO), Fault(errno.ENOSPC, forever=True, partial=True, only=NEEDS_SPACE)]
    for disk in every_fault(empty, faults, format="sej"):
        try:
            restore_all(disk)
        except StorageFailed:
            assert disk.failures, disk.story
        else:
            disk.inner.mark("restored")
        assert disk.inner.open_files == 0, disk.story
        check(disk.inner)


def test_failure_before_the_commit_leaves_nothing() -> None:
    for disk in failing_calls(empty, error=errno.ENOSPC, only={"write"}, format="sej"):
        with contextlib.suppress(StorageFailed):
            restore_all(disk)
        left = disk.inner.list_directory(OUT / ".logwright" / "restore")
        assert left == ["lock"], disk.story
        assert len(present(disk.inner)) in (0, len(FILES))


@pytest.mark.parametrize("forgotten", [
    ("sync", r".*\.jnl"),
    ("sync", r".*\.ofs"),
    ("sync", r".*/manifest\.json"),
    ("sync directory", r"/out|/out/(deep|stray).*"),
    ("sync directory", r".*/(jnl|tasks.*|journals.*)"),
])  # fmt: skip
def test_every_missing_sync_of_a_restore_is_detected(forgotten: tuple[str, str]) -> None:
    inner = empty()
    disk: Any = ForgetfulDisk(
        inner, lambda kind, path: kind == forgotten[0] and bool(re.fullmatch(forgotten[1], str(path)))
    )
    restore_all(disk)
    inner.mark("restored")
    assert disk.forgotten
    assert is_found_out(inner)


def is_found_out(disk: SimulatedDisk) -> bool:
    committing = next(at for at, operation in enumerate(disk.operations) if "manifest.json" in str(operation))
    for state in disk.crash_states(first=committing, most=3, kinds=("subset",), format=""):
        try:
            check(state)
        except (AssertionError, LogwrightError):
            return True
    return False


def test_files_created_meanwhile_are_not_overwritten() -> None:
    for state in half_done():
        if present(state):
            continue
        make_journal(OUT / "sharded", 1, disk=state)
        with pytest.raises(WrongUse, match=r"/out/sharded already exists, .*: move it away and restore again"):
            restore_all(state)
        state.rename(OUT / "sharded", Path("/elsewhere"))
        assert restore_all(state).completed is True
        assert present(state) == FILES
        break
