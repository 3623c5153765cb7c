"""The benchmarks run, label their results, and leave no files. The results themselves are not checked here."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from benchmarks import appendfile, hub, kestrel, query, report, spark, web, yeltsin
from benchmarks.__main__ import SUBJECTS, main
from benchmarks.measure import Figure, Plan, Turns
from rich.console import Console

from logwright.sej.files.reader import Reader


def test_ratio_above_one_means_that_ours_is_better() -> None:
    assert Figure("s", "time", ours=50, peer=100, unit="ns", peer_name="p").ratio == 2
    assert Figure("s", "rate", ours=50, peer=100, unit="/s", peer_name="p", smaller_is_better=False).ratio == 0.5


def test_goal_is_reached_by_the_ratio() -> None:
    figure = Figure("s", "time", ours=50, peer=100, unit="ns", peer_name="p", goal=2.0)
    assert figure.reached is True
    figure.ours = 51
    assert figure.reached is False
    figure.goal = None
    assert figure.reached is None


def test_subjects_alternate_at_least_three_times_and_the_median_is_used() -> None:
    order: list[str] = []
    numbers = iter([5.0, 1.0, 3.0, 0.0, 0.0, 0.0])

    def thing(name: str) -> float:
        order.append(name)
        return next(numbers) if name == "a" else 7.0

    turns = Turns(1).run({"a": lambda: thing("a"), "b": lambda: thing("b")})
    assert order == ["a", "b"] * 3
    assert turns.median("a") == 3.0
    assert turns.results["b"] == [7.0, 7.0, 7.0]


def test_run_prints_one_table_and_writes_json_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, results = tmp_path / "work", tmp_path / "results"
    work.mkdir()
    options = ["--quick", "--rounds", "3", "--directory", str(work), "--results", str(results)]
    assert main(["append_batch", *options]) == 0
    assert list(work.iterdir()) == []
    (path,) = results.glob("*.json")
    written = json.loads(path.read_text())
    (figure,) = written["figures"]
    assert figure["peer_name"] == "plain write of the same bytes"
    assert figure["ratio"] == figure["peer"] / figure["ours"]
    assert len(figure["rounds"]) == 3
    assert written["machine"]["cores"] >= 1
    assert f"{figure['ratio']:.2f}" in capsys.readouterr().out


def test_plot_shows_subjects_with_a_goal(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plot is optional, and so is matplotlib")
    figures = [Figure("s", "fast", 5, 10, "ns", "p", 1.0), Figure("s", "slow", 20, 10, "ns", "p", 1.0)]
    machine = {"logwright": "0", "processor": "some", "file_system": "ext4"}
    assert report.plot(figures, machine, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_table_shows_which_goals_are_reached(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [Figure("s", "fast", 5, 10, "ns", "peer", 1.0), Figure("s", "slow", 20, 10, "ns", "peer", 1.0)]
    report.print_table(figures, Console(width=120))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-2] for line in lines if "peer" in line and "ns" in line] == ["yes", "no"]


def test_unknown_subject_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["colour"])
    assert ended.value.code == 2
    assert ", ".join(SUBJECTS) in capsys.readouterr().err


# --- the queue and its peers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", kestrel.PEERS)
def test_peer_returns_its_items_and_leaves_no_files(name: str, tmp_path: Path) -> None:
    module, opened = kestrel.PEERS[name]
    pytest.importorskip(module, reason="peers are installed for benchmarks only")
    (tmp_path / "own").mkdir()
    with opened(tmp_path / "own") as (put, get):
        put()
        got = get()
    assert getattr(got, "data", got) in (kestrel.ITEM, kestrel.ITEM.decode())
    assert kestrel.pairs(tmp_path, opened, 3) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_every_measurement_of_the_queue_runs(tmp_path: Path) -> None:
    assert kestrel.our_pairs(tmp_path, 100) > 0
    assert kestrel.our_pairs(tmp_path, 100, buffer_bytes=4096) > 0
    assert kestrel.bare_writes(tmp_path, 100) > 0
    assert kestrel.one_writer(tmp_path, 0.01).keys() == {"S", "one writer"}
    assert kestrel.threads(tmp_path, 0.02, 4) > 0
    assert kestrel.tasks(tmp_path, 0.02, 4) > 0
    assert list(tmp_path.iterdir()) == []


def test_backlog_is_filled_opened_and_drained_in_separate_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plan, "amount", lambda self, whole, quick: 20_000 if whole == 10_000_000 else 1 << 20)
    filled, opened, drained, seconds = kestrel.backlog(Plan(tmp_path, quick=True, log=lambda line: None))
    assert all(figure.reached for figure in (filled, opened, drained))
    assert (seconds.peer_name, seconds.goal) == ("reading its files", None)
    assert list(tmp_path.iterdir()) == []


def test_every_measurement_of_the_journal_with_checkpoints_runs(tmp_path: Path) -> None:
    assert appendfile.appended(tmp_path, 2000)["append"] > 0
    assert appendfile.plain(tmp_path, 2000) > 0
    assert appendfile.recovered(tmp_path, 2000)["recover"] > 0
    assert appendfile.tasks(tmp_path, 0.02, 4) > 0
    assert appendfile.one_writer(tmp_path, 0.01).keys() == {"S", "one writer"}
    grown = appendfile.growth(tmp_path, 1000)
    assert grown.keys() == {1000}
    assert grown[1000].keys() == {"append", "register", "check"}
    assert list(tmp_path.iterdir()) == []


# --- the hub ----------------------------------------------------------------------------------------------------------


def test_copy_to_a_hub_and_back_is_measured_with_its_limits(tmp_path: Path) -> None:
    size = hub.write_source(tmp_path / "source", 1000)
    assert size == 139_000
    assert hub.there_and_back(tmp_path, size).keys() == {"copy", "restore"}
    assert hub.written(tmp_path / "source", tmp_path / "file") > 0
    assert hub.streamed(1 << 20) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


# --- the live page ----------------------------------------------------------------------------------------------------


def test_every_measurement_of_the_live_page_runs(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    web.write_journal(tmp_path / "events", 2000)
    web.write_journal(tmp_path / "tail", 1)
    assert web.first_page(tmp_path, 2000) > 0
    with web.serving(tmp_path) as server:
        assert web.jump(server, 2000, 2) >= 0
        assert web.tail(server, tmp_path / "tail", 3, 100) >= 0
        assert web.requests(server, 2000, 2, 0.1) >= 0
        assert server.peak_mib > 0


# --- databases and SQLite ---------------------------------------------------------------------------------------------


def test_every_measurement_of_a_database_and_its_peer_runs(tmp_path: Path) -> None:
    assert yeltsin.not_durable(yeltsin.sqlite(tmp_path, "off"), 20) > 0
    assert yeltsin.not_durable(yeltsin.ours(tmp_path, "none", 0), 20) > 0
    assert yeltsin.not_durable(yeltsin.bare(tmp_path, syncs=False), 200) > 0
    found = yeltsin.durable(tmp_path, 0.01)
    assert found.keys() == {"SQLite, WAL, FULL", "always, checkpoints", "always", yeltsin.DURABLE_LIMIT}
    assert min(found.values()) > 0
    home = yeltsin.long_journal(tmp_path, 300)
    assert yeltsin.opening(home, 300) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["long"]


# --- SQL --------------------------------------------------------------------------------------------------------------


def test_every_measurement_of_queries_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "amount", lambda self, whole, quick: 4 << 20 if whole == 1 << 30 else 1000)
    figures = query.run(Plan(tmp_path, log=lambda line: None))
    assert {figure.peer_name for figure in figures} > {"read_json of the same", "DuckDB on Parquet"}
    assert min(figure.ours for figure in figures) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


# --- what the figures of Spark rest on --------------------------------------------------------------------------------


def test_spark_reads_the_same_messages_from_json_from_one_file_and_from_four(tmp_path: Path) -> None:
    one, four = spark.write_journal(tmp_path / "one", 1000), spark.write_journal(tmp_path / "four", 1000, 4)
    lines = spark.write_json(tmp_path / "messages.json", 1000).read_text().splitlines()
    found = [(m.offset, m.timestamp, m.type, m.key.decode(), m.value.decode()) for m in Reader(one)]
    assert [tuple(json.loads(line).values()) for line in lines] == found
    assert list(Reader(four)) == list(Reader(one))
    sizes = [segment.path.stat().st_size for segment in Reader(four).segments()]
    assert [size for size in sizes if size] == [1000 * 139 / 4] * 4


def test_source_without_decoding_returns_the_planned_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from benchmarks.prepared import PreparedReader, prepare

    batch = pa.record_batch({"offset": pa.array(range(30))})
    reader = PreparedReader(str(prepare(batch, tmp_path / "batch")), [70, 30, 0])
    found = [list(reader.read(partition)) for partition in reader.partitions()]
    assert [[part.num_rows for part in parts] for parts in found] == [[30, 30, 10], [30], []]
    assert found[0][2].column(0).to_pylist() == list(range(10))


def test_one_percent_by_time_is_one_percent(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    journal = spark.write_journal(tmp_path / "journal", 1000)
    assert spark.kept_between(journal, 500, 510) == 10
