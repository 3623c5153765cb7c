"""Replaying a journal in little memory: the rules compared with a plain model, surveys, and packs."""

from __future__ import annotations

import importlib
import random
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logwright.core.bytes.compiled import COMPILED
from logwright.kestrel.bytes import codec, kernel
from logwright.kestrel.bytes.ids import following
from logwright.kestrel.bytes.layout import DOCUMENTED, KESTREL2
from logwright.kestrel.bytes.records import OPS, Operation
from logwright.kestrel.files import cursor
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.survey import Survey
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model import rules
from logwright.kestrel.model.packing import MOST_ATTEMPTS, state_operations
from tests.kestrel.samples import (
    REMOVE,
    RESERVE,
    add_xid,
    addx,
    confirm,
    continue_,
    encoded,
    reserve_as,
    save_xid,
    state_dump,
    unremove,
    write,
)
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_file

TWINS: dict[str, Any] = {"rules": rules.Replay}
COPIES: dict[str, Any] = {"codec": codec.copy_adds}
if COMPILED:
    TWINS["_rules"] = importlib.import_module("logwright.kestrel.model._rules").Replay
    COPIES["_kernel"] = importlib.import_module("logwright.kestrel.bytes._kernel").copy_adds

XIDS = st.sampled_from((1, 2, 3, 4, 5, -1, 2**31 - 1, -(2**31)))
STEPS = st.one_of(
    st.just(("addx", 0)),
    st.sampled_from((("addx", 0), ("add", 0), ("remove", 0), ("remove_tentative", 0), ("remove_tentative", 0))),
    st.tuples(st.sampled_from(("unremove", "unremove", "confirm_remove", "save_xid", "add_xid")), XIDS),
    st.tuples(st.sampled_from(("remove_tentative_xid", "continue")), XIDS),
    st.just(("state_dump", 1)),
)


def as_turns(steps: list[tuple[str, int]], base: int = 0) -> tuple[bytes, array[int], array[int], int]:
    """Operations as in a chunk, each of 30 bytes."""
    kinds = bytes(OPS[op] for op, _ in steps)
    positions = array("q", (base + 30 * row for row in range(len(steps))))
    return kinds, array("i", (number for _, number in steps)), positions, base + 30 * len(steps)


def replayed(twin: Any, files: list[list[tuple[str, int]]]) -> Any:
    found = twin()
    for number, steps in enumerate(files):
        found.begin_file(number)
        for start in range(0, len(steps), 3):  # in several chunks
            found.add(*as_turns(steps[start : start + 3], 30 * start))
    return found


class Model:
    """The same rules again, as simple as possible. An item is its number, its id, and its attempts."""

    def __init__(self, files: list[list[tuple[str, int]]]) -> None:
        self.queue: list[tuple[int, int, int]] = []
        self.open: dict[int, tuple[int, int]] = {}
        self.xid = self.added = 0
        for steps in files:
            for op, number in steps:
                if op == "state_dump":
                    break
                getattr(self, op)(number)

    def addx(self, xid: int) -> None:
        self.queue.append((self.added, xid, 0))
        self.added += 1

    add_xid = addx

    def add(self, _: int) -> None:
        self.addx(0)

    def remove(self, _: int) -> None:
        del self.queue[:1]

    def remove_tentative(self, _: int) -> None:
        if self.queue:
            item, xid, attempts = self.queue.pop(0)
            if xid == 0 or xid in self.open:
                self.xid = xid = next_free(self.xid, self.open)
            self.open[xid] = item, attempts

    def remove_tentative_xid(self, xid: int) -> None:
        if self.queue and xid not in self.open:
            item, _, attempts = self.queue.pop(0)
            self.open[xid] = item, attempts
            self.xid = xid

    def unremove(self, xid: int) -> None:
        if xid in self.open:
            item, attempts = self.open.pop(xid)
            self.queue.insert(0, (item, 0, attempts + 1))

    def confirm_remove(self, xid: int) -> None:
        self.open.pop(xid, None)

    def save_xid(self, xid: int) -> None:
        self.xid = xid

    def continue_(self, xid: int) -> None:
        self.confirm_remove(xid)
        self.addx(0)


setattr(Model, "continue", Model.continue_)


def next_free(xid: int, taken: dict[int, tuple[int, int]]) -> int:
    while True:
        xid = following(xid)
        if xid not in taken:
            return xid


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
@given(files=st.lists(st.lists(STEPS, max_size=60), max_size=3))
def test_replay_matches_the_rules_of_the_queue(twin: Any, files: list[list[tuple[str, int]]]) -> None:
    found, model = replayed(twin, files), Model(files)
    assert found.items() == [item for item, _, _ in model.queue]
    assert found.front() == [(item, attempts) for item, _, attempts in model.queue if attempts]
    assert found.open() == [(xid, *item) for xid, item in model.open.items()]
    assert (found.xid, len(found), found.added) == (model.xid, len(model.queue), model.added)


def everything(found: Any) -> Any:
    counts = found.xid, found.first, found.added, found.added_bytes, found.anomaly_count, len(found)
    return counts, found.items(), found.front(), found.open(), found.anomalies, found.events


@given(files=st.lists(st.lists(STEPS, max_size=60), max_size=3))
def test_interpreted_and_compiled_rules_agree(files: list[list[tuple[str, int]]]) -> None:
    plain, *others = (everything(replayed(twin, files)) for twin in TWINS.values())
    assert others == [plain] * len(others)


@given(files=st.lists(st.lists(STEPS, max_size=60), max_size=3))
def test_interpreted_and_compiled_rules_report_the_same_changes(files: list[list[tuple[str, int]]]) -> None:
    queues = [twin() for twin in TWINS.values()]
    for steps in files:
        for queue in queues:
            queue.begin_file(0)
        plain, *others = (queue.changes(*as_turns(steps)[:2]) for queue in queues)
        assert others == [plain] * len(others)


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_many_reservations_are_replayed(twin: Any) -> None:
    chance = random.Random(4)
    xids = list(range(1, 5001))
    chance.shuffle(xids)
    steps = [("addx", 0)] * 5000 + [("remove_tentative", 0)] * 5000 + [("unremove", xid) for xid in xids[:2500]]
    steps += [("confirm_remove", xid) for xid in xids[2500:4000]]
    found = replayed(twin, [steps])
    assert found.front() == [(xid - 1, 1) for xid in reversed(xids[:2500])]
    assert found.open() == [(xid, xid - 1, 0) for xid in sorted(xids[4000:])]
    assert (found.xid, found.first, len(found)) == (5000, 5000, 2500)


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_attempts_count_the_aborts_of_an_item(twin: Any) -> None:
    again = [("remove_tentative", 0), ("unremove", 1), ("save_xid", 0)]
    found = replayed(twin, [[("addx", 0), ("addx", 0), *again * 3, ("remove_tentative", 0), ("remove_tentative", 0)]])
    assert found.open() == [(1, 0, 3), (2, 1, 0)]
    found.add(*as_turns([("unremove", 2), ("unremove", 1)]))
    assert found.front() == [(0, 4), (1, 1)]
    found.add(*as_turns([("remove", 0)]))
    assert found.front() == [(1, 1)]


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_invalid_operations_are_refused(twin: Any) -> None:
    with pytest.raises(ValueError, match="as many"):
        twin().add(b"\x02", array("i"), array("q", [0]), 30)
    with pytest.raises(ValueError, match="no operation 77"):
        twin().add(b"\x4d", array("i", [0]), array("q", [0]), 30)


@pytest.mark.parametrize("copy_adds", COPIES.values(), ids=COPIES)
def test_operations_that_add_items_are_copied(copy_adds: Any) -> None:
    operations = [addx(b"one"), REMOVE, continue_(7, b"two"), confirm(3), add_xid(9, b""), addx(b"three", expires=5)]
    data = b"before" + encoded(operations)
    stop, count, _, _ = codec.walk(data, 6, len(data), KESTREL2)
    kinds, _, positions = codec.effects(data, 6, stop, count, KESTREL2, 1000)
    wanted = [addx(b"one"), addx(b"two"), add_xid(9, b""), addx(b"three", expires=5)]
    assert copy_adds(data, 1000, kinds, positions, 1000 + stop, 0) == (encoded(wanted), 4)
    assert copy_adds(data, 1000, kinds, positions, 1000 + stop, 3) == (encoded(wanted[2:]), 2)
    with pytest.raises(ValueError, match="not within the buffer"):
        copy_adds(b"short", 0, b"\x02", array("q", [0]), 30, 0)


# --- over files -------------------------------------------------------------------------------------------------------


def survey_of(path: Path, **options: Any) -> tuple[Survey, Any]:
    reader = Reader(path, **options)
    files = reader.snapshot()
    return Survey(reader, files.__enter__()), files


def test_items_are_found_by_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "READ_BYTES", 200)  # many chunks
    chance = random.Random(8)
    contents = [chance.randbytes(chance.choice((0, 3, 50, 150, 900))) for _ in range(60)]
    for number, name in enumerate(("cars.7", "cars.80", "cars")):
        operations = [addx(data) for data in contents[20 * number : 20 * number + 20]]
        write(tmp_path / name, *operations[:5], REMOVE, *operations[5:12], REMOVE, *operations[12:])
    survey, files = survey_of(tmp_path / "cars")
    with_data = survey.load(range(60))
    assert [with_data[number].data for number in range(60)] == contents
    for number in range(60):
        assert survey.find(number).bytes_before == sum(map(len, contents[:number]))
    assert survey.replay.first == 6
    copied = [
        kernel.copy_adds(chunk.data, chunk.base, effects.kinds, effects.positions, effects.end, 0)[0]
        for chunk, effects in survey.run()
    ]
    assert b"".join(copied) == encoded(addx(data) for data in contents[6:])
    files.__exit__(None, None, None)


def test_operations_after_a_state_dump_are_not_in_the_run(tmp_path: Path) -> None:
    write(tmp_path / "cars.7", addx(b"one"), state_dump(3, 1), add_xid(2, b"not this"), addx(b"nor this"))
    write(tmp_path / "cars", addx(b"two"))
    survey, files = survey_of(tmp_path / "cars", dialect="documented")
    assert [survey.load([number])[number].data for number in range(2)] == [b"one", b"two"]
    copied = [
        kernel.copy_adds(chunk.data, chunk.base, effects.kinds, effects.positions, effects.end, 0)[0]
        for chunk, effects in survey.run()
    ]
    assert b"".join(copied) == encoded([addx(b"one"), addx(b"two")])
    files.__exit__(None, None, None)


# --- what a pack says -------------------------------------------------------------------------------------------------

JOURNAL = st.lists(
    st.one_of(
        st.sampled_from((addx(b"a"), addx(b"bb", expires=5), add_xid(1, b"named"), Operation("add", data=b"old"))),
        st.sampled_from((REMOVE, RESERVE, RESERVE, RESERVE)),
        st.sampled_from((unremove(1), unremove(2), unremove(3), confirm(1), confirm(2), save_xid(7), save_xid(0))),
        st.sampled_from((unremove(-(2**31)), unremove(2**31 - 1), save_xid(2**31 - 2), save_xid(-2))),
    ),
    max_size=60,
)
OTHER_DIALECT = {RESERVE: reserve_as(2), REMOVE: reserve_as(-5)}


def state_with_attempts(disk: SimulatedDisk, dialect: Any) -> Any:
    """The queue with everything that is known of it: contents in order, ids, attempts."""
    reader = Reader(Path("/q"), dialect=dialect, disk=disk)
    with reader.snapshot() as files:
        survey = Survey(reader, files)
        found = survey.replay
        loaded = survey.load(range(found.added))

        def keep(operation: Operation) -> tuple[bytes | None, int, int | None]:
            return operation.data, operation.added or 0, operation.expires

        run = [(keep(loaded[number]), loaded[number].xid or 0) for number in range(found.first, found.added)]
        front = [(keep(loaded[number]), attempts) for number, attempts in found.front()]
        reserved = [(xid, keep(loaded[number]), attempts) for xid, number, attempts in found.open()]
        return found.xid, reserved, front, run


@pytest.mark.parametrize("dialect", ["documented", "kestrel2"])
@given(operations=JOURNAL)
def test_pack_replays_to_the_same_queue_with_attempts(dialect: Any, operations: list[Operation]) -> None:
    if dialect == "kestrel2":
        operations = [OTHER_DIALECT.get(operation, operation) for operation in operations]
    disk = SimulatedDisk()
    write_file(disk, Path("/q"), encoded(operations))
    before = state_with_attempts(disk, dialect)
    with Writer(Path("/q"), dialect=dialect, disk=disk) as writer:
        writer.rewrite()
    after = state_with_attempts(disk, dialect)
    assert after == before
    with Writer(Path("/q"), dialect=dialect, disk=disk) as writer:
        writer.rewrite()
    assert state_with_attempts(disk, dialect) == before


@pytest.mark.parametrize("dialect", [DOCUMENTED, KESTREL2])
def test_item_that_always_fails_does_not_fill_the_pack(dialect: int) -> None:
    item = addx(b"x" * 100)
    (said,) = {len(b"".join(state_operations(7, [(7, item, times)], [], dialect))) for times in (10**6, 10**9)}
    assert said < 12 * MOST_ATTEMPTS + 200


def test_pack_of_an_empty_queue_is_an_empty_file() -> None:
    assert b"".join(state_operations(0, [], [], DOCUMENTED)) == b""
    assert b"".join(state_operations(0, [], [], KESTREL2)) == b""
    assert b"".join(state_operations(5, [], [], DOCUMENTED)) == encoded([save_xid(5)])
    assert b"".join(state_operations(5, [], [], KESTREL2)) == encoded([save_xid(5)])


def test_reserved_items_begin_a_pack() -> None:
    said = b"".join(state_operations(9, [(4, addx(b"four"), 0), (2, addx(b"two"), 0)], [], DOCUMENTED))
    assert said == encoded([save_xid(9), add_xid(4, b"four"), RESERVE, add_xid(2, b"two"), RESERVE])
