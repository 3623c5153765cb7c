"""The journals that the original has written, damaged and repaired: read, written and recovered as the contract says.

The contract differs from the original in this: one open is enough to cut a torn tail, the cut bytes are kept, and
nothing is cut if valid messages follow.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import shutil
import zlib
from pathlib import Path
from typing import Any, Literal

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal, Gap, Locked, TooLarge
from logwright.sej import NO_TIMESTAMP
from logwright.sej.bytes import codec
from logwright.sej.bytes.layout import DEFAULT_SEGMENT_BYTES, LOCK_NAME, MAX_KEY_BYTES
from logwright.sej.bytes.records import Message
from logwright.sej.files.offset_file import stored_offset
from logwright.sej.files.reader import Reader
from logwright.sej.files.scanner import Scanner
from logwright.sej.files.shard import ShardedReader
from logwright.sej.files.writer import Writer
from logwright.sej.format import looks_like, recover
from logwright.sej.model.offset import Offset, read_offset
from logwright.sej.model.shard_writer import ShardedWriter
from tests.sej.samples import GOLDEN, golden_case, golden_lines

WHOLE = [
    *("empty", "one", "fifty", "types256", "zero_timestamp"),
    *("multi", "multi_exact", "reopened", "first_deleted", "offsets"),
]
TORN = [
    *("torn_1", "torn_3", "torn_4", "torn_10", "torn_25", "torn_150", "torn_700", "torn_one_message"),
    *("garbage_10", "garbage_40", "garbage_zeros", "cut_to_zero", "cut_in_first"),
    *("multi_torn_last", "multi_torn_first_of_last"),
]
DAMAGED = ["midflip_size", "midflip_size_torn", "midflip_key_negative", "midflip_offset", "midflip_value"]
SHARDED = ["shard_prefix", "shard_noprefix", "shard_bit10"]
OTHERS = ["gap", "multi_torn_middle"]


def message_of(line: dict[str, Any]) -> Message:
    key, value = base64.b64decode(line["key"]), base64.b64decode(line["value"])
    return Message(line["offset"], line["timestamp_ns"], line["type"], key, value)


def expected(name: str) -> list[Message]:
    """The messages of a case that survived its damage."""
    case = golden_case(name)
    if "base" in case:
        return list(map(message_of, golden_lines(Path(case["base"]).parent.name)))[: case["surviving"]]
    return list(map(message_of, golden_lines(name)))


def base_of(name: str) -> list[Message]:
    """The messages of a case before it was damaged."""
    return list(map(message_of, golden_lines(Path(golden_case(name)["base"]).parent.name)))


def journal(name: str) -> Path:
    return GOLDEN / name / "sej"


@pytest.fixture
def copy(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the case of the test."""
    return Path(shutil.copytree(journal(request.getfixturevalue("name")), tmp_path / "sej"))


def segment_hashes(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.glob("jnl/*.jnl")}


def recorded_hashes(segments: list[dict[str, Any]]) -> dict[str, str]:
    return {segment["name"]: segment["sha256"] for segment in segments}


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_every_golden_case_is_tested() -> None:
    cases = {path.name for path in GOLDEN.iterdir() if path.is_dir()}
    assert cases == {*WHOLE, *TORN, *DAMAGED, *SHARDED, *OTHERS}


@pytest.mark.parametrize("name", [*WHOLE, *TORN, *DAMAGED, *OTHERS])
def test_files_are_those_of_the_original(name: str) -> None:
    assert segment_hashes(journal(name)) == recorded_hashes(golden_case(name)["segments"])


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WHOLE)
def test_sound_journal_is_read_as_written(name: str) -> None:
    reader = Reader(journal(name))
    messages = expected(name)
    assert list(reader) == messages
    assert [located.record for located in reader.scan()] == messages
    assert list(reader.messages(mode="permissive")) == messages
    assert reader.torn_tail is None
    assert reader.count() == len(messages) == golden_case(name)["messages"]
    assert reader.first == (messages[0].offset if messages else 0)
    assert reader.next == (messages[-1].offset + 1 if messages else 0)
    assert [located.record for located in reader.last(3)] == messages[-3:]


@pytest.mark.parametrize("name", WHOLE)
def test_each_message_is_at_its_position(name: str) -> None:
    for located in Reader(journal(name)).scan():
        data = (journal(name) / located.file).read_bytes()[located.span.start : located.span.end]
        assert data == codec.encode(located.record)


@pytest.mark.parametrize("name", ["empty", "one", "fifty", "multi", "multi_exact", "reopened"])
def test_scanner_returns_the_messages_of_the_original(name: str) -> None:
    case = golden_case(name)
    for key, seen in case.items():
        if not key.startswith("scan"):
            continue
        with Scanner(journal(name), seen["from"], timeout=0) as scanner:
            found = [item.offset for item in scanner if isinstance(item, Message)]
            assert len(found) == seen["count"]
            assert found[:1] == ([] if seen["first"] is None else [seen["first"]])
            assert found[-1:] == ([] if seen["last"] is None else [seen["last"]])
            assert scanner.offset == seen["next_offset"]


def test_scanner_from_before_the_first_segment_starts_with_it() -> None:
    with Scanner(journal("first_deleted"), 0, timeout=0) as scanner:
        assert list(scanner) == expected("first_deleted")


def test_missing_timestamp_and_the_epoch_are_distinguished() -> None:
    messages = expected("zero_timestamp")
    data = (journal("zero_timestamp") / "jnl/0000000000000000.jnl").read_bytes()
    assert None in [message.timestamp for message in messages]
    assert 0 in [message.timestamp for message in messages]
    assert list(Reader(journal("zero_timestamp"))) == messages
    assert NO_TIMESTAMP.to_bytes(8, "big", signed=True) in data


@pytest.mark.parametrize("name", TORN)
def test_torn_journal_is_read_up_to_its_torn_tail(name: str) -> None:
    case = golden_case(name)
    before = files_of(journal(name))
    reader = Reader(journal(name))
    assert list(reader) == expected(name)
    kept = case["go_writer_open"]["segments_after"][-1]
    found = [item for item in reader.messages(mode="permissive") if isinstance(item, Damage)]
    if kept["size"] == case["segments"][-1]["size"]:
        assert found == []
        assert reader.torn_tail is None
    else:
        assert found == [reader.torn_tail]
        assert (found[0].file, found[0].start) == (f"jnl/{kept['name']}", kept["size"])
        assert (found[0].kind, found[0].size) == ("torn_tail", case["go_writer_open"]["removed_bytes"])
    assert reader.next == case["go_writer_open"]["second_open_next_offset"]
    assert files_of(journal(name)) == before, "a read-only open changed something"


MIDDLE_DAMAGE = {
    # case: the lost message, and the kind of damage in its place
    "midflip_size": (19, "malformed"),
    "midflip_size_torn": (19, "malformed"),
    "midflip_key_negative": (20, "malformed"),
    "midflip_offset": (20, "unexpected_offset"),
}


@pytest.mark.parametrize("name", MIDDLE_DAMAGE)
def test_damage_in_the_middle_is_reported_and_the_rest_is_read(name: str) -> None:
    lost, kind = MIDDLE_DAMAGE[name]
    messages = base_of(name)
    if name == "midflip_size_torn":
        messages.pop()
    start = sum(message.size for message in messages[:lost])
    reader = Reader(journal(name))

    with pytest.raises(DamagedJournal) as failure:
        list(reader)
    assert (failure.value.file, failure.value.position) == ("jnl/0000000000000000.jnl", start)

    items = list(reader.messages(mode="permissive"))
    damage = items[lost]
    assert isinstance(damage, Damage)
    assert (damage.start, damage.size, damage.kind) == (start, messages[lost].size, kind)
    whole = [*messages[:lost], *messages[lost + 1 :]]
    assert [item for item in items if isinstance(item, Message)] == whole
    assert list(reader.messages(mode="dropmalformed")) == whole
    assert (reader.torn_tail is not None) == (name == "midflip_size_torn")


@pytest.mark.parametrize("name", MIDDLE_DAMAGE)
def test_messages_before_damage_are_returned_before_the_error(name: str) -> None:
    lost, _ = MIDDLE_DAMAGE[name]
    stream = iter(Reader(journal(name)))
    assert [next(stream) for _ in range(lost)] == base_of(name)[:lost]
    with pytest.raises(DamagedJournal):
        next(stream)


def test_changed_timestamp_is_not_detectable() -> None:
    found, written = list(Reader(journal("midflip_value"))), base_of("midflip_value")
    changed = [number for number in range(256) if found[number] != written[number]]
    assert changed == [20]
    assert found[20].value == written[20].value


def test_missing_segment_is_a_gap() -> None:
    reader = Reader(journal("gap"))
    with pytest.raises(Gap) as failure:
        list(reader)
    assert failure.value.file == "jnl/0000000000000010.jnl"
    assert str(failure.value) == (
        "jnl/0000000000000010.jnl @ 0: the segment begins with offset 16 where 12 was expected"
    )
    items = list(reader.messages(mode="permissive"))
    assert items[12] == Damage(
        "jnl/0000000000000010.jnl", 0, 0, "the segment begins with offset 16 where 12 was expected", "gap"
    )
    assert [item for item in items if isinstance(item, Message)] == expected("gap")
    assert list(reader.messages(mode="dropmalformed")) == expected("gap")


def test_segment_torn_in_the_middle_is_damage_of_that_segment() -> None:
    reader = Reader(journal("multi_torn_middle"))
    whole = expected("multi_torn_middle")
    position = sum(message.size for message in whole if 6 <= message.offset <= 10)
    with pytest.raises(DamagedJournal) as failure:
        list(reader)
    assert (failure.value.file, failure.value.position) == ("jnl/0000000000000006.jnl", position)
    items = list(reader.messages(mode="permissive"))
    damage = [item for item in items if isinstance(item, Damage)]
    assert [(item.file, item.start) for item in damage] == [("jnl/0000000000000006.jnl", position)]
    assert [item for item in items if isinstance(item, Message)] == whole
    assert reader.torn_tail is None


@pytest.mark.parametrize("name", [*WHOLE, *TORN, *DAMAGED, *OTHERS])
def test_each_case_is_recognised(name: str) -> None:
    evidence = looks_like(REAL_DISK, journal(name))
    assert evidence is not None
    assert evidence.score >= 2


# --- opening for writing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*TORN, "midflip_size", "midflip_key_negative", "midflip_offset", "midflip_value"])
def test_writer_continues_where_the_original_does(name: str, copy: Path) -> None:
    case = golden_case(name)["go_writer_open"]
    before = files_of(copy)
    with Writer(copy) as writer:
        assert writer.next_offset == case["second_open_next_offset"]
        removed = case.get("removed_bytes", 0)
        assert (0 if writer.recovered is None else writer.recovered.size) == removed
        if removed:
            assert writer.recovered is not None
            assert writer.kept is not None
            last = case["segments_after"][-1]
            assert writer.recovered.start == last["size"]
            assert writer.kept.read_bytes() == before[f"jnl/{last['name']}"][last["size"] :]
            assert writer.kept.parent == copy / ".logwright" / "cut"
        else:
            assert writer.recovered is None
            assert writer.kept is None
    assert segment_hashes(copy) == recorded_hashes(case["segments_after"])
    with Writer(copy) as writer:
        assert writer.recovered is None
        assert writer.append(b"next", timestamp=1) == case["second_open_next_offset"]


@pytest.mark.parametrize("name", ["midflip_size_torn"])
def test_torn_tail_after_damage_is_an_error_and_nothing_is_dropped(name: str, copy: Path) -> None:
    before = segment_hashes(copy)
    position = sum(message.size for message in base_of(name)[:19])
    for _ in range(2):
        with pytest.raises(DamagedJournal) as failure:
            Writer(copy)
        assert failure.value.position == position
        assert "valid messages follow" in failure.value.reason
    with pytest.raises(DamagedJournal):
        recover(copy)
    assert segment_hashes(copy) == before
    assert not (copy / ".logwright").exists()


@pytest.mark.parametrize("name", ["multi", "multi_exact", "first_deleted", "gap", "multi_torn_middle"])
def test_writer_reads_only_the_last_segment(name: str, copy: Path) -> None:
    case = golden_case(name)
    reopened = case.get("reopen") or case["go_writer_open"]
    with Writer(copy) as writer:
        assert writer.next_offset == reopened["next_offset"]
        assert writer.recovered is None
    assert segment_hashes(copy) == recorded_hashes(reopened["segments_after"])


# --- writing --------------------------------------------------------------------------------------------------------


def append_all(writer: Writer, messages: list[Message]) -> None:
    for message in messages:
        assert writer.append(message.value, message.key, message.type, message.timestamp) == message.offset


@pytest.mark.parametrize("sync", ["none", "always", "interval(1)"])
@pytest.mark.parametrize("name", ["empty", "one", "fifty", "types256", "zero_timestamp", "multi", "multi_exact"])
def test_same_messages_make_the_same_bytes(name: str, sync: str, tmp_path: Path) -> None:
    case = golden_case(name)
    with Writer(tmp_path, sync=sync, segment_size=case.get("segment_size", DEFAULT_SEGMENT_BYTES)) as writer:
        append_all(writer, expected(name))
    assert segment_hashes(tmp_path) == recorded_hashes(case["segments"])


@pytest.mark.parametrize("name", ["one", "fifty", "types256", "zero_timestamp", "multi", "multi_exact"])
def test_same_columns_make_the_same_bytes(name: str, tmp_path: Path) -> None:
    case = golden_case(name)
    data = b"".join(map(codec.encode, expected(name)))
    columns = codec.columns(data, 0, len(data), len(expected(name)))
    with Writer(tmp_path, segment_size=case.get("segment_size", DEFAULT_SEGMENT_BYTES)) as writer:
        assert writer.append_columns([columns]) == 0
    assert segment_hashes(tmp_path) == recorded_hashes(case["segments"])


def test_sessions_with_other_segment_sizes_make_the_same_bytes(tmp_path: Path) -> None:
    messages = expected("reopened")
    for segment_size, part in ((150, messages[:4]), (1 << 30, messages[4:9]), (200, messages[9:])):
        with Writer(tmp_path, segment_size=segment_size) as writer:
            append_all(writer, part)
    assert segment_hashes(tmp_path) == recorded_hashes(golden_case("reopened")["segments"])


def test_limits_are_those_of_the_original(tmp_path: Path) -> None:
    limits = json.loads((GOLDEN / "limits.json").read_text())
    assert limits["default_segment_size"] == DEFAULT_SEGMENT_BYTES
    assert limits["append_127_byte_key"] is None
    assert limits["append_128_byte_key"] == "key is too long"
    with Writer(tmp_path) as writer:
        assert writer.append(b"", key=b"k" * 127) == 0
        with pytest.raises(TooLarge, match="128 bytes"):
            writer.append(b"", key=b"k" * (MAX_KEY_BYTES + 1))
        assert writer.append(b"") == 1


# --- locks ----------------------------------------------------------------------------------------------------------


def test_lock_of_the_original_excludes_our_writer(tmp_path: Path) -> None:
    Writer(tmp_path).close()
    with (tmp_path / LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(Locked):
            Writer(tmp_path)
    with Writer(tmp_path) as writer:
        assert writer.append(b"") == 0


def test_our_writer_excludes_the_original(tmp_path: Path) -> None:
    with Writer(tmp_path), (tmp_path / LOCK_NAME).open("w") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_lock_file_removed_by_the_original_is_recreated(tmp_path: Path) -> None:
    Writer(tmp_path).close()
    (tmp_path / LOCK_NAME).unlink()
    with Writer(tmp_path), pytest.raises(Locked):
        Writer(tmp_path)


# --- offsets and shards ---------------------------------------------------------------------------------------------


def test_offsets_of_the_original_are_read() -> None:
    case = golden_case("offsets")
    for name, value in case["offset_values_in_memory"].items():
        default: Literal["first", "last"] = "last" if name.endswith("last") else "first"
        assert read_offset(journal("offsets"), name, default) == value
        data = bytes.fromhex(case["ofs_files_hex"][f"{name}.ofs"])
        assert stored_offset(REAL_DISK, journal("offsets"), name) == (int.from_bytes(data, "big") if data else None)


@pytest.mark.parametrize("name", ["offsets"])
def test_offsets_are_committed_as_the_original_does(name: str, copy: Path) -> None:
    for file, data in golden_case("offsets")["ofs_files_hex"].items():
        if not data:
            continue
        with Offset(copy, f"our-{Path(file).stem}") as offset:
            offset.commit(int(data, 16))
        assert (copy / "ofs" / f"our-{file}").read_bytes() == bytes.fromhex(data)


def hash16(case: dict[str, Any], key: bytes) -> int:
    """The hash by which the case was sharded."""
    if case["hash"].startswith("crc32"):
        whole = zlib.crc32(key)
    else:
        whole = 0x811C9DC5
        for byte in key:
            whole = (whole ^ byte) * 0x01000193 & 0xFFFFFFFF
    return whole >> 16 ^ whole & 0xFFFF


@pytest.mark.parametrize("name", SHARDED)
def test_sharded_root_is_read(name: str) -> None:
    case, lines = golden_case(name), golden_lines(name)
    reader = ShardedReader(GOLDEN / name / "root")
    assert [shard.name for shard in reader.shards()] == case["dirs"]
    assert {shard.bit for shard in reader.shards()} == {case["shard_bit"]}
    for shard in reader.shards():
        there = [message_of(line) for line in lines if line["dir"] == shard.name]
        assert list(reader.open(shard)) == there
        assert len(there) == case["messages_per_dir"][shard.name]
        assert {line["shard"] for line in lines if line["dir"] == shard.name} == {shard.index}


@pytest.mark.parametrize("name", SHARDED)
def test_same_messages_make_the_same_shards(name: str, tmp_path: Path) -> None:
    case = golden_case(name)
    with ShardedWriter(
        tmp_path, case["prefix"], case["shard_bit"], lambda message: hash16(case, message.key)
    ) as writer:
        for line in golden_lines(name):
            message = message_of(line)
            assert hash16(case, message.key) == line["hash16"]
            assert writer.append(message.value, message.key, message.type, message.timestamp) == message.offset
    assert shard_hashes(tmp_path) == shard_hashes(GOLDEN / name / "root")
    assert sorted(shard_hashes(tmp_path)) == case["dirs"]


def shard_hashes(root: Path) -> dict[str, dict[str, str]]:
    return {path.name: segment_hashes(path) for path in root.iterdir() if path.is_dir()}
