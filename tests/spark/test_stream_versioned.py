"""A stream of stores returns each change once, whatever is rotated, restarted and removed meanwhile."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType

from logwright.core.times import shown_time
from logwright.errors import Gap, HistoryUnavailable
from logwright.spark.schemas import spark_schema
from logwright.spark.source import JournalReader
from logwright.spark.stream import JournalStream
from logwright.versioned import Retention, VersionedKVStore
from tests.spark import streams
from tests.spark.streams import following, read_batch
from tests.versioned.stores import Clock, Renamed, journal

Change = tuple[str, str, str | None]
"""Store, key, and value as JSON; None for a deletion."""
WAIT_SECONDS = 240


stream_of = partial(streams.stream_of, "versioned")


def changes_of(stream: JournalStream, start: dict[str, Any], end: dict[str, Any]) -> list[Change]:
    """The contents of one batch."""
    rows = (row for batch in read_batch(stream, start, end) for row in batch.to_pylist())
    return [(row["store"], row["k"], None if row["deleted"] else row["o"]) for row in rows]


class Life:
    """Stores that are written to and rotated at random, and every change, by store."""

    def __init__(self, directory: Path, dice: random.Random) -> None:
        self.directory = directory
        self.dice = dice
        self.written: dict[str, list[Change]] = {}
        self._number = 0

    def make_changes(self, name: str, changes: int, **options: Any) -> None:
        made = self.written.setdefault(name, [])
        # A clock that stands still half of the time: times do not distinguish changes.
        times = (10**9 + (self._number + number) // 2 for number in range(10**6))
        with VersionedKVStore(self.directory, name, clock=Clock(times=times), background=False, **options) as store:
            for _ in range(changes):
                self._number += 1
                key = self.dice.choice("abcde")
                if key in store and self.dice.random() < 0.25:
                    store.remove(key)
                    made.append((name, key, None))
                else:
                    store.insert(key, self._number)
                    made.append((name, key, str(self._number)))
                if self.dice.random() < 0.15:
                    store.rotate()


@pytest.mark.parametrize("seed", range(4))
def test_rotation_between_triggers_delivers_every_change_once(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    options = dice.choice([{}, {"maxRecordsPerTrigger": "7"}, {"maxBytesPerTrigger": "300"}])
    life = Life(tmp_path / "stores", dice)
    life.make_changes("first", 5)
    stream = stream_of(tmp_path / "stores", splitBytes="200", **options)
    offset = json.loads(json.dumps(stream.initialOffset()))
    found: list[Change] = []

    def take(end: dict[str, Any]) -> None:
        changes = changes_of(stream, offset, end)
        if dice.random() < 0.3:  # Spark repeats a request that a crash may have kept from being committed
            life.make_changes("first", 3)
            assert changes_of(stream_of(tmp_path / "stores"), offset, end) == changes
        found.extend(changes)

    for step in range(12):
        for name in ("first", "second", "third")[: 1 + step // 4]:  # stores that are created later join
            life.make_changes(name, dice.randrange(12))
        if dice.random() < 0.3:
            stream = stream_of(tmp_path / "stores", splitBytes="200", **options)
        end = following(stream, offset)
        take(end)
        offset = end
    while (end := following(stream, offset)) != offset:
        take(end)
        offset = end
    assert {name: [change for change in found if change[0] == name] for name in life.written} == life.written
    assert len(list((tmp_path / "stores").glob("*.zz"))) > 10


def test_record_limit_counts_changes_and_not_copies(tmp_path: Path) -> None:
    with VersionedKVStore(tmp_path / "stores", "cars", clock=Clock(), background=False) as store:
        for number in range(30):
            store.insert(f"k{number % 12}", number)
            if number % 10 == 9:
                store.rotate()
    stream = stream_of(tmp_path / "stores", maxRecordsPerTrigger="8")
    offset = stream.initialOffset()
    counts = []
    while (end := following(stream, offset)) != offset:
        counts.append(len(changes_of(stream, offset, end)))
        offset = end
    assert [count for count in counts if count] == [8, 8, 8, 6]


def test_only_removal_of_unread_archives_is_a_loss(tmp_path: Path) -> None:
    clock = Clock()
    with VersionedKVStore(tmp_path / "stores", "cars", clock=clock, background=False) as store:
        for number in range(3):
            store.insert(f"k{number}", number)
            store.rotate()
        store.insert("k3", 3)
    first = stream_of(tmp_path / "stores")
    offset = following(first, first.initialOffset())
    assert len(changes_of(first, first.initialOffset(), offset)) == 4
    keep_one = Retention(max_archives=1)
    with VersionedKVStore(tmp_path / "stores", "cars", clock=clock, background=False, retention=keep_one) as store:
        store.insert("k4", 4)
        store.rotate()  # the old archives that were read are gone; the archive with the position of the stream is there
        store.remove("k0")
    assert len(list((tmp_path / "stores").glob("*.zz"))) == 1
    end = following(stream_of(tmp_path / "stores"), offset)
    assert changes_of(stream_of(tmp_path / "stores"), offset, end) == [("cars", "k4", "4"), ("cars", "k0", None)]

    with VersionedKVStore(tmp_path / "stores", "cars", clock=clock, background=False, retention=keep_one) as store:
        for number in range(5, 8):
            store.insert(f"k{number}", number)
            store.rotate()
        store.insert("k8", 8)
    with pytest.raises(HistoryUnavailable, match=r"stores/cars: records \d+ to \d+ were removed before they were read"):
        following(stream_of(tmp_path / "stores"), end)
    going_on = stream_of(tmp_path / "stores", failOnDataLoss="false")
    last = following(going_on, end)
    state = {(store, key): value for store, key, value in changes_of(going_on, end, last)}
    assert state == {("cars", f"k{number}"): str(number) for number in range(1, 9)}, (
        "the first journal that is kept begins with the state of its time"
    )
    assert following(stream_of(tmp_path / "stores"), last) == last


def test_stream_starting_at_a_time_starts_with_a_change(tmp_path: Path) -> None:
    with VersionedKVStore(tmp_path / "stores", "cars", clock=Clock(1000), background=False) as store:
        times = []
        for number in range(12):
            times.append(store.insert(f"k{number % 3}", number))
            if number % 4 == 3:
                store.rotate()
    for number in range(12):
        stream = stream_of(tmp_path / "stores", startingTimestamp=str(times[number]))
        changes = changes_of(stream, stream.initialOffset(), following(stream, stream.initialOffset()))
        assert [value for _, _, value in changes] == [str(one) for one in range(number, 12)]
    latest = stream_of(tmp_path / "stores", startingOffsets="latest")
    assert following(latest, latest.initialOffset()) == latest.initialOffset()


def test_each_change_is_delivered_once_when_an_archive_is_renamed_and_removed(tmp_path: Path) -> None:
    renamed = Renamed(tmp_path / "stores")
    offset = stream_of(tmp_path / "stores", mode="dropmalformed").initialOffset()
    found: list[list[Change]] = []

    def read_next() -> None:
        nonlocal offset
        stream = stream_of(tmp_path / "stores", mode="dropmalformed")
        end = following(stream, offset)
        found.append(changes_of(stream, offset, end))
        assert changes_of(stream_of(tmp_path / "stores", mode="dropmalformed"), offset, end) == found[-1]
        offset = end

    read_next()
    renamed.insert("d", 4)
    assert (tmp_path / "stores" / "cars.jrn.t2001.zz").exists()
    read_next()
    renamed.remove_archives()
    renamed.insert("e", 5)
    read_next()
    assert [key for _, key, _ in found[0]] == ["a", "b", "c"]
    assert found[1:] == [[("cars", "d", "4")], [("cars", "e", "5")]]
    sequences = {row["sequence"] for row in rows_of(tmp_path / "stores")}
    assert sequences == {2000}, "when the journal became the active one, whatever its neighbours are called"


def test_renamed_archive_is_still_available(tmp_path: Path) -> None:
    renamed = Renamed(tmp_path / "stores")
    stream = stream_of(tmp_path / "stores", mode="dropmalformed")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    renamed.insert("d", 4)
    changes = changes_of(stream, start, following(stream, start))
    assert [key for _, key, _ in changes] == ["a", "b", "c"], "what came later is for another run"


def rows_of(path: Path) -> list[dict[str, Any]]:
    reader = JournalReader(spark_schema(None), {"path": str(path)}, None)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_store_rotated_with_a_stopped_clock_delivers_each_change_once(tmp_path: Path) -> None:
    offset: dict[str, Any] | None = None
    found: list[Change] = []
    with VersionedKVStore(tmp_path / "stores", "cars", clock=lambda: 1000, background=False) as store:
        for number in range(8):
            store.insert("abc"[number % 3], number)
            if number % 2 == 0:
                stream = stream_of(tmp_path / "stores")
                offset = offset or stream.initialOffset()
                end = following(stream, offset)
                found += changes_of(stream, offset, end)
                offset = end
            if number in (1, 4, 5):
                store.rotate()
    assert [value for _, _, value in found] == [str(number) for number in range(7)]


def test_offsets_without_marks_are_trusted(tmp_path: Path) -> None:
    """Like those of older checkpoints without marks, and those that people write."""
    with VersionedKVStore(tmp_path / "stores", "cars", clock=Clock(), background=False) as store:
        for number in range(3):
            store.insert(f"k{number}", number)
        stream = stream_of(tmp_path / "stores")
        end = following(stream, stream.initialOffset())
        assert end["stores"]["cars"]["mark"]
        plain = {"stores": {"cars": end["stores"]["cars"]["next"]}}
        store.rotate()
        store.insert("k3", 3)
        again = stream_of(tmp_path / "stores")
        assert changes_of(again, plain, following(again, plain)) == [("cars", "k3", "3")]


def test_truncated_journal_is_reported_and_read_again(tmp_path: Path) -> None:
    directory = tmp_path / "stores"
    directory.mkdir()
    entries: list[tuple[int, str, Any]] = [(1000 + number, f"k{number}", number) for number in range(5)]
    (directory / "cars.jrn").write_bytes(journal(entries, 1000, 4096))
    first = stream_of(directory)
    offset = following(first, first.initialOffset())
    other = [*entries[:3], (1003, "other", 3), (1004, "other", 4), (1005, "other", 5)]
    (directory / "cars.jrn").write_bytes(journal(other, 1000, 4096))
    with pytest.raises(HistoryUnavailable, match=r"stores/cars: cars.jrn is not what it was before the position \d+"):
        following(stream_of(directory), offset)
    going_on = stream_of(directory, failOnDataLoss="false")
    end = following(going_on, offset)
    assert len(changes_of(going_on, offset, end)) == 6
    assert following(stream_of(directory), end) == end


def test_stream_reports_a_missing_archive_once(tmp_path: Path) -> None:
    with VersionedKVStore(tmp_path / "stores", "cars", clock=Clock(), background=False) as store:
        store.insert("gone", 1)
        store.rotate()
        store.remove("gone")
        removed = store.rotate()
        store.insert("a", 2)
        store.rotate()
    (tmp_path / "stores" / f"cars.jrn.t{removed}.zz").unlink()
    schema = StructType().add("k", "string").add("_file", "string").add("_damage", "string")
    found = []
    options = {"path": str(tmp_path / "stores"), "mode": "permissive", "maxrecordspertrigger": "1"}
    stream = JournalStream(schema, options, "versioned")
    offset = stream.initialOffset()
    while (end := following(stream, offset)) != offset:
        for partition in stream.partitions(offset, end):
            found += [row for batch in stream.read(partition) for row in batch.to_pylist()]
        offset = end
    assert [row["k"] for row in found if row["_damage"] is None] == ["gone", "a"]
    (damage,) = [row for row in found if row["_damage"] is not None]
    assert damage["_damage"].startswith(
        f"gap: it begins at {shown_time(removed)}, and not with what was at the end of "
    )
    failing = stream_of(tmp_path / "stores")
    with pytest.raises(Gap, match="one is missing"):
        changes_of(failing, failing.initialOffset(), following(failing, failing.initialOffset()))


# --- on Spark ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _stopped(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stop every query after a failed test."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


def test_query_reads_available_data_across_rotations_and_resumes_from_its_checkpoint(
    spark: Any, tmp_path: Path
) -> None:
    batches: dict[int, list[Change]] = {}
    life = Life(tmp_path / "stores", random.Random(9))

    def sink(frame: Any, number: int) -> None:
        rows = frame.collect()
        if number == 1:
            life.make_changes("cars", 30)  # rotated inside of the batch; the rows are read again below
            assert frame.count() == len(rows)
        batches[number] = [(row.store, row.k, None if row.deleted else row.o) for row in rows]

    def run(**options: str) -> None:
        frame = spark.readStream.format("versioned").options(**options).load(str(tmp_path / "stores"))
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_SECONDS), "it has not come to its end in time"

    life.make_changes("cars", 40)
    run(maxRecordsPerTrigger="25")
    assert [len(batches[number]) for number in sorted(batches)] == [25, 15]
    life.make_changes("cars", 20)
    life.make_changes("bikes", 20)
    run()
    found = [change for number in sorted(batches) for change in batches[number]]
    assert {name: [change for change in found if change[0] == name] for name in life.written} == life.written
    assert len(list((tmp_path / "stores").glob("*.zz"))) > 5

    life.make_changes("cars", 60, retention=Retention(max_archives=1))
    with pytest.raises(
        StreamingQueryException, match=r"stores/cars: records \d+ to \d+ were removed before they were read"
    ):
        run()
