"""Any calls in any order, including crashes: the journal has the contents of a model without files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies

from logwright.appendfile import Recovery, Writer
from logwright.appendfile.files.reader import Reader
from tests.appendfile.model import Model, read_view, view_of
from tests.support.simulated_disk import SimulatedDisk

HOME = Path("/journal")
RECORDS = strategies.binary(min_size=1, max_size=60)
STEPS = strategies.lists(
    strategies.one_of(
        RECORDS.map(lambda record: ("append", record)),
        strategies.sampled_from(["register", "check", "reopen", "crash", "walk", "look", "generation"]).map(
            lambda name: (name, b"")
        ),
        strategies.just(("register", b"")),
    ),
    max_size=40,
)


class Twins:
    """A journal and its model. Everything is durable when a call returns, so a crash loses nothing."""

    def __init__(self, file_bytes: int) -> None:
        self.disk = SimulatedDisk()
        self.model = Model()
        self.file_bytes = file_bytes
        self.writer, self.recovery = self._opened()

    def _opened(self) -> tuple[Writer, Recovery]:
        writer = Writer(HOME, sync="always", file_bytes=self.file_bytes, recovering=True, disk=self.disk)
        return writer, writer.recovery()

    def step(self, name: str, record: bytes) -> None:
        getattr(self, name)(record)
        assert (self.writer.checked, self.writer.current) == (self.model.checked, self.model.current)
        assert read_view(self.disk, HOME) == self.model.view()

    def append(self, record: bytes) -> None:
        self.writer.append(record)
        self.model.append(record)

    def register(self, _: bytes) -> None:
        assert self.writer.register_checkpoint() == self.model.register()

    def check(self, _: bytes) -> None:
        if self.model.closed:
            self.writer.check_checkpoint()
            self.model.check()

    def reopen(self, _: bytes) -> None:
        self.writer.close()
        self.writer, self.recovery = self._opened()
        self.model.reopen()

    def crash(self, _: bytes) -> None:
        *_others, self.disk = self.disk.crash_states(
            first=len(self.disk.operations), most=1, kinds=["order"], format=""
        )
        self.writer, self.recovery = self._opened()
        self.model.reopen()

    def generation(self, _: bytes) -> None:
        self.writer.begin_generation()
        self.model.begin_generation()

    def walk(self, _: bytes) -> None:
        assert view_of(list(self.recovery)) == self.model.old
        self.model.consume()

    def look(self, _: bytes) -> None:
        if self.model.old:
            assert view_of([next(self.recovery)]) == self.model.old[:1]
            self.reopen(b"")


@settings(derandomize=True, deadline=None, database=None, max_examples=150)
@given(steps=STEPS, file_bytes=strategies.sampled_from([50, 90, 200, 4 << 20]))
def test_any_calls_match_the_model(steps: list[tuple[str, bytes]], file_bytes: int) -> None:
    twins = Twins(file_bytes)
    for step in steps:
        twins.step(*step)
    twins.writer.close()


@settings(derandomize=True, deadline=None, database=None, max_examples=100)
@given(steps=STEPS, file_bytes=strategies.sampled_from([50, 90, 200]))
def test_writer_that_appends_in_place_leaves_one_generation(steps: list[Any], file_bytes: int) -> None:
    """The same without recovery: a writer is closed and opened at the end of the journal, and nothing is set aside."""
    disk, model = SimulatedDisk(), Model()
    writer = Writer(HOME, file_bytes=file_bytes, disk=disk)
    for name, record in steps:
        if name == "append":
            writer.append(record)
            model.append(record)
        elif name == "register":
            assert writer.register_checkpoint() == model.register()
        elif name == "check" and model.closed:
            writer.check_checkpoint()
            model.check()
        elif name in ("reopen", "crash"):
            writer.close()
            writer = Writer(HOME, file_bytes=file_bytes, disk=disk)
            assert (writer.checked, writer.current) == (model.checked, model.current)
            assert writer.has_data == bool(model.open)
    writer.close()
    assert read_view(disk, HOME) == model.view()
    assert not disk.is_directory(HOME / ".logwright" / "recovery")
    files = Reader(HOME, disk=disk).files()
    assert [file.file_id for file in files] == [*range(files[0].file_id, files[-1].file_id + 1)] if files else True
