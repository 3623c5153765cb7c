"""Metrics and events of a run, as Prometheus and OpenLineage define them; and how often a run looks at its journals."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from logwright import kestrel, sej, yeltsin
from logwright.errors import ExpectationFailed, NotFound, WrongUse
from logwright.pipeline import Expectation, Settings, load, stamps
from logwright.pipeline import run as runs
from logwright.pipeline.observe.lineage import dataset_of
from logwright.pipeline.observe.metrics import MetricsFile
from logwright.pipeline.run import run
from tests.cli.support import run as run_command
from tests.pipeline.journals import damage

SAMPLE = re.compile(r'(logwright_pipeline_\w+)\{((?:\w+="(?:[^"\\\n]|\\.)*",?)+)\} (\S+)')


def metrics_in(path: Path) -> dict[tuple[str, ...], float]:
    """The samples of a file in the text format: name and values of labels but the first, and the number."""
    found = {}
    kinds: dict[str, str] = {}
    text = path.read_text()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            assert kinds[sample[1]] == ("counter" if sample[1].endswith("_total") else "gauge")
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2])
            assert labels[0][0] == "pipeline"
            found[sample[1].removeprefix("logwright_pipeline_"), *(value for _, value in labels[1:])] = float(sample[3])
    return found


def journals(root: Path) -> None:
    with sej.Writer(root / "orders") as writer:
        for number in range(20):
            writer.append(b"%d" % number)
    with kestrel.Writer(root / "queues" / "cars") as writer:
        writer.addx(b"one")


def test_metrics_describe_the_tables_and_the_last_batch(tmp_path: Path) -> None:
    root, out, file = tmp_path / "root", tmp_path / 'o"ut', tmp_path / "logwright.prom"
    journals(root)
    damage(root / "orders", 7)
    odd = Expectation("messages", '"offset" % 2 = 0', name="even")
    settings = Settings(str(root), str(out), incremental=True, metrics=str(file), expectations=(odd,))
    result = run(settings)
    found = metrics_in(file)
    records = result.journals["orders"].records
    assert (found["records_total", "sej"], found["records_total", "kestrel"]) == (records, 1)
    assert found["damage_total", "sej", "malformed"] == 1
    assert found["table_rows", "messages"] == records == result.tables["messages"].rows
    assert found["table_bytes", "events"] == result.tables["events"].bytes
    assert (found["failed",], found["batches_total",], found["batch_records",]) == (0, 1, records + 1)
    assert found["expectation_failed_rows", "even", "messages", "warn"] == result.expectations[0].failed > 0
    assert found["complete_timestamp_seconds",] <= found["batch_timestamp_seconds",]
    assert found["batch_lag_seconds",] >= found["batch_seconds",] > 0
    assert run(settings).batches == 0
    again = metrics_in(file)
    assert (again["records_total", "sej"], again["batches_total",]) == (records, 1)
    assert again["complete_timestamp_seconds",] > found["complete_timestamp_seconds",]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["logwright.prom"]


def test_failure_is_in_the_metrics_and_a_file_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    root, out, file = tmp_path / "root", tmp_path / "out", tmp_path / "logwright.prom"
    journals(root)
    strict = Expectation("messages", "false", "fail")
    with pytest.raises(ExpectationFailed):
        run(Settings(str(root), str(out), metrics=str(file), expectations=(strict,)))
    assert metrics_in(file) == {("failed",): 1, ("failures_total",): 1}
    result = run(Settings(str(root), str(out), metrics=str(tmp_path / "missing" / "file.prom")))
    assert result.tables["messages"].rows == 20
    assert [note.partition(":")[0] for note in result.notes] == ["the metrics could not be written"]


def test_run_that_fails_at_once_keeps_the_last_good_figures(tmp_path: Path) -> None:
    root, out, file = tmp_path / "root", tmp_path / "out", tmp_path / "logwright.prom"
    journals(root)
    settings = Settings(str(root), str(out), incremental=True, metrics=str(file))
    run(settings)
    good = metrics_in(file)
    assert (good["failed",], good["failures_total",]) == (0, 0)
    root.rename(tmp_path / "elsewhere")
    for failures in (1, 2):
        with pytest.raises(NotFound):
            run(settings)
        assert metrics_in(file) == good | {("failed",): 1, ("failures_total",): failures}
    (tmp_path / "elsewhere").rename(root)
    run(settings)
    again = metrics_in(file)
    assert (again["failed",], again["failures_total",]) == (0, 2)
    assert again["batch_records",] == 21  # of the last batch, which was before the failures
    run(Settings(str(root), str(tmp_path / "other"), metrics=str(file)))
    assert metrics_in(file)["failures_total",] == 0  # the metrics of other tables are not kept


def test_lag_is_known_while_the_pipeline_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, out, file = tmp_path / "root", tmp_path / "out", tmp_path / "logwright.prom"
    seen: list[tuple[float, float | None]] = []
    write = MetricsFile._write

    def writing(self: MetricsFile, *, has_failed: bool) -> None:
        write(self, has_failed=has_failed)
        found = metrics_in(file)
        seen.append((found["behind",], found.get(("complete_timestamp_seconds",))))
        if len(seen) == 2:  # while it is behind, there is more
            write_more()

    def write_more() -> None:
        with sej.Writer(root / "orders") as writer:
            for _ in range(4):
                writer.append(b"v" * 1000)

    write_more()
    monkeypatch.setattr(MetricsFile, "_write", writing)
    run(Settings(str(root), str(out), incremental=True, batch_bytes=1100, metrics=str(file)))
    run(Settings(str(root), str(out), incremental=True, batch_bytes=1100, metrics=str(file)))
    behind, times = [each for each, _ in seen], [at for _, at in seen]
    assert behind[:4] == [1, 1, 1, 1]
    assert behind[-1] == 0
    assert times[:3] == [None] * 3  # not all that the first look has found is in the tables
    known = [at for at in times if at is not None]
    assert known == sorted(known)
    assert len(set(known)) > 1
    assert times[3] == times[4] is not None  # all of the first look is there, while more has come


def test_metrics_have_no_secrets(tmp_path: Path) -> None:
    observer = MetricsFile(str(tmp_path / "m.prom"), "s3://key:secret@bucket/prefix?region=x")
    observer.end(None)
    assert 'pipeline="s3://bucket/prefix"' in (tmp_path / "m.prom").read_text()


# --- lineage ----------------------------------------------------------------------------------------------------------


def check_event(event: dict[str, Any]) -> None:
    """What the schema of OpenLineage requires of a RunEvent and of facets."""
    assert event["eventType"] in ("START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER")
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert event["schemaURL"] == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    assert event["producer"].startswith("pkg:pypi/logwright@")
    uuid.UUID(event["run"]["runId"])
    assert event["job"]["namespace"]
    assert event["job"]["name"]
    facets = [*event["run"]["facets"].values()]
    for dataset in (*event["inputs"], *event["outputs"]):
        assert dataset["namespace"]
        assert dataset["name"]
        facets += [*dataset["facets"].values(), *dataset.get("outputFacets", {}).values()]
    for facet in facets:
        assert {"_producer", "_schemaURL"} <= facet.keys()
        assert re.fullmatch(r"https://openlineage.io/spec/facets/1-0-0/(\w+).json#/\$defs/\1", facet["_schemaURL"])


def test_events_of_a_run_name_journals_and_tables(tmp_path: Path) -> None:
    root, out, file = tmp_path / "root", tmp_path / "out", tmp_path / "events.jsonl"
    journals(root)
    result = run(Settings(str(root), str(out), lineage=str(file)))
    start, complete = map(json.loads, file.read_text().splitlines())
    for event in (start, complete):
        check_event(event)
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert (start["run"]["runId"], start["job"]) == (complete["run"]["runId"], complete["job"])
    assert [each["name"] for each in complete["inputs"]] == [f"{root}/orders", f"{root}/queues"]
    messages = next(each for each in complete["outputs"] if each["name"] == f"{out}/messages")
    numbers = messages["outputFacets"]["outputStatistics"]
    assert (numbers["rowCount"], numbers["size"]) == (20, result.tables["messages"].bytes)
    assert messages["facets"]["schema"]["fields"][0] == {"name": "journal", "type": "string"}
    strict = Expectation("messages", "false", "fail")
    with pytest.raises(ExpectationFailed):
        run(Settings(str(root), str(out), lineage=str(file), expectations=(strict,)))
    failed = json.loads(file.read_text().splitlines()[-1])
    check_event(failed)
    assert (failed["eventType"], failed["run"]["runId"] != complete["run"]["runId"]) == ("FAIL", True)
    assert "20 rows do not meet" in failed["run"]["facets"]["errorMessage"]["message"]


def test_input_of_a_run_on_one_journal_is_that_journal(tmp_path: Path) -> None:
    journals(tmp_path / "root")
    for name, journal in (("orders", "orders"), ("queues", "queues"), ("queues/cars", "queues/cars")):
        file = tmp_path / f"{name.replace('/', ' ')}.jsonl"
        path = tmp_path / "root" / name
        run(Settings(str(path), str(tmp_path / file.stem), lineage=str(file)))
        complete = json.loads(file.read_text().splitlines()[-1])
        assert [each["name"] for each in complete["inputs"]] == [f"{tmp_path}/root/{journal}"]


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[str | None, Any]]]]:
    """A server that keeps the events that it gets, each with its token."""
    received: list[tuple[str | None, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.headers.get("Authorization"), json.loads(body)))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_address[1]}/api/v1/lineage", received
        finally:
            listening.shutdown()
            thread.join()


def test_events_are_sent_to_a_url_and_a_server_that_fails_is_a_note(
    tmp_path: Path, server: tuple[str, list[tuple[str | None, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    journals(tmp_path / "root")
    url, received = server
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "token")
    assert run(Settings(str(tmp_path / "root"), str(tmp_path / "out"), lineage=url)).notes == []
    assert [(token, event["eventType"]) for token, event in received] == [
        ("Bearer token", "START"),
        ("Bearer token", "COMPLETE"),
    ]
    nowhere = "http://user:password@127.0.0.1:1/api"
    result = run(Settings(str(tmp_path / "root"), str(tmp_path / "out"), lineage=nowhere))
    assert result.tables["messages"].rows == 20
    (note,) = result.notes
    assert "events of OpenLineage could not be sent to http://127.0.0.1:1/api" in note
    with pytest.raises(WrongUse, match="not to ftp://"):
        run(Settings(str(tmp_path / "root"), str(tmp_path / "out"), lineage="ftp://host/events"))


def test_data_sets_are_named_as_openlineage_names_them() -> None:
    assert dataset_of("/data/tables/events") == ("file", "/data/tables/events")
    assert dataset_of("file:///data/tables") == ("file", "/data/tables")
    assert dataset_of("s3://key:secret@bucket/a/b?region=x") == ("s3://bucket", "a/b")


# --- how often --------------------------------------------------------------------------------------------------------


class Waits:
    """An event that notes how long it is waited for, and is set after some waits."""

    def __init__(self, most: int) -> None:
        self.seconds: list[float] = []
        self._most = most

    def is_set(self) -> bool:
        return len(self.seconds) >= self._most

    def wait(self, seconds: float) -> None:
        self.seconds.append(seconds)


def test_run_looks_at_its_journals_at_intervals(tmp_path: Path) -> None:
    journals(tmp_path / "root")
    settings = Settings(str(tmp_path / "root"), str(tmp_path / "out"), follow=True, lineage=str(tmp_path / "events"))
    stop: Any = Waits(2)
    assert run(settings, stop=stop).batches == 1
    assert stop.seconds == [runs.POLL_SECONDS] * 2, "no wait after the batch, and then as long as nothing is new"
    kinds = [json.loads(line)["eventType"] for line in (tmp_path / "events").read_text().splitlines()]
    assert kinds == ["START", "RUNNING", "COMPLETE"]
    stop = Waits(3)
    run(Settings(str(tmp_path / "root"), str(tmp_path / "other"), follow=True, interval_seconds=600.0), stop=stop)
    assert len(stop.seconds) == 3
    assert all(500 < seconds < 600 for seconds in stop.seconds), "also after a batch, less what that took"


def test_pause_is_in_proportion_to_the_comparison_of_files_not_to_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with yeltsin.Database(tmp_path / "root.ydb", tmp_path / "root.jrnl") as database, database.transaction() as running:
        running.modify(database.pages()[0], 0, b"x")  # its journal is looked at every time
    monkeypatch.setattr(stamps, "_RECENT_NS", 0)
    now = [0.0]
    monkeypatch.setattr(runs, "time", mock.Mock(wraps=time, monotonic=lambda: now[0]))
    look, touched = runs._Run._look, runs._Idle.touched

    def slow_look(*arguments: Any) -> Any:
        now[0] += 2
        return look(*arguments)

    def slow_comparison(*arguments: Any) -> Any:
        now[0] += 0.25
        return touched(*arguments)

    monkeypatch.setattr(runs._Run, "_look", slow_look)
    monkeypatch.setattr(runs._Idle, "touched", slow_comparison)
    stop: Any = Waits(4)
    assert run(Settings(str(tmp_path), str(tmp_path / "out"), follow=True), stop=stop).batches == 1
    assert stop.seconds == [50 * 0.25] * 4


def test_settings_of_observers_come_from_the_file_and_the_command(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('journals = "root"\nout = "out"\ninterval = 5\nmetrics = "m.prom"\nlineage = "http://host/api"\n')
    found = load(file)
    assert (found.interval_seconds, found.metrics, found.lineage) == (5.0, str(tmp_path / "m.prom"), "http://host/api")
    for wrong in ("interval = 0", "interval = true", 'interval = "often"'):
        file.write_text(f'journals = "root"\nout = "out"\n{wrong}\n')
        with pytest.raises(WrongUse, match="interval must be"):
            load(file)
    journals(tmp_path / "root")
    options = ("--journals", tmp_path / "root", "--out", tmp_path / "out", "--tables", "events")
    done = run_command("pipeline", "run", *options, "--metrics", tmp_path / "m.prom", "--lineage", tmp_path / "l.jsonl")
    assert done.code == 0
    assert metrics_in(tmp_path / "m.prom")["table_rows", "events"] == 21
    assert len((tmp_path / "l.jsonl").read_text().splitlines()) == 2
