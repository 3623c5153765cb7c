"""The first command of a new user: `logwright demo --pipeline`, in a separate process.

It uses the installed Spark, not the one of the other tests: see `quick.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.support import environment

DEADLINE_SECONDS = 600


def test_demo_makes_tables_from_its_journals_and_names_the_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logwright", "demo", "--pipeline"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={name: value for name, value in environment().items() if not name.startswith("SPARK_")},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    counts = dict(re.findall(r"^(\w+): (\d+) rows$", done.stdout, re.MULTILINE))
    assert {name: int(counts[name]) for name in ("events", "messages", "consumers", "damage")} == {
        "events": 3000 + 2999 + 2999 + 600 + 430 + 400 + 133 + 246,
        "messages": 3000 + 2999 + 2999 + 600,
        "consumers": 6,
        "damage": 2,
    }
    assert '{"order": 10000, "action": "paid"' in done.stdout, "the pipeline file has the values decoded"
    report = tmp_path / "demo-tables" / "report.html"
    assert f"The report, for a browser: {report}" in done.stdout
    assert report.read_text().startswith("<!DOCTYPE html>")
    assert "Traceback" not in done.stderr
    assert not re.search(r"^(WARN|ERROR|\d\d/\d\d/\d\d )", done.stderr, re.MULTILINE), "Spark does not talk in between"
