"""A store that is changed in the middle of a call: the right value or a clear error, and never another key's value."""

from __future__ import annotations

import contextlib
import random
import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from logwright.core.bytes.outcome import Malformed
from logwright.errors import Closed, LogwrightError, WrongUse
from logwright.versioned import VersionedKVStore
from logwright.versioned.bytes.bonjson import decode, encode
from logwright.versioned.bytes.codec import ALL_COLUMNS, Columns
from logwright.versioned.bytes.kernel import Latest, columns, entries, pack, pack_entry, spans, walk
from logwright.versioned.model.kernel import Table
from tests.support.reentry import at_collections, in_threads, run_apart, while_bytes_change

KEYS = [f"key-{number}" for number in range(40)]


def value_of(key: str, version: int = 0) -> dict[str, Any]:
    return {"key": key, "version": version, "nested": [[key], {"more": [version, [key] * 3]}] * 4}


def check(key: str, value: Any) -> None:
    assert value == value_of(key, value["version"]), f"{key} has {value}"


@contextmanager
def undecoded() -> Iterator[VersionedKVStore]:
    """A store that was opened, and has decoded no value yet."""
    with tempfile.TemporaryDirectory() as directory:
        with VersionedKVStore(directory, "s", 1 << 22, background=False) as store:
            for key in KEYS:
                store.insert(key, value_of(key))
        with VersionedKVStore(directory, "s", 1 << 22, background=False) as store:
            yield store


def get_while_the_collector_changes_the_key() -> None:
    """The slot of the key is released while its value is decoded, and the next key gets it."""
    with undecoded() as store:
        model = dict.fromkeys(KEYS, 0)
        for number, key in enumerate(KEYS):
            turns = iter(range(1, 1000))

            def change(key: str = key, other: str = f"new-{number}", turns: Iterator[int] = turns) -> None:
                version = next(turns)
                if version % 3 == 1:
                    store.remove(key)
                    model.pop(key, None)
                    store.insert(other, value_of(other, version))
                    model[other] = version
                else:
                    store.insert(key, value_of(key, version))
                    model[key] = version

            with at_collections(change):
                for _ in range(5):
                    found = store.get(key)
                    if found is not None:
                        check(key, found)
        assert {key: value["version"] for key, value in store.items()} == model
        for key, value in store.items():
            check(key, value)


def get_with_timestamp_while_the_collector_changes_the_key() -> None:
    with undecoded() as store:
        for key in KEYS:
            written = {store.index[key].t: 0}

            def change(key: str = key, written: dict[int, int] = written) -> None:
                version = len(written)
                written[store.insert(key, value_of(key, version))] = version

            with at_collections(change):
                pairs = [store.get_with_timestamp(key) for _ in range(5)]
            for pair in pairs:
                assert pair is not None
                check(key, pair[0])
                assert written[pair[1]] == pair[0]["version"]


def items_while_the_collector_removes_and_rotates() -> None:
    """Slots that are no longer in the index do not move with the entries when the buffer is replaced."""
    with undecoded() as store:
        left = list(KEYS)

        def change() -> None:
            if left:
                store.remove(left.pop())
                table_moves_to_another_buffer(store)

        with at_collections(change):
            for key, value in store.pairs():
                check(key, value)


def table_moves_to_another_buffer(store: Table) -> None:
    """The effect of a rotation on the table: its entries move to another buffer and another position."""
    memory = bytearray(1 << 22)

    def put(position: int, data: bytes) -> None:
        memory[position : position + len(data)] = data

    moves = store.compact(4096, put)
    store.attach(memory, moves.end, moves)


def insert_while_the_collector_changes_the_value() -> None:
    """The values in memory are those that were written."""
    with tempfile.TemporaryDirectory() as directory:
        with VersionedKVStore(directory, "s", 1 << 22, background=False) as store:
            for number in range(200):
                value: dict[str, Any] = {"a": [{"b": [number] * 3}] * 3, "c": {"d": {"e": []}}, "f": [{}, {}]}

                turns = iter(range(8))  # otherwise a list that is being written would grow forever

                def change(value: dict[str, Any] = value, turns: Iterator[int] = turns) -> None:
                    if next(turns, None) is None:
                        return
                    value["a"] = []
                    value["c"].clear()
                    value["f"].append({"g": [1, 2, 3]})
                    value[str(len(value))] = {}

                with at_collections(change), contextlib.suppress(RuntimeError):  # the dictionary has changed
                    store.insert(str(number), value)
            kept = dict(store.items())
        with VersionedKVStore(directory, "s", 1 << 22, background=False) as store:
            assert dict(store.items()) == kept


def insert_keys_that_run_code() -> None:
    """A subclass of str with its own comparison and hash is not stored in the index."""

    class Key(str):
        __slots__ = ()

        def __str__(self) -> str:
            return self

        def __eq__(self, other: object) -> bool:
            raise AssertionError("the index compares this key")

        def __hash__(self) -> int:
            return 7

    with undecoded() as store:
        store.insert(Key("new"), value_of("new"))
        assert type(next(key for key, _ in store.items() if key == "new")) is str
        check("new", store.get("new"))


def threads_share_a_store() -> None:
    with undecoded() as store:

        def change(seed: int) -> Callable[[], None]:
            def act() -> None:
                chance = random.Random(seed)
                for version in range(600):
                    key = chance.choice(KEYS)
                    if version % 3:
                        store.insert(key, value_of(key, version))
                    else:
                        store.remove(key)
                    if version % 200 == 0:
                        store.rotate()

            return act

        def read() -> None:
            chance = random.Random(3)
            for number in range(1000):
                key = chance.choice(KEYS)
                found = store.get(key)
                if found is not None:
                    check(key, found)
                if number % 200 == 0:
                    for name, value in store.items():
                        check(name, value)

        in_threads(change(1), change(2), read, read)


def closing_in_the_middle() -> None:
    """A table whose buffer was released refuses calls; it does not read freed memory."""
    for number in range(30):
        with undecoded() as store:
            countdown = [number]

            def close(store: VersionedKVStore = store, countdown: list[int] = countdown) -> None:
                countdown[0] -= 1
                if countdown[0] < 0:
                    store.detach()

            with at_collections(close), contextlib.suppress(Closed):
                for key in KEYS:
                    check(key, store.get(key))
                list(store.pairs())


def a_table_without_a_buffer_refuses() -> None:
    table = Table()
    for call in (lambda: table.scan(0, 10, 0), lambda: table.compact(0, print)):
        try:
            call()
        except (WrongUse, AssertionError, NotImplementedError):
            continue
        if table.index:
            raise AssertionError("a table without a buffer was read")


def entries_taken_over_replace_what_was_decoded() -> None:
    with tempfile.TemporaryDirectory() as directory, VersionedKVStore(directory, "s") as store:
        entry = pack_entry(store.insert("a", [1]) + 1, "a", [2])
        store.append_packed(entry, [0, len(entry)])
        assert store.get("a") == [2]


def packed(count: int) -> bytes:
    return b"".join(pack_entry(1000 + number, f"key {number % 30}", value_of("k", number)) for number in range(count))


def the_last_entries_among_threads() -> None:
    """Entries are processed without the GIL: a call at the same time is refused."""
    data = packed(300) * 3
    latest = Latest()

    def add() -> None:
        for _ in range(5):
            with contextlib.suppress(WrongUse):
                latest.walk(data, 0, len(data))

    def ask() -> None:
        for _ in range(5):
            with contextlib.suppress(WrongUse):
                for value, _ in latest.state().values():
                    check("k", value)
            with contextlib.suppress(WrongUse):
                latest.columns(ALL_COLUMNS)

    in_threads(add, add, ask, ask)


def the_last_entries_asked_for_by_a_key_that_adds_some() -> None:
    data = packed(100)
    latest = Latest()
    latest.walk(data, 0, len(data))
    refused = []

    class Key(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            try:
                latest.walk(data, 0, len(data))
            except WrongUse:
                refused.append(other)
            return False

        def __hash__(self) -> int:
            return hash("key 1")

    values: dict[str, Any] = {Key("key 1"): 0}
    latest.fill(values, {})
    assert len(values) == 31
    assert all(value == 0 or value == value_of("k", value["version"]) for value in values.values())


def reading_bytes_that_change() -> None:
    count = 60
    sound = packed(count)

    def read(buffer: bytearray) -> None:
        walk(buffer, 0, len(buffer))
        for function in (columns, entries, spans):
            with contextlib.suppress(LogwrightError, Malformed, UnicodeDecodeError):
                function(buffer, 0, len(buffer), count)
        latest = Latest()
        latest.walk(buffer, 0, len(buffer))
        with contextlib.suppress(LogwrightError, Malformed, UnicodeDecodeError):
            latest.columns(ALL_COLUMNS)
        with contextlib.suppress(LogwrightError, Malformed, UnicodeDecodeError):
            latest.state()

    while_bytes_change(sound, read, LogwrightError, Malformed)


def writing_containers_that_change() -> None:
    """A document with the value, or an error; never a duplicate key."""

    class Changing(list[Any]):
        def __init__(self, change: Callable[[], object]) -> None:
            super().__init__([1])
            self.change = change

        def __iter__(self) -> Iterator[Any]:
            self.change()
            return iter([1])

    chance = random.Random(5)
    for _ in range(500):
        value: dict[str, Any] = {str(number): [number] for number in range(chance.randrange(1, 8))}
        numbers: list[Any] = [[number] for number in range(chance.randrange(1, 8))]

        def change(value: dict[str, Any] = value, numbers: list[Any] = numbers) -> None:
            for _ in range(chance.randrange(4)):
                key = str(chance.randrange(10))
                if value.pop(key, None) is None or chance.random() < 0.5:
                    value[key] = "changed"
                if numbers and chance.random() < 0.3:
                    numbers.pop()
                elif chance.random() < 0.3:
                    numbers.append("changed")

        value[str(chance.randrange(8))] = Changing(change)
        numbers.insert(chance.randrange(len(numbers)), Changing(change))
        for document in (value, numbers, {"numbers": numbers, "value": value}):
            try:
                written = encode(document)
            except RuntimeError:
                continue
            decode(written)  # refuses a duplicate key


def packing_columns_that_change() -> None:
    """Rows that need Python code may write to the columns."""

    def rows(count: int) -> Columns:
        values = b'{"a":1}' * (count - 1) + rb'"\u00e9"'
        made = Columns(count)
        made.timestamps = array("Q", range(count)).tobytes()
        made.keys, made.key_ends = b"k" * count, array("i", range(count + 1)).tobytes()
        made.values = values
        made.value_ends = array("i", [*range(0, 7 * count, 7), len(values)]).tobytes()
        return made

    assert len(pack(rows(20))[1]) == 21
    sound = rows(20)

    def read(buffer: bytearray) -> None:
        made = rows(20)
        made.value_ends = memoryview(buffer).cast("i")
        pack(made)

    while_bytes_change(bytes(sound.value_ends or b""), read, LogwrightError, Malformed)


SCENARIOS = [
    the_last_entries_among_threads,
    the_last_entries_asked_for_by_a_key_that_adds_some,
    writing_containers_that_change,
    entries_taken_over_replace_what_was_decoded,
    get_while_the_collector_changes_the_key,
    get_with_timestamp_while_the_collector_changes_the_key,
    items_while_the_collector_removes_and_rotates,
    insert_while_the_collector_changes_the_value,
    insert_keys_that_run_code,
    threads_share_a_store,
    closing_in_the_middle,
    a_table_without_a_buffer_refuses,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.__name__))
@pytest.mark.parametrize("pure", [False, True], ids=["compiled", "in_python"])
def test_store_changed_within_a_call_stays_correct(scenario: Callable[[], None], pure: bool) -> None:
    run_apart(scenario, pure=pure)


@pytest.mark.parametrize(
    "scenario", [reading_bytes_that_change, packing_columns_that_change], ids=lambda scenario: str(scenario.__name__)
)
def test_reentrant_calls_read_within_bounds(scenario: Callable[[], None]) -> None:
    run_apart(scenario)
