"""The pipeline on the command line, without Spark: errors are reported before Spark is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from logwright.arrow.discovery import Journal
from logwright.cli.pipeline import _Display, _spark_settings, _Stopping
from logwright.errors import WrongUse
from logwright.pipeline import JournalRule, Settings, TableRule
from logwright.pipeline.checks import check_settings, unused_rules
from logwright.pipeline.failures import SparkFailed, error_from, naming_full_disk
from logwright.pipeline.own_spark import reason_in
from tests.cli.support import Outcome, assert_one_error_line, execute, run


def pipeline(journals: object, out: object, *more: object) -> Outcome:
    return run("pipeline", "run", "--journals", journals, "--out", out, *more)


def error_of(outcome: Outcome) -> str:
    """The last line on stderr; the preceding lines report the steps."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    return outcome.err.splitlines()[-1].removeprefix("logwright: error: ")


# --- where from and where to ------------------------------------------------------------------------------------------


def test_missing_root_or_root_without_journals_is_reported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    missing = pipeline(tmp_path / "missing", tmp_path / "out")
    assert error_of(missing) == f"{tmp_path / 'missing'}: no such file or directory"
    nothing = pipeline(tmp_path / "empty", tmp_path / "out")
    assert error_of(nothing) == f"{tmp_path / 'empty'}: no journal of any known format is at or below this path"
    excluded = tmp_path / "pipeline.toml"
    excluded.write_text('journals = "samples"\nout = "out"\n[[journal]]\nmatch = "*"\nexclude = true\n')
    assert run("demo", tmp_path / "samples").code == 0
    assert "no journal of any known format" in error_of(run("pipeline", "run", "--config", excluded))
    assert not (tmp_path / "out").exists()


def test_tables_cannot_contain_or_be_inside_a_journal(demo: Path) -> None:
    assert "choose another directory for the tables" in error_of(pipeline(demo, demo.parent))
    assert "choose another directory for the tables" in error_of(pipeline(demo, demo))
    assert "choose another directory for the tables" in error_of(pipeline(demo, demo / "orders" / "tables"))
    assert "choose delta or iceberg for object stores" in error_of(pipeline(demo, "s3://bucket/tables"))


def test_directory_with_other_files_is_not_written_to(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("precious")
    assert "contains other files (thesis.txt, …)" in error_of(pipeline(demo, tmp_path / "out"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_unknown_choices_are_reported(demo: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "table: there is no 'evnts'; there are events" in error_of(pipeline(demo, out, "--tables", "evnts"))
    assert "write a Spark setting as spark.driver.memory=4g" in error_of(pipeline(demo, out, "--spark", "x=1"))
    assert "--tables: name at least one table" in error_of(pipeline(demo, out, "--tables", " , "))
    assert "format: there is no 'parket'; did you mean parquet?" in error_of(pipeline(demo, out, "--format", "parket"))
    assert "'yesterday' is not a time" in error_of(pipeline(demo, out, "--at", "yesterday"))
    (tmp_path / "p.toml").write_text("jornals = 'x'")
    assert_one_error_line(run("pipeline", "run", "--config", tmp_path / "p.toml"), 2, "'jornals' is not known")
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("[table.messages]\npartition_by = ['jornal']", "table.messages.partition_by: there is no 'jornal'; there are"),
        ("[table.files]\npartition_by = ['date']", "table.files.partition_by: there is no 'date'; there are format, "),
        ("[table.messages]\npartition_by = ['value']", "table.messages.partition_by: value is binary; choose a text"),
        ("[options]\ncompression = 'zip'", "options.compression: there is no 'zip'; "),
        ("[[journal]]\nmatch = 'a'\ndecode = 'avro'\nschema = 'missing.avsc'", "missing.avsc: no such file"),
        ("[[journal]]\nmatch = 'a'\ndecode = 'avro'\nschema = 'p.toml'", "p.toml: this is not an Avro schema: "),
    ],
)
def test_errors_in_a_configuration_are_reported_before_spark_starts(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reported: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # without Java
    (tmp_path / "p.toml").write_text(text)
    assert reported in error_of(pipeline(demo, tmp_path / "out", "--config", tmp_path / "p.toml"))
    assert not (tmp_path / "out").exists()


def test_decoded_columns_can_be_partition_columns() -> None:
    rules = {"messages": TableRule(("decode_error", "date", "hour"))}
    tables = ["messages"]
    check_settings(Settings("a", "b", table_rules=rules, journal_rules=(JournalRule("*", decode="json"),)), tables)
    with pytest.raises(WrongUse, match="there is no 'decode_error'"):
        check_settings(Settings("a", "b", table_rules=rules), tables)


def test_unused_rules_are_reported_unless_they_exclude() -> None:
    rules = [JournalRule("orders/*"), JournalRule("ord*"), JournalRule("scratch", exclude=True)]
    reported = unused_rules(rules, [Journal("sej", "/journals/orders", "orders")])
    assert reported == ["no journal matches the rule match = 'orders/*'"]


def test_settings_of_spark_keep_their_names() -> None:
    assert _spark_settings(["spark.a_b.c=1=2", "spark.x="]) == {"spark.a_b.c": "1=2", "spark.x": ""}
    with pytest.raises(WrongUse, match="--spark memory=4g"):
        _spark_settings(["memory=4g"])


# --- what is missing --------------------------------------------------------------------------------------------------


def test_missing_java_is_reported_in_one_line(demo: Path, tmp_path: Path) -> None:
    nothing = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    (tmp_path / "p.toml").write_text("local = 1")  # so little is done without Spark otherwise
    places = ("--journals", demo, "--out", tmp_path / "out", "--config", tmp_path / "p.toml")
    outcome = execute("pipeline", "run", *places, env=nothing)
    assert error_of(outcome) == "Spark needs Java 17 or later, and no java was found on the PATH"


@pytest.mark.parametrize("verb", ["run --journals .", "restore --tables ."])
def test_missing_pyspark_is_reported_in_one_line(tmp_path: Path, verb: str) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from logwright.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "pipeline", *verb.split(), "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=False,
    )
    outcome = Outcome(done.returncode, done.stdout, done.stderr)
    assert_one_error_line(outcome, 2, "the pipeline needs pyspark: pip install 'logwright[spark]'")


# --- what Spark says --------------------------------------------------------------------------------------------------


def test_root_cause_of_nested_exceptions_is_reported_in_one_line() -> None:
    java = "An error occurred\norg.apache.SparkException: outer\n\tat a.b\nCaused by: x.Y: the root\n\tat c.d\n"
    assert str(error_from(java)) == "Spark failed: x.Y: the root"
    python = "Job aborted\nTraceback (most recent call last):\n  File 'x'\nValueError: bad value\n\tat a.b\n"
    assert str(error_from(python)) == "Spark failed: ValueError: bad value"
    assert str(error_from("[PATH_NOT_FOUND] no path\n== SQL ==\nmore")) == "Spark failed: [PATH_NOT_FOUND] no path"
    assert isinstance(error_from(""), SparkFailed)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("Invalid maximum heap size: -Xmxfoo\nError: Could not create the JVM.", "Invalid maximum heap size: -Xmxfoo"),
        (
            "WARNING: Using incubator modules\n26/01/15 10:00:00 WARN Utils: x\n"
            'Exception in thread "main" org.apache.spark.SparkException: Master must be yarn or local\n\tat a.b\n',
            "Master must be yarn or local",
        ),
        ("Using Spark's default log4j profile: x\n", ""),
    ],
)
def test_cause_of_a_failed_spark_start_is_found_in_its_log(log: str, reason: str) -> None:
    assert reason_in(log) == reason


def test_full_disk_error_names_the_affected_directories() -> None:
    reported = r"No space left on device: the tables go to /tables, and Spark's own files"
    with pytest.raises(SparkFailed, match=reported), naming_full_disk("/tables"):
        raise SparkFailed("Spark failed: java.io.IOException: No space left on device")


# --- while it runs ----------------------------------------------------------------------------------------------------


def test_without_a_terminal_each_step_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with _Display() as display:
        for what, done, total in [("reading", 0, 0), ("reading", 1, 9), ("reading", 9, 9), ("table a", 0, 0)]:
            display(what, done, total)
    assert capsys.readouterr().err == "logwright: reading\nlogwright: table a\n"


def test_first_signal_finishes_the_batch_and_second_signal_stops_now(
    capfd: pytest.CaptureFixture[str],
) -> None:
    stop = threading.Event()
    before = signal.getsignal(signal.SIGTERM)
    with _Stopping(stop) as stopping:
        stopping.install()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(5)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before
    assert capfd.readouterr().err == "logwright: stopping after this batch; Ctrl-C again to stop now\n"


ENDED = """
import os, signal, sys, tempfile
from logwright.pipeline import own_spark

def session(*_, **__):
    print("started", os.listdir(tempfile.gettempdir()), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()

own_spark.session = session
with own_spark.own_spark("local[1]", {}) as start:
    start()
"""


def test_sigterm_ends_a_run_and_leaves_no_log_file(tmp_path: Path) -> None:
    env = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ENDED], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == -signal.SIGTERM, done
    assert "logwright-spark-" in done.stdout
    assert list(tmp_path.glob("logwright-spark-*")) == []
