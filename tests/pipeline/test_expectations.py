"""Rows that do not meet an expectation are counted, put into quarantine, or fail the run; with and without Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from logwright import kestrel, sej, versioned
from logwright.errors import ExpectationFailed, WrongUse
from logwright.pipeline import Expectation, JournalRule, Settings, load
from logwright.pipeline.expectations import Checker
from logwright.pipeline.report.figures import ExpectationFigures
from logwright.pipeline.run import Result, compact, run
from tests.cli.support import run as run_command
from tests.pipeline.worlds import read_table

PRICES = JournalRule("*", decode="json", columns=(("price", "double"),))


def append(root: Path, *prices: float | None) -> None:
    with sej.Writer(root / "orders") as writer:
        for price in prices:
            writer.append(json.dumps({"price": price}).encode(), b"key", timestamp=1_700_000_000_000_000_000)


def increment(root: Path, out: Path, *expectations: Expectation, **more: Any) -> Result:
    settings = Settings(
        str(root), str(out), incremental=True, journal_rules=(PRICES,), expectations=expectations, **more
    )
    return run(settings, lambda: pytest.fail("Spark was started"))


def column(out: Path, table: str, name: str, format: str = "parquet") -> list[Any]:
    return sorted(read_table(out, table, format)[name].to_pylist(), key=repr)


def test_rows_in_quarantine_are_complete_and_not_in_their_table(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    positive = Expectation("messages", "price >= 0", "quarantine", "positive")
    small = Expectation("messages", "price < 100", "quarantine")
    append(root, 1, -2, None, 5)
    result = increment(root, out, positive, small)
    assert column(out, "messages", "price") == [1.0, 5.0]
    assert result.expectations == [
        ExpectationFigures("positive", "messages", "price >= 0", "quarantine", 2, 2),
        ExpectationFigures("price < 100", "messages", "price < 100", "quarantine", 1, 1),
    ], "a condition that is null is not met"
    rows = read_table(out, "quarantine").sort_by("position").to_pylist()
    assert [(row["table"], row["journal"], row["reason"]) for row in rows] == [
        ("messages", "orders", "positive: does not meet price >= 0"),
        ("messages", "orders", "positive: does not meet price >= 0; does not meet price < 100"),
    ]
    whole = json.loads(rows[0]["row"])
    assert (whole["price"], whole["offset"], whole["timestamp"], whole["key"]) == (
        -2.0,
        1,
        "2023-11-14T22:13:20Z",
        "a2V5",
    )
    assert (rows[0]["file"], rows[0]["position"]) == (whole["file"], whole["position"])
    assert result.tables["quarantine"].rows == 2
    assert len(column(out, "events", "sequence")) == 4, "events are rows of another table"

    append(root, 200, 7)
    result = increment(root, out, positive, small)
    assert column(out, "messages", "price") == [1.0, 5.0, 7.0]
    assert [(each.failed, each.new) for each in result.expectations] == [(2, 0), (2, 1)]
    assert len(column(out, "quarantine", "row")) == 3
    compact(str(out))
    assert len(column(out, "quarantine", "row")) == 3
    page = (out / "report.html").read_text()
    assert "<h2>Expectations</h2>" in page
    assert "price &gt;= 0" in page


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_quarantine_may_begin_later_and_in_every_format(tmp_path: Path, format: str) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    append(root, -1)
    increment(root, out, format=format)
    append(root, -2, 3)
    increment(root, out, Expectation("messages", "price >= 0", "quarantine"), format=format)
    assert column(out, "messages", "price", format) == [-1.0, 3.0]
    assert [json.loads(row)["price"] for row in column(out, "quarantine", "row", format)] == [-2.0]
    append(root, -4)
    result = increment(root, out, format=format)
    assert (column(out, "messages", "price", format), result.tables["quarantine"].rows) == ([-1.0, -4.0, 3.0], 1)


def test_warning_changes_nothing_but_counts(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    append(root, 1, -2)
    result = increment(root, out, Expectation("messages", "price >= 0"))
    assert (column(out, "messages", "price"), "quarantine" in result.tables) == ([-2.0, 1.0], False)
    assert [(each.action, each.failed, each.new) for each in result.expectations] == [("warn", 1, 1)]


def test_failing_leaves_the_tables_as_they_were(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    strict = Expectation("messages", "price >= 0", "fail", "positive")
    append(root, 1)
    increment(root, out, strict)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.suffix != ".tmp"}
    append(root, -2, -3, 4)
    with pytest.raises(ExpectationFailed, match="messages: 2 rows do not meet the expectation 'positive'"):
        increment(root, out, strict)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert increment(root, out).records == 3


def test_live_rows_leave_quarantine_when_they_meet_the_condition(tmp_path: Path) -> None:
    """Their state is that of the replay, whatever is in quarantine."""
    root, out = tmp_path / "root", tmp_path / "out"
    done = Expectation("queue_items", "state <> 'waiting'", "quarantine")
    with kestrel.Writer(root / "queues" / "cars") as writer:
        writer.addx(b"one")
        writer.addx(b"two")
    result = increment(root, out, done)
    assert (column(out, "queue_items", "item"), result.expectations[0].failed) == ([], 2)
    with kestrel.Writer(root / "queues" / "cars") as writer:
        writer.remove()
    result = increment(root, out, done)
    assert (column(out, "queue_items", "state"), result.expectations[0].failed) == (["done"], 1)
    assert [json.loads(row)["state"] for row in column(out, "quarantine", "row")] == ["waiting"]
    assert "1 waiting" not in (out / "report.html").read_text()


def test_keys_and_versions_are_checked_as_json(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    with versioned.VersionedKVStore(root / "stores", "cars", background=False) as store:
        store.insert("a", {"number": 1})
        store.insert("b", {"number": -1})
    expectation = Expectation("kv_state", "CAST(o->>'number' AS INTEGER) > 0", "quarantine")
    increment(root, out, expectation)
    assert (column(out, "kv_state", "k"), len(column(out, "kv_history", "k"))) == (["a"], 2)


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        (Expectation("messages", "cost > 0"), "expect 'cost > 0' on messages: .*cost"),
        (Expectation("messages", "price >"), "expect 'price >' on messages: Parser Error"),
        (Expectation("messages", "1) FROM rows; --"), "expect '1\\) FROM rows; --' on messages: Parser Error"),
        (Expectation("messages", "true FROM range(3)) --"), "on messages: Parser Error"),
        (Expectation("messages", "EXISTS (FROM 'secrets.csv')"), "on messages: .*(Permission|disabled)"),
        (Expectation("damage", "size > 0"), "the rows of 'damage' are not checked; choose one of events, messages"),
        (Expectation("mesages", "size > 0"), "the rows of 'mesages' are not checked"),
    ],
)
def test_condition_that_cannot_be_evaluated_is_refused_before_anything_is_read(
    tmp_path: Path, expectation: Expectation, message: str
) -> None:
    append(tmp_path / "root", 1)
    with pytest.raises(WrongUse, match=message):
        increment(tmp_path / "root", tmp_path / "out", expectation)
    assert not (tmp_path / "out").exists()


def test_wrong_expectations_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    append(root, 1)
    twice = Expectation("messages", "price > 0")
    with pytest.raises(WrongUse, match="there are two of this name"):
        increment(root, out, twice, twice)
    with pytest.raises(WrongUse, match="the table messages is not made by this run"):
        increment(root, out, twice, tables=("events",))
    with pytest.raises(WrongUse, match="action: there is no 'stop'; there are warn, quarantine, fail"):
        Expectation("messages", "price > 0", "stop")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(WrongUse, match=r"\[\[expect\]\] needs DuckDB.*: pip install 'logwright\[sql\]'"):
        increment(root, out, twice)


def test_expectations_of_a_file_are_honoured_by_the_command(tmp_path: Path) -> None:
    append(tmp_path / "root", 1, -2)
    file = tmp_path / "pipeline.toml"
    text = 'journals = "root"\nout = "out"\ntables = ["messages"]\n[[journal]]\nmatch = "*"\ndecode = "json"\n'
    text += 'columns = {price = "double"}\n[[expect]]\ntable = "messages"\ncondition = "price >= 0"\n'
    file.write_text(text + 'action = "quarantine"\nname = "positive"\n')
    assert load(file).expectations == (Expectation("messages", "price >= 0", "quarantine", "positive"),)
    done = run_command("pipeline", "run", "--config", str(file), "--json")
    assert "messages: 1 row does not meet 'positive' and is in the table quarantine" in done.err
    found = json.loads(done.out)
    wanted = {"name": "positive", "table": "messages", "condition": "price >= 0", "action": "quarantine"}
    assert found["expectations"] == [{**wanted, "failed": 1, "new": 1}]
    assert (found["tables"]["messages"]["rows"], found["tables"]["quarantine"]["rows"]) == (1, 1)
    file.write_text(text + 'action = "fail"\n')
    failed = run_command("pipeline", "run", "--config", str(file))
    assert (failed.code, "messages: 1 row does not meet the expectation price >= 0" in failed.err) == (2, True)
    for wrong, message in (
        ('[[expect]]\ntable = "messages"\n', "an [[expect]] needs a condition"),
        ('[[expect]]\ntable = "messages"\ncondition = "true"\nactoin = "warn"\n', "'actoin' is not known in expect"),
        ("[expect]\n", "expectations are written under [[expect]]"),
    ):
        file.write_text(f'journals = "root"\nout = "out"\n{wrong}')
        with pytest.raises(WrongUse) as error:
            load(file)
        assert message in str(error.value)


def test_checker_without_expectations_needs_no_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with Checker(()) as checker:
        rows: Any = object()
        assert checker.split("messages", rows) == (rows, None, {})
