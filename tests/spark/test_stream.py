"""A stream of journals returns every record once, in pieces of any size, across rotation, restarts and new shards."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from logwright.core.bytes.outcome import Damage
from logwright.errors import DamagedJournal, HistoryUnavailable, NotFound, WrongUse
from logwright.sej import Reader, ShardedWriter, Writer
from logwright.spark.stream import JournalStream, lag_of, share
from tests.spark import streams
from tests.spark.streams import WAIT_SECONDS, catch_up, following, read_batch

Row = tuple[Any, ...]


def append(directory: Path, numbers: range, *, size: int = 100, **options: Any) -> Path:
    """Messages that contain their own number, 10 seconds apart."""
    with Writer(directory, **options) as writer:
        for number in numbers:
            writer.append(b"%d" % number + b"." * size, timestamp=number * 10_000_000_000)
    return directory


stream_of = partial(streams.stream_of, "sej")


def rows_of(stream: JournalStream, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    """Shard and offset of the rows of one batch."""
    batches = (batch.select(["shard", "offset"]) for batch in read_batch(stream, start, end))
    return [(row["shard"] or "", row["offset"]) for batch in batches for row in batch.to_pylist()]


def batches_of(
    stream: JournalStream, start: dict[str, Any] | None = None
) -> Iterator[tuple[list[tuple[str, int]], dict[str, Any]]]:
    """The batches until nothing is left, each with its end offset, as Spark requests them."""
    start = json.loads(json.dumps(stream.initialOffset() if start is None else start))
    while (end := following(stream, start)) != start:
        yield rows_of(stream, start, end), end
        start = end


# --- what a batch holds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "wanted", "given"), [
    (10, [3, 100, 100], [3, 4, 3]),
    (2, [5, 5, 5], [1, 1, 0]),
    (100, [1, 2, 3], [1, 2, 3]),
    (7, [0, 9], [0, 7]),
    (5, [], []),
])  # fmt: skip
def test_limit_is_shared_fairly(limit: int, wanted: list[int], given: list[int]) -> None:
    assert share(limit, wanted) == given


def test_no_journal_starves_under_the_smallest_limit(tmp_path: Path) -> None:
    for name, count in (("a", 50), ("b", 5), ("c", 5)):
        append(tmp_path / "root" / name, range(count))
    stream = stream_of(tmp_path / "root", maxRecordsPerTrigger="1")
    ends = [end for _, end in batches_of(stream)]
    assert ends[8] == {"a": {"": 3}, "b": {"": 3}, "c": {"": 3}}
    assert len(ends) == 60
    assert ends[-1] == {"a": {"": 50}, "b": {"": 5}, "c": {"": 5}}


def test_bytes_are_limited_and_an_oversized_record_is_its_own_batch(tmp_path: Path) -> None:
    append(tmp_path / "root" / "small", range(100), size=100)
    append(tmp_path / "root" / "large", range(3), size=30_000)
    sizes = {
        (name, item.record.offset): item.span.size
        for name in ("small", "large")
        for item in Reader(tmp_path / "root" / name).scan()
        if not isinstance(item, Damage)
    }
    stream = stream_of(tmp_path / "root", maxBytesPerTrigger="4k")
    before = {"small": 0, "large": 0}
    seen = 0
    for _, end in batches_of(stream):
        after = {name: parts[""] for name, parts in end.items()}
        records = [(name, number) for name in after for number in range(before[name], after[name])]
        used = sum(sizes[record] for record in records)
        assert used <= 4096 or records == [("large", before["large"])]
        assert used > 3500 or after["small"] == 100
        before, seen = after, seen + len(records)
    assert seen == 103


def test_both_limits_apply_and_neither_when_spark_reads_all(tmp_path: Path) -> None:
    append(tmp_path / "journal", range(100), size=100)
    both = stream_of(tmp_path / "journal", maxRecordsPerTrigger="50", maxBytesPerTrigger="1k")
    assert both.getDefaultReadLimit() == ReadMaxRows(50)
    assert both.latestOffset({"journal": {"": 0}}, ReadMaxRows(50)) == {"journal": {"": 8}}
    assert both.latestOffset({"journal": {"": 0}}, ReadMaxRows(5)) == {"journal": {"": 5}}
    assert both.latestOffset({"journal": {"": 0}}, ReadAllAvailable()) == {"journal": {"": 100}}
    assert stream_of(tmp_path / "journal", maxBytesPerTrigger="1k").getDefaultReadLimit() == ReadMaxBytes(1024)
    assert stream_of(tmp_path / "journal").getDefaultReadLimit() == ReadAllAvailable()


def test_incomplete_record_is_left_for_a_later_batch(tmp_path: Path) -> None:
    directory = append(tmp_path / "journal", range(10))
    path = directory / Reader(directory).segments()[-1].name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    stream = stream_of(directory, mode="permissive")
    ((rows, end),) = batches_of(stream)
    assert rows == [("", number) for number in range(9)], "and no row about the tail, which may still grow"
    assert end == {"journal": {"": 9}}
    path.write_bytes(whole)
    assert [rows for rows, _ in batches_of(stream, end)] == [[("", 9)]]


def test_available_now_stops_at_the_records_present_at_its_start(tmp_path: Path) -> None:
    directory = append(tmp_path / "root" / "a", range(30))
    stream = stream_of(tmp_path / "root", maxRecordsPerTrigger="20")
    stream.prepareForTriggerAvailableNow()
    seen = 0
    for rows, _ in batches_of(stream):
        seen += len(rows)
        append(directory, range(5))
        append(tmp_path / "root" / f"late{seen}", range(5))
    assert seen == 30


# --- where it begins --------------------------------------------------------------------------------------------------


def test_stream_starts_at_the_given_offset(tmp_path: Path) -> None:
    append(tmp_path / "root" / "a", range(20))
    append(tmp_path / "root" / "b", range(5))

    def begin(**options: str) -> dict[str, Any]:
        return stream_of(tmp_path / "root", **options).initialOffset()

    assert begin() == begin(startingOffsets="earliest") == {"a": {"": 0}, "b": {"": 0}}
    assert begin(startingOffsets="latest") == {"a": {"": 20}, "b": {"": 5}}
    assert begin(startingOffsets='{"a": {"": 7}}') == {"a": {"": 7}, "b": {"": 0}}
    assert begin(startingTimestamp="110000000000") == {"a": {"": 11}, "b": {"": 5}}
    assert begin(startingTimestamp="1970-01-01T00:00:25") == {"a": {"": 3}, "b": {"": 3}}
    assert begin(startingTimestamp="1970-01-01T01:00:25+01:00") == {"a": {"": 3}, "b": {"": 3}}


def test_time_is_found_in_every_shard(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root", bit=1) as writer:
        for number in range(100):
            writer.append(b"v", b"%d" % number, timestamp=number)
    offset = stream_of(tmp_path / "root", startingTimestamp="60").initialOffset()
    rows = rows_of(stream_of(tmp_path / "root"), offset, stream_of(tmp_path / "root").reportLatestOffset())
    assert len(rows) == 40
    assert set(offset["root"]) == {"1.000", "1.001"}


@pytest.mark.parametrize(("options", "message"), [
    ({"startingOffsets": "newest"}, "startingOffsets"),
    ({"startingOffsets": '{"a": {"": -1}}'}, "not negative"),
    ({"startingOffsets": '{"a": 4}'}, "startingOffsets"),
    ({"startingTimestamp": "yesterday"}, "option startingTimestamp: 'yesterday' is not a time: give nanoseconds"),
    ({"startingTimestamp": "5", "startingOffsets": "latest"}, "not both"),
    ({"maxRecordsPerTrigger": "0"}, "not a number of at least 1"),
    ({"maxBytesPerTrigger": "much"}, "is not a size"),
    ({"failOnDataLoss": "perhaps"}, "neither true nor false"),
])  # fmt: skip
def test_invalid_option_is_refused_at_once(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(WrongUse, match=message):
        stream_of(tmp_path, **options)


def test_starting_offsets_missing_in_the_journals_are_refused(tmp_path: Path) -> None:
    append(tmp_path / "root" / "a", range(20))
    with pytest.raises(WrongUse, match="there is no nowhere"):
        stream_of(tmp_path / "root", startingOffsets='{"nowhere": {"": 1}}').initialOffset()
    with pytest.raises(WrongUse, match="a has no record 21, its next one is 20"):
        stream_of(tmp_path / "root", startingOffsets='{"a": {"": 21}}').initialOffset()
    with pytest.raises(NotFound, match="no such file"):
        stream_of(tmp_path / "missing").initialOffset()


# --- what comes and goes ----------------------------------------------------------------------------------------------


def test_journals_may_appear_later_and_start_at_any_offset(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    stream = stream_of(tmp_path / "root")
    start = stream.initialOffset()
    assert start == {}
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    append(tmp_path / "root" / "a", range(5))
    late = append(tmp_path / "root" / "late", range(40), segment_size=1000)
    Reader(late).segments()[0].path.unlink()
    first = Reader(late).first
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == {"a": {"": 5}, "late": {"": {"from": first, "next": 40}}}
    assert len(rows_of(stream, start, end)) == 5 + 40 - first
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    append(late, range(1))
    assert stream.latestOffset(end, ReadAllAvailable()) == {"a": {"": 5}, "late": {"": 41}}


def retire(directory: Path) -> int:
    """Remove all segments except the last, as retention does; the first remaining offset."""
    segments = Reader(directory).segments()
    for segment in segments[:-1]:
        segment.path.unlink()
    return segments[-1].first_offset


def test_records_removed_before_they_are_read_are_an_error(tmp_path: Path) -> None:
    directory = append(tmp_path / "journal", range(40), segment_size=1000)
    left = retire(directory)
    start = {"journal": {"": 3}}
    with pytest.raises(HistoryUnavailable, match=rf"journal: records 3 to {left - 1} were removed .* failOnDataLoss"):
        stream_of(directory).latestOffset(start, ReadAllAvailable())
    with pytest.raises(HistoryUnavailable, match=rf"journal: records 3 to {left - 1} were removed"):
        stream_of(directory).partitions(start, {"journal": {"": 30}})


def test_removed_records_are_skipped_and_logged_once_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = append(tmp_path / "journal", range(40), segment_size=1000)
    left = retire(directory)
    stream = stream_of(directory, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "logwright.spark.stream"):
        ((rows, end),) = batches_of(stream, {"journal": {"": 3}})
    assert rows == [("", number) for number in range(left, 40)]
    assert end == {"journal": {"": 40}}
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"records 3 to {left - 1} were removed before they were read" in said


def test_file_removed_between_plan_and_task_is_reported_or_skipped(tmp_path: Path) -> None:
    directory = append(tmp_path / "journal", range(40), segment_size=1000)
    for fail in ("true", "false"):
        shutil.copytree(directory, tmp_path / fail / "journal")
        stream = stream_of(tmp_path / fail / "journal", failOnDataLoss=fail)
        (task,) = stream.partitions({"journal": {"": 0}}, {"journal": {"": 40}})
        left = retire(tmp_path / fail / "journal")
        if fail == "true":
            with pytest.raises(
                HistoryUnavailable, match=r"journal: records 0 to \d+ were removed before they were read"
            ):
                list(stream.read(task))
        else:
            found = [offset for batch in stream.read(task) for offset in batch["offset"].to_pylist()]
            assert found == list(range(left, 40))


def test_removed_or_truncated_journal_is_an_error_or_skipped(tmp_path: Path) -> None:
    append(tmp_path / "root" / "a", range(10))
    append(tmp_path / "root" / "b", range(10))
    start = {"a": {"": 10}, "b": {"": 6}, "gone": {"": 4}}
    with pytest.raises(HistoryUnavailable, match="gone is gone; records up to 3 were read"):
        stream_of(tmp_path / "root").latestOffset(start, ReadAllAvailable())
    going_on = stream_of(tmp_path / "root", failOnDataLoss="false")
    assert going_on.latestOffset(start, ReadAllAvailable()) == {"a": {"": 10}, "b": {"": 10}}
    cut = {"a": {"": 25}, "b": {"": 6}}
    with pytest.raises(HistoryUnavailable, match="a: records up to 24 were read, but the journal ends with 9 now"):
        stream_of(tmp_path / "root").latestOffset(cut, ReadAllAvailable())
    end = going_on.latestOffset(cut, ReadAllAvailable())
    assert end == {"a": {"": 10}, "b": {"": 10}}
    assert rows_of(going_on, cut, end) == [("", number) for number in range(6, 10)]
    with pytest.raises(HistoryUnavailable, match="gone is gone; records 2 to 3 were not read"):
        stream_of(tmp_path / "root").partitions({"gone": {"": 2}}, {"gone": {"": 4}})


def test_damage_is_an_error_that_names_journal_shard_and_file(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root", bit=1) as writer:
        for number in range(50):
            writer.append(b"v" * 50, b"%d" % number)
    path = tmp_path / "root" / "1.001" / "jnl" / "0000000000000000.jnl"
    data = bytearray(path.read_bytes())
    data[:20] = b"\xff" * 20
    path.write_bytes(data)
    stream = stream_of(tmp_path / "root")
    with pytest.raises(DamagedJournal, match=r"^root/1\.001/jnl/0000000000000000\.jnl @ 0: "):
        list(batches_of(stream))
    with pytest.raises(DamagedJournal, match=r"^0000000000000000\.jnl @ 0: "):
        list(batches_of(stream_of(path)))


# --- the same records, without Spark ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_every_record_is_delivered_once_whatever_happens_between_triggers(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    root = tmp_path / "root"
    options = dice.choice([{}, {"maxRecordsPerTrigger": "17"}, {"maxBytesPerTrigger": "3k"}])
    with ShardedWriter(root, "web", 2, segment_size=2000) as writer:
        writer.append(b"first")
    stream = stream_of(root, splitBytes="1k", **options)
    offset = stream.initialOffset()
    found: list[tuple[str, int]] = []
    for _ in range(25):
        with ShardedWriter(root, "web", 2, segment_size=2000) as writer:
            for _ in range(dice.randrange(30)):
                writer.append(dice.randbytes(dice.randrange(300)), b"%d" % dice.randrange(10 ** dice.randrange(4)))
        if dice.random() < 0.3:
            stream = stream_of(root, splitBytes="1k", **options)
        end = stream.latestOffset(offset, stream.getDefaultReadLimit())
        if dice.random() < 0.3:  # Spark repeats a request that a crash may have kept from being committed
            assert sorted(rows_of(stream, offset, end)) == sorted(rows_of(stream_of(root), offset, end))
        found += rows_of(stream, offset, end)
        offset = end
    for rows, _ in batches_of(stream, offset):
        found += rows
    shards = sorted(path for path in root.iterdir() if path.is_dir())
    assert len(shards) == 4
    assert sorted(found) == [(shard.name, message.offset) for shard in shards for message in Reader(shard)]


# --- on Spark ---------------------------------------------------------------------------------------------------------


class Sink:
    """Collects the rows of every batch by its number: a repeated batch replaces the first."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}

    def __call__(self, frame: Any, number: int) -> None:
        self.batches[number] = [tuple(row) for row in frame.collect()]

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


def begin(spark: Any, path: Path, checkpoint: Path, sink: Any, schema: str = "", **options: str) -> Any:
    source = spark.readStream.format("sej").options(**options)
    frame = (source.schema(schema) if schema else source).load(str(path))
    return frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).start()


def in_python(root: Path) -> Counter[Row]:
    """All messages of all shards, read without Spark."""
    return Counter(
        (m.offset, m.timestamp, m.type, m.key, m.value, shard.name)
        for shard in root.iterdir()
        if (shard / "jnl").is_dir()
        for m in Reader(shard)
    )


def as_read(rows: list[Row]) -> Counter[Row]:
    return Counter((r[0], r[2], r[3], bytes(r[4]), bytes(r[5]), r[6]) for r in rows)


def test_stream_table_and_python_agree_over_rotation_restarts_and_new_shards(spark: Any, tmp_path: Path) -> None:
    root, sink, dice = tmp_path / "root", Sink(), random.Random(7)

    def write(count: int, keys: int) -> None:
        with ShardedWriter(root, bit=2, segment_size=4000) as writer:
            for _ in range(count):
                stamp = dice.choice([None, -1, dice.randrange(10**18)])
                value, key = dice.randbytes(dice.randrange(200)), b"%d" % dice.randrange(keys)
                writer.append(value, key, dice.randrange(9), stamp)

    write(40, 1)
    assert len(list(root.glob("2.*"))) == 1
    for number in range(2):
        query = begin(spark, root, tmp_path / "checkpoint", sink, splitBytes="2k", maxRecordsPerTrigger="150")
        try:
            for _ in range(2):
                catch_up(query)
                assert as_read(sink.rows) == in_python(root)
                write(100, 10 ** (number + 1))
        finally:
            query.stop()
    query = begin(spark, root, tmp_path / "checkpoint", sink)
    catch_up(query)
    query.stop()
    assert len(list(root.glob("2.*"))) == 4
    assert max(len(Reader(path).segments()) for path in root.glob("2.*")) > 3
    assert as_read(sink.rows) == in_python(root)
    assert sum(in_python(root).values()) == 440
    table = spark.read.format("sej").load(str(root)).collect()
    assert Counter(map(tuple, table)) == Counter(sink.rows)


def test_failed_batch_is_repeated_unchanged_and_every_record_delivered_once(spark: Any, tmp_path: Path) -> None:
    directory = append(tmp_path / "journal", range(50), segment_size=2000)
    sink, asked = Sink(), []

    def failing(frame: Any, number: int) -> None:
        asked.append((number, sorted(row.offset for row in frame.collect())))
        if number == 2:
            raise RuntimeError("killed in the middle of a batch")
        sink(frame, number)

    query = begin(spark, directory, tmp_path / "checkpoint", failing, maxRecordsPerTrigger="12")
    with pytest.raises(StreamingQueryException, match="killed in the middle of a batch"):
        catch_up(query)
    append(directory, range(50, 80), segment_size=2000)
    query = begin(spark, directory, tmp_path / "checkpoint", sink, maxRecordsPerTrigger="12")
    catch_up(query)
    query.stop()
    assert asked[2] == (2, list(range(24, 36)))
    assert sorted(row[0] for row in sink.batches[2]) == list(range(24, 36)), "though there was more by then"
    assert [row[0] for row in sink.rows] == list(range(80))


def test_progress_reports_rows_within_the_limit_and_the_lag(spark: Any, tmp_path: Path) -> None:
    append(tmp_path / "root" / "a", range(50))
    append(tmp_path / "root" / "b", range(10))
    query = begin(spark, tmp_path / "root", tmp_path / "checkpoint", Sink(), maxRecordsPerTrigger="25")
    catch_up(query)
    progress = [entry for entry in query.recentProgress if entry["numInputRows"]]
    query.stop()
    assert [entry["numInputRows"] for entry in progress] == [25, 25, 10]
    assert json.loads(progress[0]["sources"][0]["latestOffset"]) == {"a": {"": 50}, "b": {"": 10}}
    assert [lag_of(entry) for entry in progress] == [
        {"a": {"": 35}, "b": {"": 0}},
        {"a": {"": 10}, "b": {"": 0}},
        {"a": {"": 0}, "b": {"": 0}},
    ]


def test_available_now_on_spark_ends_and_respects_the_limits(spark: Any, tmp_path: Path) -> None:
    directory = append(tmp_path / "journal", range(45))
    sink, total = Sink(), 45

    def growing(frame: Any, number: int) -> None:
        sink(frame, number)
        append(directory, range(5))

    for expected in ([20, 20, 5], [15]):
        frame = spark.readStream.format("sej").option("maxRecordsPerTrigger", 20).load(str(directory))
        writing = frame.writeStream.foreachBatch(growing).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_SECONDS)
        assert [entry["numInputRows"] for entry in query.recentProgress if entry["numInputRows"]] == expected
        assert len(sink.rows) == total
        total += 15


def test_schema_is_a_projection_and_damage_is_a_row_in_permissive(spark: Any, tmp_path: Path) -> None:
    directory = append(tmp_path / "journal", range(100))
    place = list(Reader(directory).scan())[40]
    assert not isinstance(place, Damage)
    path = directory / place.file
    data = bytearray(path.read_bytes())
    data[place.span.start : place.span.start + 20] = b"\xff" * 20
    path.write_bytes(data)
    schema = "_damage STRING, offset BIGINT, _position BIGINT"
    sinks = {mode: Sink() for mode in ("failfast", "permissive", "dropmalformed")}
    for mode, sink in sinks.items():
        query = begin(spark, directory, tmp_path / mode, sink, schema, mode=mode, maxRecordsPerTrigger="30")
        if mode == "failfast":
            with pytest.raises(StreamingQueryException, match=rf"0000000000000000\.jnl @ {place.span.start}"):
                catch_up(query)
        else:
            catch_up(query)
        query.stop()
    assert [row[1] for row in sinks["failfast"].rows] == list(range(30)), "the batch before the damage"
    assert [row[1] for row in sinks["dropmalformed"].rows] == [n for n in range(100) if n != 40]
    (damage,) = [row for row in sinks["permissive"].rows if row[0] is not None]
    assert damage[0].startswith("malformed")
    assert damage[1:] == (None, place.span.start)
    assert len(sinks["permissive"].rows) == 100


def test_data_loss_ends_a_query_or_is_skipped(spark: Any, tmp_path: Path) -> None:
    directory = append(tmp_path / "journal", range(40), segment_size=1000)
    sink = Sink()
    query = begin(spark, directory, tmp_path / "checkpoint", sink)
    catch_up(query)
    query.stop()
    append(directory, range(40, 80), segment_size=1000)
    left = retire(directory)
    query = begin(spark, directory, tmp_path / "checkpoint", sink)
    with pytest.raises(
        StreamingQueryException, match=f"journal: records 40 to {left - 1} were removed before they were read"
    ):
        catch_up(query)
    query = begin(spark, directory, tmp_path / "checkpoint", sink, failOnDataLoss="false")
    catch_up(query)
    query.stop()
    assert [row[0] for row in sink.rows] == [*range(40), *range(left, 80)]


def test_stream_of_mixed_formats_has_the_common_columns(spark: Any, tmp_path: Path) -> None:
    append(tmp_path / "root" / "a", range(3))
    sink = Sink()
    frame = spark.readStream.format("logwright").load(str(tmp_path / "root")).select("journal", "sequence")
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        catch_up(query)
        append(tmp_path / "root" / "deep" / "b", range(2))
        catch_up(query)
    finally:
        query.stop()
    assert sink.rows == [("a", 0), ("a", 1), ("a", 2), ("deep/b", 0), ("deep/b", 1)]
