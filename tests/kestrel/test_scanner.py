"""Following queues while a writer appends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage, Mode
from logwright.errors import Closed, DamagedJournal, Gap, NotFound, Truncated
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.scanner import Scanner
from logwright.kestrel.files.writer import Writer
from tests.kestrel.samples import ADDED, REMOVE, addx, encoded, reserve_as, write

A, B, C = addx(b"A"), addx(b"B"), addx(b"C")


def test_existing_and_new_operations_are_read_once_across_files(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", A)
    path = write(tmp_path / "cars", B)
    with Scanner(path, timeout=0) as scanner:
        assert list(scanner) == [A, B]
        assert list(scanner) == []
        with Writer(path) as writer:
            writer.addx(b"C", added=ADDED)
            writer.flush()
            assert list(scanner) == [C]
            writer.rotate()
            writer.remove()
            writer.rotate()
            writer.addx(b"A", added=ADDED)
        assert list(scanner) == [REMOVE, A]


def test_following_starts_at_a_number(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", A, B)
    path = write(tmp_path / "cars", C)
    assert list(Scanner(path, 22, timeout=0)) == [B, C]
    assert list(Scanner(path, (50 << 64) + 22, timeout=0)) == []


def test_incomplete_operation_is_waited_for(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, tail=encoded([B])[:-3])
    with Scanner(path, timeout=0, mode="permissive") as scanner:
        assert [item.record for item in scanner.located() if not isinstance(item, Damage)] == [A]
        path.write_bytes(encoded([A, B, C]))
        assert list(scanner) == [B, C]


def test_scanner_waits_for_another_thread(tmp_path: Path) -> None:
    with Writer(tmp_path / "cars") as writer, Scanner(tmp_path / "cars", timeout=30) as scanner:

        def append() -> None:
            writer.addx(b"A", added=ADDED)
            writer.flush()

        thread = threading.Thread(target=append)
        thread.start()
        assert next(iter(scanner)) == A
        thread.join()


def test_queues_of_a_directory_are_followed_and_new_ones_join(tmp_path: Path) -> None:
    write(tmp_path / "cars", A, B)
    with Scanner(tmp_path, {"cars": 22}, timeout=0) as scanner:
        assert list(scanner) == [B]
        write(tmp_path / "bikes", C)
        assert [(item.file, item.record) for item in scanner.located()] == [("bikes", C)]  # type: ignore[union-attr]
    with pytest.raises(NotFound):
        Scanner(tmp_path / "nothing here")
    with pytest.raises(Closed):
        list(scanner)


@pytest.mark.parametrize("mode", ["failfast", "permissive", "dropmalformed"])
def test_damage_is_handled_as_by_a_reader(mode: Mode, tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, tail=b"\x7f\x7f\x7f" + encoded([B]))
    scanner = Scanner(path, timeout=0, mode=mode)
    if mode == "failfast":
        with pytest.raises(DamagedJournal, match="@ 22"):
            list(scanner)
        return
    damage = [Damage("cars", 22, 25, "there is no operation 127")]
    assert list(scanner) == [A, *(damage if mode == "permissive" else []), B]


def test_files_that_were_packed_unread_are_a_gap(tmp_path: Path) -> None:
    write(tmp_path / "cars.50", A, REMOVE)
    write(tmp_path / "cars.100", B)
    path = write(tmp_path / "cars", C)
    scanner = Scanner(path, 50 << 64, timeout=0)
    later = Scanner(path, 50 << 64, timeout=0, mode="permissive")
    with Writer(path) as writer:
        writer.pack()
    with pytest.raises(Gap, match="were packed before they were read"):
        list(scanner)
    found = [item.kind if isinstance(item, Damage) else item.record for item in later.located()]
    assert found == ["gap", C]
    with Scanner(path, 100 << 64, timeout=0) as read:
        assert list(read) == [C], "what was read to its end may be packed"


def test_shortened_file_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, B)
    with Scanner(path, timeout=0) as scanner:
        assert len(list(scanner)) == 2
        write(path, A)
        with pytest.raises(Truncated, match="it has 22 bytes, and 44 of it were read"):
            list(scanner)


def test_dialect_may_become_known_while_following(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A)
    with Scanner(path, timeout=0) as scanner:
        assert list(scanner) == [A]
        with Writer(path) as writer:
            writer.remove_tentative_xid(4)
        assert list(scanner) == [reserve_as(4)]
    assert Reader(path).queue_state().open[0].xid == 4
