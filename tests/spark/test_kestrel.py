"""Queues on Spark: the source `kestrel`, streams across rotation and packing, and the table of their items."""

from __future__ import annotations

import datetime
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from logwright import sej
from logwright.arrow.discovery import list_journals
from logwright.core.bytes.outcome import Damage
from logwright.core.format import open_journal
from logwright.errors import HistoryUnavailable
from logwright.kestrel.bytes import codec
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model.replay import QueueItem
from logwright.pipeline import Settings
from logwright.pipeline.run import run
from logwright.spark.stream import JournalStream
from tests.kestrel.journals import lived_queue, random_queue
from tests.kestrel.samples import FACTS, REMOVE, addx, encoded, scenario_operations, write
from tests.spark import streams
from tests.spark.streams import catch_up, following, read_batch

Row = tuple[Any, ...]
MOMENT = datetime.datetime(2005, 1, 1, tzinfo=datetime.UTC)
"""The range of the expiry times of items of random queues."""


def _plain(row: Any) -> Row:
    return tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row)


# --- which journals there are -----------------------------------------------------------------------------------------


def names_below(root: Path, format: str | None = None) -> list[tuple[str, str]]:
    return [(journal.format, journal.name) for journal in list_journals(str(root), format)]


def test_directories_beside_queue_files_are_searched(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for directory in (root, root / "deep", root / "deep" / "er"):
        write(directory / "cars", addx(b"A"))
        write(directory / "cars.50", addx(b"A"))
    for directory in (root / "orders", root / "deep" / "events"):
        with sej.Writer(directory) as writer:
            writer.append(b"message")
    queues = [("kestrel", "data"), ("kestrel", "deep"), ("kestrel", "deep/er")]
    messages = [("sej", "deep/events"), ("sej", "orders")]
    assert sorted(names_below(root)) == sorted(queues + messages)
    assert names_below(root, "kestrel") == queues
    assert names_below(root, "sej") == messages
    assert sum(open_journal(root).count() for _ in (1,)) == 2, "and to itself a directory has its own files only"


def test_queue_among_other_files_is_one_journal_with_all_of_its_files(tmp_path: Path) -> None:
    for name in ("cars", "cars.50", "cars.70.pack", "bikes.5"):
        write(tmp_path / "data" / name, addx(b"A"))
    for number in range(9):
        (tmp_path / "data" / f"notes{number}").write_text("no journal")
    assert names_below(tmp_path / "data") == [("kestrel", "bikes"), ("kestrel", "cars")]
    assert names_below(tmp_path) == [("kestrel", "data/bikes"), ("kestrel", "data/cars")]
    assert names_below(tmp_path / "data" / "cars.50") == [("kestrel", "cars.50")], "which was asked for by itself"


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queues of both dialects with several files, one of them large, one damaged, one torn, and leftovers."""
    root = tmp_path_factory.mktemp("source") / "queues"
    for number, dialect in enumerate(("documented", "kestrel2")):
        random_queue(root, dialect, random.Random(number), dialect)
    write(root / "large", *(addx(b"%d" % number + b"." * 5000) for number in range(400)))
    good = encoded([addx(b"whole")])
    (root / "damaged.7").write_bytes(good + b"\xee" * 5 + good * 3)
    write(root / "damaged", REMOVE, REMOVE)
    write(root / "torn", addx(b"A"), tail=good[:-2])
    write(root / "torn~~5", addx(b"temporary"))
    for number in (50, 100):
        write(root / f"packed.{number}", addx(b"dead"))
    write(root / "packed.100.pack", addx(b"alive"))
    return root


def in_python(root: Path) -> list[Row]:
    """Every operation with its place, and every damaged range, read without Spark."""
    found: list[Row] = []
    for queue in sorted({name.partition(".")[0] for name in (path.name for path in root.iterdir()) if "~" not in name}):
        for item in Reader(root / queue).scan(mode="permissive"):
            if isinstance(item, Damage):
                found.append((None, None, None, None, None, None, None, item.file, item.start, item.size, item.kind))
                continue
            one: Operation = item.record
            times = [_micros(one.added), _micros(one.expires)]
            place = (item.file, item.span.start, item.span.size, None)
            found.append((queue, one.op, one.xid, one.count, *times, one.data, *place))
    return found


def _micros(milliseconds: int | None) -> int | None:
    return None if milliseconds is None or abs(milliseconds) > (2**63 - 1) // 1000 else milliseconds * 1000


def test_source_returns_every_operation_and_damage_of_all_queues(spark: Any, queues: Path) -> None:
    typed = "queue STRING, op STRING, xid INT, count INT, added TIMESTAMP, expires TIMESTAMP, data BINARY"
    schema = f"{typed}, _file STRING, _position BIGINT, _size INT, _damage STRING, _journal STRING"
    read = spark.read.format("kestrel").option("mode", "permissive")
    frame = read.option("splitBytes", "20k").schema(schema).load(str(queues))
    assert frame.rdd.getNumPartitions() > 5, "one file of 2 MB is several tasks"
    columns = [f"unix_micros({name})" if name in ("added", "expires") else name for name in frame.columns]
    rows = [_plain(row) for row in frame.selectExpr(*columns).collect()]
    assert {row[-1] for row in rows} == {"queues"}
    found = [(*row[:10], None if row[10] is None else row[10].partition(":")[0]) for row in rows]
    assert sorted(found, key=repr) == sorted(in_python(queues), key=repr)
    assert {row[10] for row in found} == {None, "malformed", "torn_tail"}
    assert spark.read.format("kestrel").load(str(queues)).schema == spark.createDataFrame([], typed).schema


def test_schema_is_a_projection_and_the_mode_applies_to_damage(spark: Any, queues: Path) -> None:
    whole = [row for row in in_python(queues) if row[10] is None]
    dropping = spark.read.format("kestrel").option("mode", "dropmalformed").schema("op STRING, queue STRING")
    rows = [_plain(row) for row in dropping.load(str(queues)).collect()]
    assert sorted(rows) == sorted((row[1], row[0]) for row in whole)
    with pytest.raises(Exception, match=r"damaged\.7 @ 26: "):
        spark.read.format("kestrel").load(str(queues)).collect()
    large = spark.read.format("kestrel").load(str(queues / "large"))
    assert large.agg(F.count("*"), F.sum(F.octet_length("data"))).collect()[0] == (
        400,
        sum(len(row[6]) for row in whole if row[0] == "large"),
    )


# --- streams ----------------------------------------------------------------------------------------------------------


stream_of = partial(streams.stream_of, "kestrel")


def data_of(stream: JournalStream, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """The items that one batch adds."""
    batches = read_batch(stream, start, end)
    return [data for batch in batches for data in batch["data"].to_pylist() if data is not None]


@pytest.mark.parametrize("seed", range(6))
def test_rotation_and_packing_between_triggers_deliver_every_operation_once(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    options = dice.choice([{}, {"maxRecordsPerTrigger": "7"}, {"maxBytesPerTrigger": "600"}])
    names = ("cars", "bikes")
    written: dict[str, list[bytes]] = {name: [] for name in names}
    found: dict[str, list[bytes]] = {name: [] for name in names}
    for name in names:
        write(tmp_path / "queues" / name, addx(b"first " + name.encode()))
        written[name].append(b"first " + name.encode())
    stream = stream_of(tmp_path / "queues", splitBytes="300", **options)
    offset = json.loads(json.dumps(stream.initialOffset()))

    def take(end: dict[str, Any]) -> None:
        data = data_of(stream, offset, end)
        if dice.random() < 0.3:  # Spark repeats a request that a crash may have kept from being committed
            assert data_of(stream_of(tmp_path / "queues"), offset, end) == data
        for one in data:
            found[one.split()[1].decode()].append(one)

    for step in range(30):
        for name in names:
            with Writer(tmp_path / "queues" / name) as writer:
                for number in range(dice.randrange(12)):
                    writer.addx(b"%d/%d %s" % (step, number, name.encode()))
                    written[name].append(b"%d/%d %s" % (step, number, name.encode()))
                    if dice.random() < 0.4:
                        writer.remove()
                if dice.random() < 0.3:
                    writer.rotate()
                place = offset["queues"][name]
                read = (place if isinstance(place, int) else place["next"]) >> 64
                if read and dice.random() < 0.5:
                    writer.pack(read)  # already read
        if dice.random() < 0.3:
            stream = stream_of(tmp_path / "queues", splitBytes="300", **options)
        end = following(stream, offset)
        take(end)
        offset = end
    while (end := following(stream, offset)) != offset:
        take(end)
        offset = end
    assert found == written


def test_record_limit_counts_operations(tmp_path: Path) -> None:
    for name, count in (("cars", 30), ("bikes", 5)):
        write(tmp_path / "queues" / name, *(addx(b"x" * number) for number in range(count)))
    stream = stream_of(tmp_path / "queues", maxRecordsPerTrigger="10")
    offset = stream.initialOffset()
    counts = []
    while (end := following(stream, offset)) != offset:
        counts.append(len(data_of(stream, offset, end)))
        offset = end
    assert counts == [10, 10, 10, 5]


def test_replaced_queue_is_an_error_or_read_from_its_beginning(tmp_path: Path) -> None:
    path = write(tmp_path / "queues" / "cars", *(addx(b"%d" % number) for number in range(50)))
    write(tmp_path / "queues" / "bikes", addx(b"one"))
    offset = following(stream_of(tmp_path / "queues"), stream_of(tmp_path / "queues").initialOffset())
    write(path, addx(b"anew"), addx(b"and more"))
    with pytest.raises(HistoryUnavailable, match=r"queues/cars: records from \d+ on .* was rewritten"):
        following(stream_of(tmp_path / "queues"), offset)
    continued = stream_of(tmp_path / "queues", failOnDataLoss="false")
    end = following(continued, offset)
    assert data_of(continued, offset, end) == [b"anew", b"and more"]
    assert following(stream_of(tmp_path / "queues"), end) == end


class Sink:
    """Collects the items of every batch by its number: a repeated batch replaces the first."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}

    def __call__(self, frame: Any, number: int) -> None:
        self.batches[number] = [bytes(row[0]) for row in frame.where("op = 'addx'").select("data").collect()]

    @property
    def items(self) -> list[bytes]:
        return [item for number in sorted(self.batches) for item in self.batches[number]]


def begin(spark: Any, home: Path, sink: Sink, **options: str) -> Any:
    frame = spark.readStream.format("kestrel").options(**options).load(str(home / "queues"))
    return frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(home / "checkpoint")).start()


def test_query_continues_across_rotation_packing_and_restarts_and_detects_a_gap(spark: Any, tmp_path: Path) -> None:
    path, sink = tmp_path / "queues" / "cars", Sink()

    def put(*numbers: int) -> None:
        with Writer(path) as writer:
            for number in numbers:
                writer.addx(b"%d" % number)

    put(1, 2)
    query = begin(spark, tmp_path, sink)
    catch_up(query)
    with Writer(path) as writer:
        writer.remove()
        writer.rotate()
        writer.addx(b"3")
        catch_up(query)
        writer.pack()  # while the query lags
        writer.addx(b"4")
        writer.rotate()
        writer.addx(b"5")
        catch_up(query)
    query.stop()
    with Writer(path) as writer:
        writer.pack()
    put(6, 7)
    query = begin(spark, tmp_path, sink)
    catch_up(query)
    query.stop()
    assert sink.items == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
    put(8)
    with Writer(path) as writer:
        writer.rewrite()  # 8 is in a pack now: its addition is no longer known
    put(9)
    with pytest.raises(StreamingQueryException, match=r"cars: records from \d+ on .* was packed"):
        catch_up(begin(spark, tmp_path, sink))
    query = begin(spark, tmp_path, sink, failOnDataLoss="false")
    catch_up(query)
    query.stop()
    assert sink.items[7:] == [b"9"]


# --- items ------------------------------------------------------------------------------------------------------------


def make_queues(root: Path) -> None:
    """The cases of the original's tests, and random queues that were rotated, packed, damaged, and dumped into."""
    for number, scenario in enumerate(FACTS["scenarios"]):
        write(root / f"golden{number}" / "cars", *scenario_operations(scenario))
    for number in range(12):
        dice = random.Random(number)
        dialect = dice.choice(("documented", "kestrel2"))
        lived_queue(root / f"lived{number}", "cars", dice, dialect)
        for name in ("cars", "bikes"):
            random_queue(root / f"random{number}", name, dice, dialect, lively=number % 3 > 0)
    with (root / "lived1" / "cars").open("ab") as file:
        file.write(b"\xee" * 3 + codec.encode(addx(b"behind the damage")) * 3 + b"\x02")


def state_of(items: list[dict[str, Any]]) -> dict[str, list[Row]]:
    """The queue that its items represent: the waiting ones from the head on, the open ones as they were reserved."""

    def place(item: dict[str, Any]) -> tuple[int, int]:
        last = item["changes"][-1]
        return number_of(last["file"]), last["position"]

    waiting = [item for item in items if item["state"] in ("waiting", "expired")]
    back = [item for item in waiting if item["changes"][-1]["op"] == "put_back"]
    line = sorted(back, key=place, reverse=True) + sorted(
        (item for item in waiting if item not in back), key=lambda item: item["item"]
    )
    opened = sorted((item for item in items if item["state"] == "open"), key=place)
    return {
        "items": [(item["data"], item["added"], item["expires"]) for item in line],
        "open": [(item["data"], item["added"], item["expires"], item["xid"]) for item in opened],
    }


def number_of(file: str) -> int:
    """The number of a rotated file; the newest file comes last."""
    return int(file.removesuffix(".pack").partition(".")[2] or 2**63)


def replayed(reader: Reader) -> dict[str, list[Row]]:
    state = reader.queue_state()

    def shown(item: QueueItem) -> Row:
        fits = None if item.added is None or abs(item.added) > (2**63 - 1) // 1000 else item.added
        return item.data, fits, None if _micros(item.expires) is None else item.expires

    return {
        "items": [shown(item) for item in state.items],
        "open": [(*shown(item), item.xid) for item in state.open],
    }


def test_items_equal_a_replay_with_their_history(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "root"
    make_queues(root)
    settings = Settings(str(root), str(tmp_path / "out"), mode="dropmalformed", tables=("queue_items",), moment=MOMENT)
    run(settings, spark)
    found = spark.read.parquet(str(tmp_path / "out" / "queue_items"))
    millis = found.withColumns({name: F.unix_millis(name) for name in ("added", "expires")})
    by_queue: dict[Path, list[dict[str, Any]]] = {}
    for row in millis.collect():
        item = row.asDict(recursive=True)
        item["data"], item["added"] = bytes(item["data"]), item["added"] or None
        by_queue.setdefault(root / item["journal"] / item["queue"], []).append(item)
    assert len(by_queue) > 40
    dice = random.Random(0)
    states = set()
    for path, items in by_queue.items():
        reader = Reader(path)
        assert state_of(items) == replayed(reader), path
        assert sorted(item["item"] for item in items) == list(range(1, len(items) + 1))
        for item in dice.sample(items, min(3, len(items))):
            check_history(item, reader)
        states |= {item["state"] for item in items}
    assert states == {"waiting", "open", "done", "expired"}
    assert not any(replayed(Reader(path))["items"] for path in set(root.glob("*/cars")) - set(by_queue))


def check_history(item: dict[str, Any], reader: Reader) -> None:
    """The table and `logwright history` agree on an item."""
    changes = reader.history(f"{item['added_file']}@{item['added_position']}")
    assert [(one["op"], one["file"], one["position"]) for one in item["changes"]] == [
        (one["event"], one["file"], one["position"]) for one in changes
    ]
    last = changes[-1]
    expires = changes[0]["value"]["expires"]  # exact, unlike the column, which is null for what it cannot hold
    is_late = expires is not None and expires <= MOMENT.timestamp() * 1000
    waits = "expired" if is_late else "waiting"
    assert item["state"] == ("done" if "deleted" in last else {"open": "open", "queued": waits}[last["value"]["state"]])
    assert item["attempts"] == sum(one["event"] == "put_back" for one in changes)
    assert item["xid"] == (last["value"]["xid"] if item["state"] == "open" else None)
    done = (last["file"], last["position"]) if "deleted" in last else (None, None)
    assert (item["done_file"], item["done_position"]) == done
    reserved = [(one["file"], one["position"]) for one in changes if one["event"] == "reserved"] or [(None, None)]
    assert (item["reserved_file"], item["reserved_position"]) == reserved[-1]
