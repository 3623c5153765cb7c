"""Shards: their names, the distribution of messages, reading and following all of them, and failures in one."""

from __future__ import annotations

import base64
import errno
import threading
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as some

from logwright.core.bytes.outcome import Damage
from logwright.core.format import Located, detect, open_journal
from logwright.core.io.disk import REAL_DISK
from logwright.errors import (
    Closed,
    DamagedJournal,
    Locked,
    NotFound,
    Poisoned,
    StorageFailed,
    TooLarge,
    Truncated,
    UnknownFormat,
    WrongUse,
)
from logwright.sej.bytes.records import Message
from logwright.sej.files.reader import Reader
from logwright.sej.files.shard import ShardedReader, find_shards, parse_shard_name, shard_name, stable_hash
from logwright.sej.files.writer import Writer
from logwright.sej.model.shard_scanner import ShardedScanner
from logwright.sej.model.shard_writer import ShardedWriter
from tests.sej.samples import GOLDEN, golden_case, golden_lines, make_journal
from tests.support.simulated_disk import SimulatedDisk
from tests.support.threads import DEADLINE_SECONDS

ROOT = Path("/journal")
"""The path of the shards on a simulated disk."""
SHARD_CASES = ["shard_prefix", "shard_noprefix", "shard_bit10"]


def crc16(key: bytes) -> int:
    """The hash of the golden case `shard_prefix`."""
    crc = zlib.crc32(key)
    return (crc >> 16) ^ (crc & 0xFFFF)


def fnv16(key: bytes) -> int:
    """The hash of the other golden cases."""
    state = 0x811C9DC5
    for byte in key:
        state = (state ^ byte) * 0x01000193 % 2**32
    return (state >> 16) ^ (state & 0xFFFF)


def fill(root: Path, count: int = 100, **options: Any) -> None:
    """Append messages with 20 keys, the n-th with value n and timestamp n, to eight shards."""
    with ShardedWriter(root, "blue", 3, **options) as writer:
        for number in range(count):
            writer.append(str(number).encode(), key=f"key {number % 20}".encode(), timestamp=number)


def numbers(items: Any) -> list[int]:
    """The values of messages of `fill`, in order of the numbers."""
    return sorted(int(item.value) for item in items)


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("blue.3.000", ("blue", 3, 0)),
        ("blue.3.007", ("blue", 3, 7)),
        ("3.007", ("", 3, 7)),
        ("q_a-Z9.a.3ff", ("q_a-Z9", 10, 0x3FF)),
        ("1.1.001", ("1", 1, 1)),
        ("-.9.1ff", ("-", 9, 0x1FF)),
        ("blue", ("blue", 0, 0)),
        ("3", ("3", 0, 0)),
    ],
)
def test_name_round_trips(name: str, parsed: tuple[str, int, int]) -> None:
    assert parse_shard_name(name) == parsed
    assert shard_name(*parsed) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "blue.0.000",
        "blue.b.000",
        "blue.A.000",
        "blue.3.008",
        "blue.3.00",
        "blue.3.0000",
        "blue.3.00F",
        "blue.3.000\n",
        "blue.3.000.",
        ".3.000",
        "bl.ue.3.000",
        "blü.3.000",
        "blue 3.000",
        "../3.000",
        "blue\n",
        "blue.a.400",
    ],
)
def test_any_other_name_is_not_a_shard(name: str) -> None:
    assert parse_shard_name(name) is None


@given(some.from_regex(r"[a-zA-Z0-9_-]{0,12}", fullmatch=True), some.integers(0, 10), some.data())
def test_every_shard_has_its_own_name(prefix: str, bit: int, data: some.DataObject) -> None:
    index = data.draw(some.integers(0, 2**bit - 1))
    name = shard_name(prefix, bit, index)
    assert parse_shard_name(name) == ((prefix, bit, index) if name else None)


@pytest.mark.parametrize(
    ("prefix", "bit", "index"),
    [("a/b", 3, 0), ("..", 0, 0), ("a.b", 3, 0), ("a\n", 3, 0), ("a", -1, 0), ("a", 11, 0), ("a", 3, 8), ("a", 0, 1)],
)
def test_impossible_name_is_refused(prefix: str, bit: int, index: int, tmp_path: Path) -> None:
    with pytest.raises(WrongUse):
        shard_name(prefix, bit, index)
    if index == 0:
        with pytest.raises(WrongUse):
            ShardedWriter(tmp_path / "root", prefix, bit)
        assert not (tmp_path / "root").exists()


# --- the original's shards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHARD_CASES)
def test_shards_that_the_original_wrote_are_found_and_read(name: str) -> None:
    root, case = GOLDEN / name / "root", golden_case(name)
    assert [shard.name for shard in find_shards(REAL_DISK, root)] == case["dirs"]
    assert {(shard.prefix, shard.bit) for shard in find_shards(REAL_DISK, root)} == {
        (case["prefix"], case["shard_bit"])
    }
    with ShardedReader(root) as reader:
        found = [reader.as_json(item) for item in reader.scan() if isinstance(item, Located)]
    expected = [
        {
            "shard": line["dir"],
            "file": f"{line['dir']}/jnl/0000000000000000.jnl",
            "offset": line["offset"],
            "timestamp": line["timestamp_ns"],
            "type": line["type"],
            "key": line["key"],
            "value": line["value"],
        }
        for line in sorted(golden_lines(name), key=lambda line: (line["shard"], line["offset"]))
    ]
    assert [{field: item[field] for field in expected[0]} for item in found] == expected


@pytest.mark.parametrize("name", SHARD_CASES)
def test_our_writer_makes_the_same_files_as_the_original(name: str, tmp_path: Path) -> None:
    case = golden_case(name)
    hash = crc16 if name == "shard_prefix" else fnv16
    with ShardedWriter(tmp_path, case["prefix"], case["shard_bit"], lambda message: hash(message.key)) as writer:
        for line in golden_lines(name):
            key, value = base64.b64decode(line["key"]), base64.b64decode(line["value"])
            assert writer.shard_of(value, key) == line["dir"]
            assert writer.append(value, key, line["type"], line["timestamp_ns"]) == line["offset"]
    for path in (GOLDEN / name / "root").glob("*/jnl/*.jnl"):
        assert (tmp_path / path.relative_to(GOLDEN / name / "root")).read_bytes() == path.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == case["dirs"]


# --- writing --------------------------------------------------------------------------------------------------------


def test_default_hash_is_crc32_of_the_key_or_else_of_the_value() -> None:
    assert stable_hash(b"123456789", b"value") == 0xCBF43926
    assert stable_hash(b"", b"123456789") == 0xCBF43926
    assert stable_hash(memoryview(b""), bytearray(b"123456789")) == 0xCBF43926


def test_messages_of_a_key_are_in_one_shard_in_order(tmp_path: Path) -> None:
    fill(tmp_path, 200)
    shard_of: dict[bytes, str] = {}
    for shard in find_shards(REAL_DISK, tmp_path):
        messages = list(Reader(shard.path))
        assert [message.offset for message in messages] == list(range(len(messages)))
        for key in {message.key for message in messages}:
            assert key not in shard_of
            shard_of[key] = shard.name
            values = [int(message.value) for message in messages if message.key == key]
            assert values == sorted(values)
            assert shard.index == zlib.crc32(key) & 7
    assert len(shard_of) == 20


def test_shard_is_created_by_its_first_message(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root", "blue", 10, lambda message: int(message.value)) as writer:
        assert not (tmp_path / "root").exists()
        writer.append(b"5")
        writer.append(b"1029")
        writer.append(b"-1")
        assert list(writer.writers) == ["blue.a.005", "blue.a.3ff"]
        with pytest.raises(TooLarge):
            writer.append(b"7", key=bytes(128))
        with pytest.raises(WrongUse):
            writer.append(b"7", type=256)
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == ["blue.a.005", "blue.a.3ff"]


@pytest.mark.parametrize("prefix", ["", "blue"])
def test_without_bits_there_is_one_plain_journal(tmp_path: Path, prefix: str) -> None:
    with ShardedWriter(tmp_path, prefix) as writer:
        assert [writer.append(b"a"), writer.append(b"b", key=b"k")] == [0, 1]
    assert [message.value for message in Reader(tmp_path / prefix)] == [b"a", b"b"]
    with ShardedReader(tmp_path, prefix) as reader:
        places = [item for item in reader.scan() if isinstance(item, Located)]
        assert [(place.file, reader.as_json(place)["shard"]) for place in places] == [
            (f"{prefix}/jnl/0000000000000000.jnl".lstrip("/"), prefix)
        ] * 2


def test_hash_gets_the_message_as_written(tmp_path: Path) -> None:
    seen: list[Message] = []

    def by_type(message: Message) -> int:
        seen.append(message)
        return message.type

    with ShardedWriter(tmp_path, bit=2, hash=by_type) as writer:
        writer.append(b"value", b"key", 3, 17)
        writer.append(bytearray(b"now"), memoryview(b""), 1)
        writer.append(b"untimed", timestamp=None)
    assert seen[0] == Message(0, 17, 3, b"key", b"value")
    assert seen[1].timestamp == next(iter(Reader(tmp_path / "2.001"))).timestamp
    assert seen[2].timestamp is None
    assert [shard.index for shard in find_shards(REAL_DISK, tmp_path)] == [0, 1, 3]


def test_threads_share_a_writer(tmp_path: Path) -> None:
    def work(start: int) -> None:
        for number in range(start, start + 200):
            writer.append(str(number).encode(), key=str(number % 40).encode())

    with ShardedWriter(tmp_path, "blue", 3, sync="always") as writer:
        threads = [threading.Thread(target=work, args=(200 * number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert numbers(ShardedReader(tmp_path)) == list(range(1600)), "on the disk before it is closed"


def test_second_writer_of_a_shard_is_locked_out(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path, "blue", 1, lambda message: message.type) as one:
        one.append(b"one", type=0)
        with ShardedWriter(tmp_path, "blue", 1, lambda message: message.type) as other:
            other.append(b"other", type=1)
            with pytest.raises(Locked):
                other.append(b"other", type=0)
    assert sorted(message.value for message in ShardedReader(tmp_path)) == [b"one", b"other"]


def test_batch_is_distributed_like_single_messages(tmp_path: Path) -> None:
    keys = [f"key {number % 20}".encode() for number in range(100)]
    values = [str(number).encode() for number in range(100)]
    fill(tmp_path / "one by one")
    batch = pyarrow.record_batch(
        {"key": keys, "value": values, "timestamp": pyarrow.array(range(100), pyarrow.int64())}
    )
    with ShardedWriter(tmp_path / "batch", "blue", 3) as writer:
        assert writer.append_batch(batch.slice(0, 40)) == dict.fromkeys(writer.writers, 0)
        before = {name: shard.next_offset for name, shard in writer.writers.items()}
        assert writer.append_batch(pyarrow.Table.from_batches([batch.slice(40, 30), batch.slice(70, 30)])) == before
    assert list(ShardedReader(tmp_path / "batch")) == list(ShardedReader(tmp_path / "one by one"))


def test_batch_is_distributed_by_a_custom_hash(tmp_path: Path) -> None:
    batch = pyarrow.record_batch(
        {
            "value": ["a", "b", "c", "d"],
            "type": pyarrow.array([0, 1, 2, 1], pyarrow.uint8()),
            "timestamp": pyarrow.array([5, None, 7, 8], pyarrow.int64()),
        }
    )
    seen: list[Message] = []

    def by_type(message: Message) -> int:
        seen.append(message)
        return message.type

    with ShardedWriter(tmp_path, bit=2, hash=by_type) as writer:
        assert writer.append_batch(batch) == {"2.000": 0, "2.001": 0, "2.002": 0}
    assert [(m.timestamp, m.type, m.value) for m in seen] == [(5, 0, b"a"), (None, 1, b"b"), (7, 2, b"c"), (8, 1, b"d")]
    assert [message.value for message in Reader(tmp_path / "2.001")] == [b"b", b"d"]


def test_batch_that_cannot_be_written_writes_nothing_anywhere(tmp_path: Path) -> None:
    batch = pyarrow.record_batch({"key": [b"a", b"b", b"x" * 128], "value": [b"1", b"2", b"3"]})
    with ShardedWriter(tmp_path / "root", "blue", 3) as writer, pytest.raises(TooLarge):
        writer.append_batch(batch)
    assert not (tmp_path / "root").exists()


# --- all shards at once ---------------------------------------------------------------------------------------------


class BrokenShard:
    """A disk on which syncs of the files of one shard fail from some moment on; `failed` is set when one did."""

    def __init__(self, inner: SimulatedDisk, *shards: str) -> None:
        self.broken = False
        self.failed = threading.Event()
        self._inner = inner
        self._shards = set(shards)

    def open(self, path: Path, mode: Any) -> Any:
        file = self._inner.open(path, mode)
        return BrokenFile(self, file) if self._shards & set(path.parts) else file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class BrokenFile:
    def __init__(self, disk: BrokenShard, inner: Any) -> None:
        self._disk = disk
        self._inner = inner

    def sync(self) -> None:
        if self._disk.broken:
            self._disk.failed.set()
            raise StorageFailed("sync", self._inner.path, OSError(errno.EIO, "broken"))
        self._inner.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def writer_on(disk: Any, bit: int, **options: Any) -> ShardedWriter:
    """A writer whose shards are chosen by the message's type, with one message in each."""
    writer = ShardedWriter(ROOT, "blue", bit, lambda message: message.type, disk=disk, **options)
    for type in range(1 << bit):
        assert writer.append(b"first", type=type) == 0
    return writer


@pytest.mark.parametrize("action", [ShardedWriter.sync, ShardedWriter.close])
def test_sync_and_close_reach_every_shard_even_if_one_fails(
    simulated_disk: SimulatedDisk, action: Callable[[ShardedWriter], None]
) -> None:
    disk = BrokenShard(simulated_disk, "blue.3.002")
    writer = writer_on(disk, 3)
    disk.broken = True
    with pytest.raises(StorageFailed, match=r"blue\.3\.002"):
        action(writer)
    only_synced = next(iter(simulated_disk.crash_states(first=len(simulated_disk.operations), most=1, format="sej")))
    durable = [shard.index for shard in find_shards(only_synced, ROOT) if list(Reader(shard.path, disk=only_synced))]
    assert durable == [0, 1, 3, 4, 5, 6, 7]
    if action is ShardedWriter.sync:
        with pytest.raises(Poisoned):
            writer.append(b"second", type=2)
        assert writer.append(b"second", type=3) == 1, "the others continue"
    writer.close()
    with pytest.raises(Closed):
        writer.append(b"third", type=3)
    assert simulated_disk.open_files == 0


def test_several_failures_are_all_reported(simulated_disk: SimulatedDisk) -> None:
    disk = BrokenShard(simulated_disk, "blue.1.000", "blue.1.001")
    with writer_on(disk, 1) as writer:
        disk.broken = True
        with pytest.raises(StorageFailed, match=r"blue\.1\.000") as raised:
            writer.sync()
    assert any("blue.1.001" in note for note in raised.value.__notes__)


def test_interval_syncs_all_shards_and_raises_a_failure_at_the_end(simulated_disk: SimulatedDisk) -> None:
    disk = BrokenShard(simulated_disk, "blue.1.001")
    writer = writer_on(disk, 1, sync="interval(1)")
    disk.broken = True
    assert disk.failed.wait(DEADLINE_SECONDS)
    with pytest.raises(Poisoned):
        writer.sync()
    with pytest.raises(Poisoned):
        writer.append(b"second", type=1)
    writer.append(b"second", type=0)
    with pytest.raises(StorageFailed, match=r"blue\.1\.001"):
        writer.close()
    assert [message.value for message in Reader(ROOT / "blue.1.000", disk=simulated_disk)] == [b"first", b"second"]


def test_flush_writes_every_shard(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path, "blue", 3) as writer:
        for number in range(100):
            writer.append(str(number).encode(), key=str(number).encode())
        assert numbers(ShardedReader(tmp_path)) == []
        writer.flush()
        assert numbers(ShardedReader(tmp_path)) == list(range(100))


def test_closed_sharded_writer_refuses_messages(tmp_path: Path) -> None:
    writer = ShardedWriter(tmp_path, "blue", 3)
    writer.append(b"0")
    writer.close()
    writer.close()
    for action in (lambda: writer.append(b"0"), lambda: writer.append(b"12"), writer.flush, writer.sync):
        with pytest.raises(Closed):
            action()


# --- mixed bits -----------------------------------------------------------------------------------------------------


def test_root_that_mixes_bits_for_one_prefix_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    make_journal(tmp_path / "blue.4.00f", 1)
    reason = r"mixes shards of bit 3 \(blue\.3\.000\) and bit 4 \(blue\.4\.00f\) for the prefix 'blue'"
    for refused in (
        lambda: ShardedReader(tmp_path),
        lambda: ShardedReader(tmp_path, "blue"),
        lambda: ShardedScanner(tmp_path),
        lambda: ShardedWriter(tmp_path, "blue", 3),
        lambda: ShardedWriter(tmp_path, "blue", 4),
        lambda: open_journal(tmp_path),
    ):
        with pytest.raises(WrongUse, match=reason):
            refused()


def test_plain_journal_of_the_prefix_is_also_a_mix(tmp_path: Path) -> None:
    make_journal(tmp_path / "blue", 1)
    with pytest.raises(WrongUse, match=r"has shards of bit 0 \(blue\), not of bit 3"):
        fill(tmp_path)
    with pytest.raises(WrongUse, match=r"blue is a journal without shards, and cannot get shards of bit 2$"):
        ShardedWriter(tmp_path / "blue", bit=2)
    make_journal(tmp_path / "blue.3.001", 1)
    with pytest.raises(WrongUse, match="mixes shards of bit 0"):
        ShardedReader(tmp_path)


def test_prefixes_may_have_different_bits(tmp_path: Path) -> None:
    fill(tmp_path)
    make_journal(tmp_path / "red.4.00f", 3)
    make_journal(tmp_path / "green", 2)
    assert ShardedReader(tmp_path).count() == 105
    assert ShardedReader(tmp_path, "red").count() == 3
    assert ShardedReader(tmp_path, "green").count() == 2
    with pytest.raises(NotFound, match="no shards of prefix 'yellow'"):
        ShardedReader(tmp_path, "yellow")
    with pytest.raises(WrongUse):
        ShardedReader(tmp_path, "../red")


def test_entry_with_only_the_name_of_a_shard_is_not_one(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "blue.4.000").mkdir()
    (tmp_path / "blue.5.000").write_bytes(b"a file")
    (tmp_path / "other").mkdir()
    make_journal(tmp_path / "not a shard", 3)
    assert ShardedReader(tmp_path).count() == 100


# --- reading --------------------------------------------------------------------------------------------------------


def test_root_is_recognised_and_opened(tmp_path: Path) -> None:
    fill(tmp_path)
    assert detect(tmp_path).name == "sej"
    with open_journal(tmp_path) as reader:
        assert isinstance(reader, ShardedReader)
        assert reader.count() == 100
    with pytest.raises(NotFound):
        ShardedReader(tmp_path / "blue.3.000" / "jnl")


def test_positions_are_relative_to_the_root(tmp_path: Path) -> None:
    fill(tmp_path)
    reader = ShardedReader(tmp_path)
    for place in reader.scan():
        assert isinstance(place, Located)
        data = (tmp_path / place.file).read_bytes()[place.span.start : place.span.end]
        assert data[8:16] == int(place.record.value).to_bytes(8, "big")
        assert reader.as_json(place)["shard"] == place.file.split("/")[0]


def test_offsets_are_those_of_each_shard(tmp_path: Path) -> None:
    fill(tmp_path)
    reader = ShardedReader(tmp_path)
    counts = {shard.name: Reader(shard.path).count() for shard in reader.shards()}
    assert reader.count(0, 3) == sum(min(3, count) for count in counts.values())
    assert reader.count(5) == sum(max(0, count - 5) for count in counts.values())
    found = Counter(item.file[:10] for item in reader.scan(1, 3) if isinstance(item, Located))
    assert found == {name: len(range(1, min(3, count))) for name, count in counts.items() if count > 1}
    assert len(list(reader.messages(1, 3))) == sum(found.values())
    from_time = reader.find_time(50)
    assert numbers(item.record for item in reader.scan(from_time) if isinstance(item, Located)) == list(range(50, 100))
    assert numbers(reader.messages(from_time)) == list(range(50, 100))
    assert reader.count(from_time) == 50


def test_last_messages_of_all_shards_are_sorted_by_time(tmp_path: Path) -> None:
    fill(tmp_path)
    reader = ShardedReader(tmp_path)
    assert [int(place.record.value) for place in reader.last(7)] == list(range(93, 100))
    assert reader.last(0) == []
    assert numbers(place.record for place in reader.last(1000)) == list(range(100))


def test_last_messages_keep_the_order_of_their_shard_when_clocks_went_back(tmp_path: Path) -> None:
    make_journal(tmp_path / "1.000", 4, timestamps=[10, 90, 20, None])
    make_journal(tmp_path / "1.001", 3, timestamps=[30, 40, 50])
    places = ShardedReader(tmp_path).last(5)
    assert [(place.file[:5], place.record.offset) for place in places] == [
        ("1.000", 2),
        ("1.000", 3),
        ("1.001", 0),
        ("1.001", 1),
        ("1.001", 2),
    ]


def test_damage_in_a_shard_is_reported_with_its_name(tmp_path: Path) -> None:
    fill(tmp_path)
    segment = tmp_path / "blue.3.002" / "jnl" / "0000000000000000.jnl"
    data = bytearray(segment.read_bytes())
    second = Reader(tmp_path / "blue.3.002").last(1000)[1].span
    data[second.end - 1] ^= 1
    segment.write_bytes(data)
    reader = ShardedReader(tmp_path)
    name = "blue.3.002/jnl/0000000000000000.jnl"
    for going in (reader.scan, reader.messages, reader.__iter__):
        with pytest.raises(DamagedJournal) as raised:
            list(going())
        assert (raised.value.file, raised.value.position) == (name, second.start)
    for items in (list(reader.scan(mode="permissive")), list(reader.messages(mode="permissive"))):
        (damage,) = [item for item in items if isinstance(item, Damage)]
        assert (damage.file, damage.start, damage.end) == (name, second.start, second.end)
        assert len(items) == 100
    assert len(list(reader.scan(mode="dropmalformed"))) == 99
    reported: list[Damage] = []
    assert reader.count(on_damage=reported.append) == 99
    assert reported == [damage]
    assert reader.torn_tail is None


def test_torn_tails_are_not_damage_and_all_reported(tmp_path: Path) -> None:
    fill(tmp_path)
    for name in ("blue.3.002", "blue.3.005"):
        with (tmp_path / name / "jnl" / "0000000000000000.jnl").open("ab") as file:
            file.write(b"torn")
    reader = ShardedReader(tmp_path)
    assert len(list(reader.scan())) == 100
    assert [tail.file[:10] for tail in reader.torn_tails] == ["blue.3.002", "blue.3.005"]
    assert reader.torn_tail == reader.torn_tails[0]
    assert len(reader.last(3)) == 3
    assert len(reader.torn_tails) == 2


@pytest.mark.parametrize("verb", ["scan", "count", "verify"])
def test_progress_covers_all_shards(tmp_path: Path, verb: str) -> None:
    fill(tmp_path)
    total = sum(path.stat().st_size for path in tmp_path.glob("*/jnl/*.jnl"))
    steps: list[tuple[int, int]] = []
    answer = getattr(ShardedReader(tmp_path), verb)(progress=lambda done, of: steps.append((done, of)))
    if verb == "scan":
        assert len(list(answer)) == 100
    assert [of for _, of in steps] == [total] * len(steps)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1][0] == total


def test_summary_covers_all_shards(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "blue.3.005" / "ofs").mkdir()
    (tmp_path / "blue.3.005" / "ofs" / "reader.ofs").write_bytes(bytes(7) + b"\3")
    reader = ShardedReader(tmp_path)
    summary = reader.summary()
    assert (summary.format, summary.files, summary.records) == ("sej", 8, 100)
    assert summary.bytes == sum(path.stat().st_size for path in tmp_path.glob("*/jnl/*.jnl"))
    assert summary.first is not None
    assert summary.last is not None
    assert (base64.b64decode(summary.first["value"]), base64.b64decode(summary.last["value"])) == (b"0", b"99")
    assert summary.last["file"].startswith(summary.last["shard"] + "/jnl/")
    assert list(summary.details["shards"]) == [f"blue.3.00{index}" for index in range(8)]
    state = reader.state()["shards"]
    assert state["blue.3.005"]["consumers"] == {"reader": 3}
    assert sum(shard["next"] for shard in state.values()) == 100
    report = reader.verify()
    assert (report.sound, report.records, report.bytes) == (True, 100, summary.bytes)


def test_verify_reports_problems_relative_to_the_root(tmp_path: Path) -> None:
    fill(tmp_path)
    with (tmp_path / "blue.3.002" / "jnl" / "0000000000000000.jnl").open("ab") as file:
        file.write(b"torn")
    reader = ShardedReader(tmp_path)
    (problem,) = reader.verify().problems
    assert (problem.kind, problem.file) == ("torn_tail", "blue.3.002/jnl/0000000000000000.jnl")
    assert "blue.3.002: " in reader.summary().health
    assert "blue.3.001: " not in reader.summary().health


# --- following ------------------------------------------------------------------------------------------------------


def test_scanner_reads_every_message_of_every_shard_once_and_in_order(tmp_path: Path) -> None:
    fill(tmp_path, 300, segment_size=200)
    with ShardedScanner(tmp_path, timeout=0) as scanner:
        found = list(scanner)
        fill(tmp_path, 50)
        more = list(scanner)
        offsets = scanner.offsets
    for items, count in ((found, 300), (more, 50)):
        assert numbers(message for _, message in items) == list(range(count))
    seen: dict[str, list[int]] = {}
    for shard, message in found + more:
        assert isinstance(message, Message)
        seen.setdefault(shard, []).append(message.offset)
    assert {shard: list(range(offsets[shard])) for shard in offsets} == seen


def test_scanner_finds_shards_that_appear_while_it_waits(tmp_path: Path) -> None:
    total = 400

    def write() -> None:
        with ShardedWriter(tmp_path, "blue", 3, lambda message: int(message.value) // 50, segment_size=300) as writer:
            for number in range(total):
                writer.append(str(number).encode())
                if number % 20 == 19:
                    writer.flush()

    found: list[int] = []
    with ShardedScanner(tmp_path, timeout=DEADLINE_SECONDS) as scanner:
        thread = threading.Thread(target=write)
        thread.start()
        for _, message in scanner:
            assert isinstance(message, Message)
            found.append(int(message.value))
            if len(found) == total:
                break
        thread.join()
        assert len(scanner.offsets) == 8
    assert sorted(found) == list(range(total))


def test_directory_that_becomes_a_shard_later_is_found(tmp_path: Path) -> None:
    (tmp_path / "blue.1.000").mkdir()
    with ShardedScanner(tmp_path, timeout=0) as scanner:
        assert list(scanner) == []
        make_journal(tmp_path / "blue.1.000", 2)
        assert [shard for shard, _ in scanner] == ["blue.1.000"] * 2
        make_journal(tmp_path / "blue.2.000", 1)
        with pytest.raises(WrongUse, match="mixes"):
            next(scanner)


def test_scanner_starts_at_the_given_offsets(tmp_path: Path) -> None:
    fill(tmp_path)
    offsets = ShardedReader(tmp_path).find_time(60)
    with ShardedScanner(tmp_path, offsets, prefix="blue", timeout=0) as scanner:
        assert scanner.offsets == offsets
        assert numbers(message for _, message in scanner) == list(range(60, 100))
    with ShardedScanner(tmp_path, {"blue.3.001": 10**6}, timeout=0) as scanner:
        assert {shard for shard, _ in scanner} == {f"blue.3.00{index}" for index in range(8)} - {"blue.3.001"}


def test_offsets_count_only_returned_messages(tmp_path: Path) -> None:
    fill(tmp_path)
    given: Counter[str] = Counter({f"blue.3.00{index}": 0 for index in range(8)})
    with ShardedScanner(tmp_path, timeout=0) as scanner:
        assert scanner.offsets == given
        for shard, _ in scanner:
            given[shard] += 1
            assert scanner.offsets == given


def test_scanner_reports_positions_and_damage_relative_to_the_root(tmp_path: Path) -> None:
    fill(tmp_path)
    segment = tmp_path / "blue.3.002" / "jnl" / "0000000000000000.jnl"
    second = Reader(tmp_path / "blue.3.002").last(1000)[1].span
    data = bytearray(segment.read_bytes())
    data[second.end - 1] ^= 1
    segment.write_bytes(data)
    with ShardedScanner(tmp_path, timeout=0, mode="permissive") as scanner:
        items = list(scanner.located())
        (damage,) = [item for item in items if isinstance(item, Damage)]
        assert (damage.file, damage.start) == ("blue.3.002/jnl/0000000000000000.jnl", second.start)
        assert {item.file for item in items} == {f"blue.3.00{n}/jnl/0000000000000000.jnl" for n in range(8)}
    with ShardedScanner(tmp_path, timeout=0) as scanner, pytest.raises(DamagedJournal, match=r"blue\.3\.002/jnl"):
        list(scanner)


def test_truncation_under_a_scanner_is_reported_and_other_shards_continue(tmp_path: Path) -> None:
    fill(tmp_path)
    with ShardedScanner(tmp_path, timeout=0) as scanner:
        assert len(list(scanner)) == 100
        (tmp_path / "blue.3.004" / "jnl" / "0000000000000000.jnl").write_bytes(b"")
        with Writer(tmp_path / "blue.3.006") as writer:
            writer.append(b"more")
        with pytest.raises(Truncated, match=r"blue\.3\.004"):
            list(scanner)
        shard, message = next(scanner)
        assert (shard, message.value) == ("blue.3.006", b"more")  # type: ignore[union-attr]
        with pytest.raises(Truncated):
            next(scanner)


def test_closed_scanner_and_missing_root_are_reported(tmp_path: Path) -> None:
    scanner = ShardedScanner(tmp_path)
    scanner.close()
    scanner.close()
    with pytest.raises(Closed):
        next(scanner)
    with pytest.raises(NotFound):
        ShardedScanner(tmp_path / "nowhere")


def test_directory_of_plain_journals_is_not_a_journal(tmp_path: Path) -> None:
    make_journal(tmp_path / "root" / "orders", 3)
    make_journal(tmp_path / "root" / "events", 3)
    with pytest.raises(UnknownFormat):
        detect(tmp_path / "root")
    make_journal(tmp_path / "root" / "web.1.000", 3)
    assert detect(tmp_path / "root").name == "sej"
