"""Concurrent events: a journal that grows while it is read, a writer that is closed, forked or moved."""

from __future__ import annotations

import array
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.core.format import open_journal
from logwright.core.io.disk import REAL_DISK, File, OpenMode
from logwright.errors import Closed, TooLarge, Truncated, WrongUse
from logwright.sej import Message, Offset, Reader, Scanner, Writer, read_offset
from tests.sej.samples import make_journal, offsets_of


class GrowingDisk:
    """A disk on which a half-written message is completed whenever the size of a segment is read."""

    def __init__(self, segment: Path) -> None:
        self._segment = segment
        self._whole = segment.read_bytes()

    def halve(self) -> None:
        os.truncate(self._segment, len(self._whole) - 20)

    def complete(self) -> None:
        self._segment.write_bytes(self._whole)

    def open(self, path: Path, mode: OpenMode) -> Any:
        file = REAL_DISK.open(path, mode)
        return GrowingFile(file, self) if path == self._segment else file

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_DISK, name)


class GrowingFile:
    def __init__(self, file: File, disk: GrowingDisk) -> None:
        self._file = file
        self._disk = disk

    def size(self) -> int:
        size = self._file.size()
        self._disk.complete()
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def growing(tmp_path: Path) -> GrowingDisk:
    make_journal(tmp_path / "journal", 3)
    return GrowingDisk(tmp_path / "journal" / "jnl" / "0000000000000000.jnl")


def test_message_completed_during_the_search_for_the_end_is_not_damage(growing: GrowingDisk, tmp_path: Path) -> None:
    questions: list[Callable[[Reader], bool]] = [
        lambda reader: reader.next in (2, 3),
        lambda reader: len(reader.last(5)) in (2, 3),
        lambda reader: reader.state()["next"] in (2, 3),
        lambda reader: reader.summary().records in (2, 3),
        lambda reader: reader.count() in (2, 3),
    ]
    for ask in questions:
        growing.halve()
        assert ask(Reader(tmp_path / "journal", disk=growing))


@pytest.mark.parametrize("mode", ["failfast", "dropmalformed"])
def test_message_completed_while_it_is_read_is_the_end_or_a_message(
    growing: GrowingDisk, tmp_path: Path, mode: Any
) -> None:
    growing.halve()
    reader = Reader(tmp_path / "journal", disk=growing)
    assert offsets_of(reader.messages(mode=mode)) in ([0, 1], [0, 1, 2])
    growing.halve()
    assert reader.verify().problems == []


@pytest.mark.parametrize("key", [array.array("i", range(50)), memoryview(bytes(200)).cast("I")])
def test_length_of_a_key_is_counted_in_bytes(tmp_path: Path, key: Any) -> None:
    with Writer(tmp_path / "journal") as writer:
        with pytest.raises(TooLarge, match="200 bytes"):
            writer.append(b"value", key)
        assert writer.append(b"value", memoryview(array.array("i", [1, 2]))) == 0
    (message,) = Reader(tmp_path / "journal")
    assert message.key == array.array("i", [1, 2]).tobytes()


@pytest.mark.parametrize("policy", ["none", "interval(1)", "always"])
def append_until_refused(writer: Writer, started: threading.Barrier, said: list[int], errors: list[type]) -> None:
    started.wait()
    try:
        for _ in range(100_000):
            said.append(writer.append(b"value"))
    except BaseException as error:
        errors.append(type(error))


@pytest.mark.parametrize("attempt", range(5))
@pytest.mark.parametrize("policy", ["none", "interval(1)", "always"])
def test_appends_before_close_are_kept_and_later_ones_refused(tmp_path: Path, policy: str, attempt: int) -> None:
    writer = Writer(tmp_path / "journal", sync=policy, segment_size=2000 + attempt)
    said: list[int] = []
    errors: list[type] = []
    started = threading.Barrier(4)
    arguments = (writer, started, said, errors)
    threads = [threading.Thread(target=append_until_refused, args=arguments) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait()
    while len(said) < 50:
        pass
    writer.close()
    for thread in threads:
        thread.join()
    assert set(errors) == {Closed}
    assert set(said) <= {message.offset for message in Reader(tmp_path / "journal")}


def test_change_of_directory_does_not_move_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Writer("journal", segment_size=30) as writer, Offset("journal", "consumer") as offset:
        writer.append(b"one")
        monkeypatch.chdir(tmp_path / "elsewhere")
        writer.append(b"two")
        offset.commit(1)
    assert [message.value for message in Reader(tmp_path / "journal")] == [b"one", b"two"]
    assert read_offset(tmp_path / "journal", "consumer") == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_forked_child_cannot_write_with_its_parents_writer(tmp_path: Path) -> None:
    with Writer(tmp_path / "journal") as writer:
        writer.append(b"parent")
        child = os.fork()
        if child == 0:
            try:
                writer.append(b"child")
                writer.flush()
            except WrongUse:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        writer.append(b"parent again")
    values = [message.value for message in Reader(tmp_path / "journal") if isinstance(message, Message)]
    assert values == [b"parent", b"parent again"]


@pytest.mark.parametrize("option", [{"buffer_bytes": 1.5}, {"segment_size": 2**63}, {"segment_size": 0}])
def test_wrong_sizes_are_refused_before_the_lock_is_taken(tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(WrongUse, match="makes no sense"):
        Writer(tmp_path / "journal", **option)
    Writer(tmp_path / "journal").close()


def test_file_replaced_under_a_scanner_is_reported(tmp_path: Path) -> None:
    make_journal(tmp_path / "journal", 3)
    segment = tmp_path / "journal" / "jnl" / "0000000000000000.jnl"
    with Scanner(tmp_path / "journal", timeout=0) as scanner:
        assert offsets_of(scanner) == [0, 1, 2]
        data = segment.read_bytes()
        segment.unlink()
        segment.write_bytes(data + data)
        with pytest.raises(Truncated, match="was replaced"):
            next(scanner)


def test_journal_that_is_also_a_root_of_shards_is_refused(tmp_path: Path) -> None:
    make_journal(tmp_path / "root", 1)
    make_journal(tmp_path / "root" / "1.000", 2)
    with pytest.raises(WrongUse, match="at once"):
        open_journal(tmp_path / "root")
    assert Reader(tmp_path / "root").count() == 1
