"""The next free id: the same as by trying each id in turn, but in few steps, for any journal."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.kestrel.bytes.ids import MOST_STEPS, OpenIds, following, preceding
from logwright.kestrel.bytes.records import OPS
from logwright.kestrel.model import replay, rules
from tests.support.counts import COUNTS

LAST, FIRST = 2**31 - 1, -(2**31)
Steps = list[tuple[str, int]]


@pytest.mark.parametrize(("xid", "next_xid"), [(0, 1), (1, 2), (-2, -1), (-1, 1), (LAST, FIRST), (FIRST, FIRST + 1)])
def test_ids_are_consecutive_skip_0_and_wrap(xid: int, next_xid: int) -> None:
    assert following(xid) == next_xid
    assert following(preceding(next_xid)) == next_xid
    assert OpenIds().following(xid) == next_xid


@pytest.mark.parametrize("start", [1, 60, 4000, LAST - 3000, -3000, FIRST, 2**30 - 7])
@pytest.mark.parametrize("count", [1, 64, 200, 64 * 64 + 5, 10_000])
def test_run_of_open_ids_is_skipped(start: int, count: int) -> None:
    xids, xid = [], preceding(start)
    for _ in range(count):
        xid = following(xid)
        xids.append(xid)
    ids = OpenIds(xids)
    assert ids.following(preceding(start)) == following(xids[-1])
    assert ids.following(xids[count // 2]) == following(xids[-1])
    ids.remove(xids[count // 2])
    assert ids.following(preceding(start)) == xids[count // 2]
    for left in xids:
        if left != xids[count // 2]:
            ids.remove(left)
    assert ids.following(xids[-1]) == following(xids[-1])


def test_random_reservations_match_the_model() -> None:
    chance = random.Random(4)
    ids, taken = OpenIds(), set[int]()
    places = [*range(-150, 150), *range(LAST - 70, LAST + 1), *range(FIRST, FIRST + 70), *range(4090, 4170)]
    for _ in range(20_000):
        xid = chance.choice(places)
        if xid in taken and chance.random() < 0.4:
            taken.remove(xid)
            ids.remove(xid)
        elif xid not in taken and xid != 0:
            taken.add(xid)
            ids.add(xid)
        wanted = following(xid)
        while wanted in taken:
            wanted = following(wanted)
        assert ids.following(xid) == wanted


# --- in a replay ------------------------------------------------------------------------------------------------------


def as_turns(steps: Steps) -> tuple[bytes, array[int], array[int]]:
    kinds = bytes(OPS[op] for op, _ in steps)
    return kinds, array("i", (number for _, number in steps)), array("q", range(0, 30 * len(steps), 30))


def open_ids(twin: Any, kinds: bytes, numbers: array[int], positions: array[int]) -> list[int]:
    """The open ids at the end, in the order of the reservations, followed by the last used one."""
    found = twin()
    found.add(kinds, numbers, positions, positions[-1] + 30)
    return [xid for xid, _, _ in found.open()] + [found.xid]


TWINS = [pytest.param(rules.Replay, id="rules")]
if COMPILED:
    TWINS.append(pytest.param(replay.Replay, id="_rules"))


def by_hand(steps: Steps) -> list[int]:
    """The expected ids, found by trying each id in turn."""
    taken: dict[int, None] = {}
    last = 0
    for op, number in steps:
        if op == "save_xid":
            last = number
        elif op in ("confirm_remove", "unremove"):
            taken.pop(number, None)
        elif op == "remove_tentative":
            last = following(last)
            while last in taken:
                last = following(last)
            taken[last] = None
    return [*taken, last]


def hostile_steps(seed: int, count: int) -> Steps:
    """Reservations that begin repeatedly before long runs of open ids, holes in these, and the wrap."""
    chance = random.Random(seed)
    steps: Steps = [("addx", 0)] * count
    starts = [0, 1, 40, LAST - 30, -40, FIRST + 5]
    for _ in range(count):
        luck = chance.random()
        if luck < 0.2:
            steps.append(("save_xid", chance.choice(starts)))
        elif luck < 0.3:
            steps.append(("confirm_remove", chance.choice(starts) + chance.randrange(200)))
        steps.append(("remove_tentative", 0))
    return [(op, (number + 2**31) % 2**32 - 2**31) for op, number in steps]


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("seed", range(5))
def test_hostile_reservations_get_the_expected_ids(twin: Any, seed: int) -> None:
    steps = hostile_steps(seed, 50 * MOST_STEPS)
    assert open_ids(twin, *as_turns(steps)) == by_hand(steps)
    COUNTS.add("hostile inputs", 1, "kestrel")


@pytest.mark.parametrize("twin", TWINS)
def test_reservations_starting_at_one_id_do_not_rescan_all_others(twin: Any) -> None:
    count = 40_000 if twin is rules.Replay else 500_000  # with a quadratic search, that would take forever
    kinds, numbers, _ = as_turns([("addx", 0), ("save_xid", -5), ("remove_tentative", 0)])
    found = open_ids(twin, kinds * count, numbers * count, array("q", range(0, 90 * count, 30)))
    assert found[:6] == [-4, -3, -2, -1, 1, 2]
    assert found[-2:] == [count - 4] * 2
    COUNTS.add("hostile inputs", 1, "kestrel")
