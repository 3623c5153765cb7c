"""Reading split by split returns the whole journal, for any size of splits and any damage."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage, Mode
from logwright.core.read.splits import Split, Times, pack
from logwright.errors import DamagedJournal, NotFound
from logwright.sej import Message, Reader, ShardedReader, ShardedWriter, Writer
from logwright.sej.bytes import codec, kernel
from logwright.sej.bytes.layout import INDEX_DIRECTORY
from logwright.sej.files.index import STRIDE_BYTES
from logwright.sej.tables.splits import SPLITS

GOLDEN = Path(__file__).parents[1] / "golden" / "sej"
CASES = sorted(case.parent.name for case in GOLDEN.glob("*/sej"))


def read(reader: Reader | ShardedReader, parts: list[Split], mode: Mode) -> Iterator[Message | Damage]:
    for split in parts:
        for item in SPLITS.chunks(reader, split, mode):
            if isinstance(item, Damage):
                yield item
            else:
                assert split.start <= item.first_offset
                assert item.first_offset + item.count <= split.stop
                yield from kernel.messages(item.data, item.start, item.stop, item.count)


def make(directory: Path, count: int, *, segment_size: int = 1 << 30, value_bytes: int = 2000) -> Reader:
    dice = random.Random(count)
    with Writer(directory, segment_size=segment_size) as writer:
        for number in range(count):
            writer.append(dice.randbytes(dice.randrange(value_bytes)), b"%d" % number, timestamp=number)
    return Reader(directory)


@pytest.mark.parametrize("mode", ["permissive", "dropmalformed"])
@pytest.mark.parametrize("case", CASES)
def test_every_golden_journal_is_the_sum_of_its_splits(case: str, mode: Mode) -> None:
    reader = Reader(GOLDEN / case / "sej")
    for target_bytes in (1, 100, 5000, 1 << 30):
        assert list(read(reader, SPLITS.plan(reader, target_bytes), mode)) == list(reader.messages(mode=mode))


@pytest.mark.parametrize("count", [30, 300])
def test_damage_at_the_end_that_is_not_a_torn_tail_is_in_the_last_split(tmp_path: Path, count: int) -> None:
    reader = make(tmp_path / "journal", count)
    path = tmp_path / "journal" / "jnl" / "0000000000000000.jnl"
    whole = path.read_bytes()
    middle = len(whole) // 2
    for data in (
        whole + b"noise" + whole,
        whole[:middle] + b"noise" + whole[middle:] + b"noise" + whole,
        b"text, and no segment\n" * 30,
    ):
        path.write_bytes(data)
        for target_bytes in (1, 5000, 1 << 30):
            found = list(read(reader, SPLITS.plan(reader, target_bytes), "permissive"))
            assert found == list(reader.messages(mode="permissive"))
            assert isinstance(found[-1], Damage)
            assert (found[-1].kind, found[-1].end) == ("malformed", len(data))


@pytest.mark.parametrize("indexed", [True, False])
def test_large_file_is_split_at_messages_with_the_requested_distance(tmp_path: Path, indexed: bool) -> None:
    reader = make(tmp_path / "journal", 3000)
    if not indexed:
        shutil.rmtree(tmp_path / "journal" / INDEX_DIRECTORY)
    size = (tmp_path / "journal" / "jnl" / "0000000000000000.jnl").stat().st_size
    target_bytes = 600_000
    parts = SPLITS.plan(reader, target_bytes)
    assert len(parts) > 3
    assert all(target_bytes <= part.bytes < target_bytes + 2 * STRIDE_BYTES for part in parts[:-1])
    assert sum(part.bytes for part in parts) == size
    assert [part.stop for part in parts[:-1]] == [part.start for part in parts[1:]]
    assert list(read(reader, parts, "failfast")) == list(reader)


@pytest.mark.parametrize("seed", range(8))
def test_range_of_offsets_with_damage_equals_that_of_a_reader(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    reader = make(tmp_path / "journal", 1200, segment_size=dice.choice([1 << 30, 300_000]))
    for path in sorted((tmp_path / "journal" / "jnl").glob("*.jnl")):
        data = bytearray(path.read_bytes())
        for _ in range(dice.randrange(4)):
            at = dice.randrange(max(1, len(data)))
            data[at : at + 30] = dice.randbytes(len(data[at : at + 30]))
        path.write_bytes(data)
    for target_bytes in (20_000, 400_000):
        parts = SPLITS.plan(reader, target_bytes)
        whole = [item for item in reader.messages(mode="dropmalformed") if isinstance(item, Message)]
        assert list(read(reader, parts, "dropmalformed")) == whole
        start, stop = sorted((dice.randrange(1200), dice.randrange(1200)))
        some = list(read(reader, SPLITS.plan(reader, target_bytes, start, stop), "dropmalformed"))
        assert some == [message for message in whole if start <= message.offset < stop]


def wandering(directory: Path, dice: random.Random, count: int, segment_size: int) -> list[Message]:
    """A journal whose clock mostly advances, sometimes jumps back or far ahead, and sometimes is not read."""
    now = dice.randrange(-(10**6), 10**6)
    with Writer(directory, segment_size=segment_size) as writer:
        for number in range(count):
            now += dice.randrange(1000)
            if dice.random() < 0.002:
                now += dice.randrange(-300_000, 300_000)
            stamp = None if dice.random() < 0.1 or 200 < number < 700 else now - dice.randrange(50)
            writer.append(dice.randbytes(dice.randrange(4000)), timestamp=stamp)
    return [item for item in Reader(directory).messages() if isinstance(item, Message)]


@pytest.mark.parametrize("seed", range(6))
def test_all_messages_of_a_time_are_in_the_selected_splits(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    messages = wandering(tmp_path / "journal", dice, 2500, dice.choice([1 << 30, 700_000, 1 << 20]))
    reader = Reader(tmp_path / "journal")
    for name in dice.sample(sorted((tmp_path / "journal" / INDEX_DIRECTORY).glob("*.idx")), 1) if seed % 2 else []:
        name.unlink() if dice.random() < 0.5 else name.write_bytes(name.read_bytes()[: dice.randrange(400)])
    stamps = sorted(message.timestamp for message in messages if message.timestamp is not None)
    for _ in range(25):
        earliest, latest = sorted((dice.choice(stamps), dice.choice(stamps)))
        times = Times(dice.choice([earliest, None]), dice.choice([latest, None]))
        start = dice.choice([None, dice.randrange(2500)])
        parts = SPLITS.plan(reader, dice.choice([20_000, 400_000]), start, times=times)
        found = [item for item in read(reader, parts, "failfast") if isinstance(item, Message)]
        assert [message.offset for message in found] == sorted({message.offset for message in found})

        def is_meant(message: Message, times: Times = times, start: int | None = start) -> bool:
            stamp = message.timestamp
            return stamp is not None and times.reach(stamp, stamp) and message.offset >= (start or 0)

        assert list(filter(is_meant, found)) == list(filter(is_meant, messages))


def test_one_hour_of_a_hundred_reads_few_bytes(tmp_path: Path) -> None:
    count, size = 12_000, 2000
    with Writer(tmp_path, segment_size=5 << 20) as writer:
        for number in range(count):
            writer.append(bytes(size), timestamp=number)
    reader = Reader(tmp_path)
    for times in (Times(5000, 5119), Times(None, 119), Times(count - 120, None)):
        parts = SPLITS.plan(reader, times=times)
        assert sum(part.bytes for part in parts) <= 120 * (size + 26) + 3 * STRIDE_BYTES
    for times in (Times(count, None), Times(None, -1)):  # only the part without entries is scanned
        assert sum(part.bytes for part in SPLITS.plan(reader, times=times)) <= 3 * STRIDE_BYTES


def test_index_of_another_file_prunes_nothing(tmp_path: Path) -> None:
    """The segment was replaced: the times in the index are those of other messages."""
    for name, first in (("one", 0), ("other", 10**9)):
        with Writer(tmp_path / name) as writer:
            for number in range(1000):
                writer.append(bytes(2000), timestamp=first + number)
    segment = "jnl/0000000000000000.jnl"
    shutil.copy(tmp_path / "other" / segment, tmp_path / "one" / segment)
    reader = Reader(tmp_path / "one")
    parts = SPLITS.plan(reader, times=Times(10**9 + 500, 10**9 + 500))
    assert 500 in [message.offset for message in read(reader, parts, "failfast") if isinstance(message, Message)]


def test_messages_appended_after_the_plan_are_in_no_split(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", 50)
    parts = SPLITS.plan(reader, 10_000)
    with Writer(tmp_path / "journal") as writer:
        writer.append(b"later")
    assert [item.offset for item in read(reader, parts, "failfast") if isinstance(item, Message)] == list(range(50))


def test_missing_segment_is_an_error_that_names_its_offsets(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", 100, segment_size=20_000)
    parts = SPLITS.plan(reader)
    (tmp_path / "journal" / parts[0].file).unlink()
    with pytest.raises(NotFound, match=rf"messages 0 to {parts[0].stop - 1} were in it"):
        list(read(reader, parts, "permissive"))


def test_gap_between_segments_is_reported_by_the_following_split(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", 100, segment_size=20_000)
    (tmp_path / "journal" / reader.segments()[1].name).unlink()
    parts = SPLITS.plan(reader)
    assert [part.before is None for part in parts].count(False) == 1
    with pytest.raises(DamagedJournal, match="was expected"):
        list(read(reader, parts, "failfast"))
    assert list(read(reader, parts, "permissive")) == list(reader.messages(mode="permissive"))


def test_wrong_position_is_corrected_by_the_offset(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", 100)
    parts = [replace(part, position=part.position + 7) for part in SPLITS.plan(reader, 10_000)]
    assert list(read(reader, parts, "failfast")) == list(reader)


def test_shards_are_split_one_by_one(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root", bit=2) as writer:
        for number in range(400):
            writer.append(b"v" * 100, b"%d" % number)
    reader = ShardedReader(tmp_path / "root")
    parts = SPLITS.plan(reader, 2000)
    assert {part.part for part in parts} == {"2.000", "2.001", "2.002", "2.003"}
    keys = [message.key for message in read(reader, parts, "failfast") if isinstance(message, Message)]
    assert sorted(keys) == sorted(b"%d" % number for number in range(400))
    with pytest.raises(NotFound, match=r"the shard 2\.009 is gone"):
        list(read(reader, [replace(parts[0], part="2.009")], "failfast"))


def test_bytes_after_the_last_message_of_a_finished_segment_are_reported_once(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", 100, segment_size=20_000)
    first, second = reader.segments()[:2]
    with first.path.open("ab") as file:
        file.write(b"noise that is no message")
    expected = list(reader.messages(mode="permissive"))
    assert len([item for item in expected if isinstance(item, Damage)]) == 1
    assert list(read(reader, SPLITS.plan(reader, 1000), "permissive")) == expected
    border = second.first_offset
    for cut in (border - 1, border, border + 1):
        batches = [SPLITS.plan(reader, 1000, 0, cut), SPLITS.plan(reader, 1000, cut, resumed=True)]
        assert [item for batch in batches for item in read(reader, batch, "permissive")] == expected


# --- for streams ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_successive_batches_deliver_every_message_and_damage_once(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    reader = make(tmp_path / "journal", 1200, segment_size=dice.choice([1 << 30, 300_000]))
    for path in sorted((tmp_path / "journal" / "jnl").glob("*.jnl")):
        data = bytearray(path.read_bytes())
        for _ in range(dice.randrange(1, 5)):
            at = dice.randrange(max(1, len(data)))
            data[at : at + 30] = dice.randbytes(len(data[at : at + 30]))
        path.write_bytes(data)
    if dice.random() < 0.5:
        shutil.rmtree(tmp_path / "journal" / INDEX_DIRECTORY)
    first, end = SPLITS.extent(reader)[""]
    expected = list(reader.messages(mode="permissive"))
    assert end == max(item.offset for item in expected if isinstance(item, Message)) + 1
    for step in (1 if seed == 0 else 7, 100):
        found = []
        for start in range(first, end, step):
            planned = SPLITS.plan(reader, 50_000, {"": start}, {"": min(end, start + step)}, resumed=True)
            found += list(read(reader, planned, "permissive"))
        torn = {"torn_tail"}
        assert [item for item in found if not isinstance(item, Damage) or item.kind not in torn] == [
            item for item in expected if not isinstance(item, Damage) or item.kind not in torn
        ]


def test_damage_that_hides_the_first_requested_message_is_reported(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", 100)
    places = [item for item in reader.scan() if not isinstance(item, Damage)]
    path = tmp_path / "journal" / places[0].file
    data = bytearray(path.read_bytes())
    for place in places[48:53]:
        data[place.span.start : place.span.end] = b"\xff" * place.span.size
    path.write_bytes(data)
    asked = list(read(reader, SPLITS.plan(reader, 1000, 50), "permissive"))
    assert isinstance(asked[0], Damage)
    assert (asked[0].start, asked[0].end) == (places[48].span.start, places[52].span.end)
    assert [item.offset for item in asked[1:] if isinstance(item, Message)] == list(range(53, 100))
    assert list(read(reader, SPLITS.plan(reader, 1000, 50, resumed=True), "failfast")) == asked[1:]


@pytest.mark.parametrize("size", [1, 10, 30, 500, 1010])
def test_message_being_written_is_not_counted(tmp_path: Path, size: int) -> None:
    reader = make(tmp_path / "journal", 20)
    with Writer(tmp_path / "other") as writer:
        for _ in range(21):
            writer.append(b"x" * 1000)
    whole = (tmp_path / "other" / "jnl" / "0000000000000000.jnl").read_bytes()
    path = tmp_path / "journal" / reader.segments()[0].name
    before = path.read_bytes()
    path.write_bytes(before + whole[-len(whole) // 21 :][:size])
    assert SPLITS.extent(reader) == {"": (0, 20)}
    path.write_bytes(before + whole[-len(whole) // 21 :])
    assert SPLITS.extent(reader) == {"": (0, 21)}


def test_messages_in_the_value_of_an_unfinished_message_are_not_counted(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", 20)
    with Writer(tmp_path / "inner") as writer:
        for number in range(60):
            writer.append(b"inner", b"%d" % number)
    inner = (tmp_path / "inner" / "jnl" / "0000000000000000.jnl").read_bytes()
    with Writer(tmp_path / "journal") as writer:
        writer.append(inner)
    path = tmp_path / "journal" / reader.segments()[0].name
    whole = path.read_bytes()
    for missing in (1, 3, 4, 5, 100):
        path.write_bytes(whole[:-missing])
        assert SPLITS.extent(reader) == {"": (0, 20)}, missing
    path.write_bytes(whole)
    assert SPLITS.extent(reader) == {"": (0, 21)}


def with_inner(directory: Path, inner: bytes) -> tuple[Reader, Path, bytes]:
    """A journal of 20 messages and one more with these bytes as its value; its file, and the contents."""
    reader = make(directory, 20)
    with Writer(directory) as writer:
        writer.append(inner)
    path = directory / reader.segments()[0].name
    return reader, path, path.read_bytes()


@pytest.mark.parametrize("first", [20, 21])
def test_value_that_begins_with_messages_is_waited_for(tmp_path: Path, first: int) -> None:
    inner = b"".join(codec.encode(Message(first + number, 1, 0, b"", b"inner")) for number in range(40))
    reader, path, whole = with_inner(tmp_path / "journal", inner)
    for missing in (1, 4, 5, 100):
        path.write_bytes(whole[:-missing])
        assert SPLITS.extent(reader) == {"": (0, 20)}, missing


@pytest.mark.parametrize("following", [1, 3, 66])
@pytest.mark.parametrize("torn", [b"", b"\0\0\0"])
@pytest.mark.parametrize("indexed", [True, False])
def test_messages_after_an_oversized_record_are_counted(
    tmp_path: Path, following: int, torn: bytes, indexed: bool
) -> None:
    with Writer(tmp_path / "journal") as writer:
        for number in range(34 + following):
            writer.append(b"%d" % number, b"k")
    if not indexed:
        shutil.rmtree(tmp_path / "journal" / INDEX_DIRECTORY)
    reader = Reader(tmp_path / "journal")
    bad = [item for item in reader.scan() if not isinstance(item, Damage)][33]
    path = tmp_path / "journal" / bad.file
    data = bytearray(path.read_bytes())
    data[bad.span.start + 20 : bad.span.end] = b"\xff" * (bad.span.size - 20)  # all but the first byte of a value_size
    path.write_bytes(data + torn)
    assert SPLITS.extent(reader) == {"": (0, 34 + following)}
    found = list(read(reader, SPLITS.plan(reader, 500, 20, 34 + following, resumed=True), "permissive"))
    assert [item.offset for item in found if isinstance(item, Message)] == [*range(20, 33), *range(34, 34 + following)]
    damages = [(item.start, item.end) for item in found if isinstance(item, Damage) and item.kind != "torn_tail"]
    assert damages == [(bad.span.start, bad.span.end)]


def test_messages_after_one_that_was_begun_twice_are_counted(tmp_path: Path) -> None:
    reader = make(tmp_path / "journal", 20)
    path = tmp_path / "journal" / reader.segments()[0].name
    begun = codec.encode(Message(20, 1, 0, b"", bytes(5000)))[:100]
    following = b"".join(codec.encode(Message(20 + number, 1, 0, b"", b"again")) for number in range(30))
    path.write_bytes(path.read_bytes() + begun + following)
    assert SPLITS.extent(reader) == {"": (0, 50)}


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("segment_size", [1 << 30, 200_000])
def test_advance_by_bytes_reaches_the_expected_offset(tmp_path: Path, segment_size: int, indexed: bool) -> None:
    reader = make(tmp_path / "journal", 1000, segment_size=segment_size)
    if not indexed:
        shutil.rmtree(tmp_path / "journal" / INDEX_DIRECTORY)
    sizes = [item.span.size for item in reader.scan() if not isinstance(item, Damage)]
    dice = random.Random(segment_size)
    for _ in range(60):
        start, stop = sorted(dice.sample(range(1001), 2))
        max_bytes = dice.choice([0, 1, dice.randrange(5000), dice.randrange(2_000_000)])
        expected, used = start + 1, sizes[start]
        while expected < stop and used + sizes[expected] <= max_bytes:
            used += sizes[expected]
            expected += 1
        assert SPLITS.reach(reader, "", start, stop, max_bytes) == (expected, used)


def test_extent_covers_every_shard_and_a_plan_the_named_ones(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root", bit=1) as writer:
        for number in range(50):
            writer.append(b"v", b"%d" % number)
    reader = ShardedReader(tmp_path / "root")
    counts = {shard.name: reader.open(shard).count() for shard in reader.shards()}
    assert SPLITS.extent(reader) == {name: (0, count) for name, count in counts.items()}
    planned = SPLITS.plan(reader, start={"1.001": 3}, stop={"1.001": 5})
    assert [(split.part, split.start, split.stop) for split in planned] == [("1.001", 3, 5)]
    assert SPLITS.reach(reader, "1.001", 3, 5, 1 << 20)[0] == 5
    (tmp_path / "empty" / "jnl").mkdir(parents=True)
    assert SPLITS.extent(Reader(tmp_path / "empty")) == {"": (0, 0)}


def test_split_can_be_pickled() -> None:
    split = Split("jnl/0000000000000000.jnl", 10, 1, 5, 400, "2.001")
    assert pickle.loads(pickle.dumps(split)) == split


def test_small_splits_are_packed_together_in_order() -> None:
    parts = [Split("file", 0, number, number + 1, size) for number, size in enumerate([10, 10, 90, 5, 100, 1, 1])]
    groups = pack(parts, 100, lambda part: part.bytes)
    assert [[part.bytes for part in group] for group in groups] == [[10, 10], [90, 5], [100], [1, 1]]
    assert [part for group in groups for part in group] == parts
    assert pack([], 100, len) == []
    assert pack([0, 0, 101], 100, int) == [[0, 0], [101]], "what has no bytes is read too"
