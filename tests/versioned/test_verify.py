"""`verify` and `inspect`: each kind of problem and anomaly, with its file and byte."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from logwright.core.times import shown_time
from logwright.errors import DamagedJournal
from logwright.versioned import Entry, Reader, VersionedKVStore
from logwright.versioned.bytes.layout import HEADER_BYTES
from logwright.versioned.files.files import archive_name
from tests.versioned.samples import START, Model, journal, with_position

ENTRIES = [Entry(START + number, f"key {number % 3}", number) for number in range(12)]


def rotated(tmp_path: Path) -> tuple[Model, Path]:
    model = Model()
    for number, entry in enumerate(ENTRIES):
        model.change(entry)
        if number % 4 == 3:
            model.rotate()
    return model, model.write(tmp_path)


def kinds(path: Path) -> tuple[list[str], list[str]]:
    report = Reader(path).verify()
    return [problem.kind for problem in report.problems], [anomaly.kind for anomaly in report.anomalies]


def test_sound_store_has_no_problems(tmp_path: Path) -> None:
    _, path = rotated(tmp_path)
    steps: list[tuple[int, int]] = []
    report = Reader(path).verify(progress=lambda done, total: steps.append((done, total)))
    assert report.sound
    assert report.anomalies == []
    assert report.records == Reader(path).count()
    assert all(done <= total for done, total in steps)


def test_missing_archive_is_a_gap(tmp_path: Path) -> None:
    model, path = rotated(tmp_path)
    (tmp_path / archive_name("cars", model.archives[1][0])).unlink()
    (problem,) = Reader(path).verify().problems
    assert problem.kind == "gap"
    assert str(model.archives[0][0]) in problem.message
    assert problem.file == archive_name("cars", model.archives[2][0])
    health = Reader(path).summary().health
    assert health == f"damaged at {problem.file} @ 17: {problem.message}"
    assert problem.message.startswith(f"it begins at {shown_time(model.archives[1][0])}, and not ")
    assert problem.message.endswith(f"ended at {shown_time(model.archives[0][0])}: one is missing")


def test_torn_tail_and_bad_bytes_are_reported_with_their_position(tmp_path: Path) -> None:
    data = journal(START, ENTRIES)
    path = tmp_path / "cars.jrn"
    path.write_bytes(with_position(data[:-2], len(data) - 2))
    (problem,) = Reader(path).verify().problems
    assert (problem.file, problem.kind) == ("cars.jrn", "torn_tail")
    assert path.stat().st_size - problem.position < 30
    path.write_bytes(data[:100] + b"\xff\xff\xff" + data[103:])
    assert kinds(path)[0] == ["malformed"]


def test_decreasing_times_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "cars.jrn"
    path.write_bytes(journal(START, [ENTRIES[3], ENTRIES[1], ENTRIES[2]]))
    (problem,) = Reader(path).verify().problems
    assert problem.kind == "time_goes_back"
    assert problem.position > 56
    found = list(Reader(path).entries(mode="dropmalformed"))
    assert found == [ENTRIES[3], ENTRIES[2]]


def test_state_that_a_journal_begins_with_may_be_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "cars.jrn"
    path.write_bytes(journal(ENTRIES[3].t, [ENTRIES[3], ENTRIES[1], ENTRIES[2]]))
    assert kinds(path) == ([], [])


def test_leftovers_are_anomalies_of_a_sound_store(tmp_path: Path) -> None:
    _, path = rotated(tmp_path)
    for name in ("cars.jrn.tmp", "cars.jrn.t5.zz.tmp", "cars.jrn.what"):
        (tmp_path / name).write_bytes(b"x")
    problems, anomalies = kinds(path)
    assert problems == []
    assert sorted(anomalies) == ["foreign_file", "temporary_file", "temporary_file"]


def test_unknown_fields_are_anomalies(tmp_path: Path) -> None:
    path = tmp_path / "cars.jrn"
    path.write_bytes(journal(START, ENTRIES, host="here"))
    assert kinds(path) == ([], ["unknown_fields"])


def test_archive_that_cannot_be_decompressed_is_a_problem(tmp_path: Path) -> None:
    model, path = rotated(tmp_path)
    (tmp_path / archive_name("cars", model.archives[0][0])).write_bytes(b"no zlib")
    assert kinds(path)[0] == ["malformed"]
    assert Reader(path).summary().damaged


def test_summary_describes_the_store(tmp_path: Path) -> None:
    model, path = rotated(tmp_path)
    summary = Reader(path).summary()
    assert (summary.format, summary.files, summary.health) == ("versioned", 4, "sound so far")
    assert summary.details["archives"] == 3
    assert summary.details["history_from"] == START
    assert summary.first is not None
    assert (summary.first["t"], summary.first["k"]) == (START, "key 0")
    assert summary.last is not None
    assert summary.records == sum(len(_entries_in(data)) for _, data in model.archives) + 3


def _entries_in(data: bytes) -> list[bytes]:
    return zlib.decompress(zlib.compress(data)).split(b"\x9a\x81t")[1:]


def test_journal_replaced_by_its_predecessor_is_reported(tmp_path: Path) -> None:
    _, path = rotated(tmp_path)
    path.rename(path.with_name("cars.jrn.old"))
    path.write_bytes(bytes(4096))
    assert kinds(path) == (["torn_tail"], ["leftover"])
    path.write_bytes(b"no journal")
    assert kinds(path) == (["malformed"], ["leftover"])
    assert Reader(path).verify().problems[0].file == "cars.jrn"


def test_journal_without_metadata_is_not_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "cars.jrn"
    path.write_bytes(with_position(journal(START, []), HEADER_BYTES))
    (problem,) = Reader(path).verify().problems
    assert (problem.kind, problem.position) == ("malformed", HEADER_BYTES)
    assert problem.message.startswith("there is no metadata")
    with pytest.raises(DamagedJournal):
        VersionedKVStore(tmp_path, "cars")
