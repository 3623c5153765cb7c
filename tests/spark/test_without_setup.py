"""After the installation every session of Spark finds the sources by itself."""

from __future__ import annotations

import datetime
import json
import os
import sys
import zoneinfo
from importlib import import_module
from pathlib import Path

import logwright
from logwright import sej
from logwright.cli import main
from logwright.core.format import FORMATS
from logwright.spark.source import SOURCES
from tests.spark.driver import HERE, run_to_the_end

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
KOLKATA = zoneinfo.ZoneInfo("Asia/Kolkata")


def test_every_source_has_a_module_that_spark_looks_for() -> None:
    names = [*FORMATS, "logwright"]
    sources = [import_module(f"pyspark_{name}").DefaultSource for name in names]
    assert {source.name() for source in sources} == set(names)
    assert set(sources) == set(SOURCES)


def test_plain_sessions_read_relative_paths_in_any_time_zone(tmp_path: Path) -> None:
    assert main(["demo", str(tmp_path / "demo")]) == 0
    path = os.pathsep.join(filter(None, [str(Path(logwright.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    code, printed = run_to_the_end(
        [sys.executable, str(HERE / "jobs" / "without_setup.py"), str(tmp_path / "demo")],
        tmp_path,
        {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": path,
            "TZ": "Asia/Kolkata",
            "SPARK_TESTING": "1",  # Spark Connect at a free port, instead of always the same
        },
    )
    assert code == 0, printed
    (found,) = [json.loads(line.removeprefix("FOUND ")) for line in printed.splitlines() if line.startswith("FOUND ")]
    ordered = logwright.sql(f"SELECT count(*) AS n FROM '{tmp_path / 'demo' / 'orders'}' WHERE type = 1")
    micros = [message.timestamp // 1000 for message in sej.Reader(tmp_path / "demo" / "orders") if message.timestamp]
    seventh = EPOCH + datetime.timedelta(microseconds=micros[7])
    counted = {"sej": 3000, "kestrel": 430, "appendfile": 133, "versioned": 400, "yeltsin": 246, "logwright": 430}
    wanted = {
        "view": ordered.to_arrow_table()["n"][0].as_py(),
        "time": seventh.astimezone(KOLKATA).strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0"),
        "until": 8,
    }
    assert found == {"classic": {**wanted, **counted, "filtered": 10}, "connect": wanted}
    for name in found:
        times = [message.timestamp for message in sej.Reader(tmp_path / name)]
        assert times == [1000 * micro for micro in micros[:3]]
