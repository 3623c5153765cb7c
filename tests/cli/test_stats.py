"""`stats`: counts by key, type, operation and minute, and quantiles of sizes, against a naive count."""

from __future__ import annotations

import base64
import math
import random
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from logwright import sej
from logwright.arrow import statistics
from tests.cli.random_journals import WRITERS
from tests.cli.support import assert_one_error_line, run

GROUPS = {
    "sej": ("key", "type"),
    "shards": ("key", "type"),
    "kestrel": ("queue", "op"),
    "appendfile": ("segment", "kind"),
}
TIMES = {"sej": ("timestamp", 1), "shards": ("timestamp", 1), "kestrel": ("added", 10**6)}


def counted(records: list[dict[str, Any]], value: Any) -> dict[Any, tuple[int, int]]:
    found: dict[Any, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for record in records:
        group = value(record)
        if group is not None:
            before = found[group]
            found[group] = (before[0] + 1, before[1] + record["size"])
    return dict(found)


def plain(record: dict[str, Any], name: str) -> Any:
    value = record.get(name)
    return base64.b64decode(value or "").decode() if name == "key" else value


@pytest.mark.parametrize("format", list(GROUPS))
def test_counts_agree_with_a_naive_count(tmp_path: Path, format: str) -> None:
    WRITERS[format](tmp_path / "a", random.Random(7))
    records = run("dump", tmp_path / "a", "--json").objects
    found = run("stats", tmp_path / "a", "--json", "--top", 1000).object
    assert (found["records"], found["bytes"]) == (len(records), sum(record["size"] for record in records))
    for name in GROUPS[format]:
        expected = counted(records, lambda record, name=name: plain(record, name))
        assert {group[name]: (group["records"], group["bytes"]) for group in found[name]} == expected
        assert [group["records"] for group in found[name]] == sorted((n for n, _ in expected.values()), reverse=True)
    if format in TIMES:
        name, unit = TIMES[format]
        minutes = counted(
            records,
            lambda record: None if record.get(name) is None else record[name] * unit // 60_000_000_000 * 60_000_000_000,
        )
        assert {each["minute"]: (each["records"], each["bytes"]) for each in found["minutes"]} == minutes
    sizes = sorted(record["size"] for record in records)
    assert (found["sizes"]["smallest"], found["sizes"]["largest"]) == (sizes[0], sizes[-1])
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        exact = sizes[math.ceil(share * len(sizes)) - 1]
        assert exact <= found["sizes"][name] <= exact * 1.01 + 1


def test_rare_keys_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MOST_GROUPS", 10)
    with sej.Writer(tmp_path) as writer:
        for number in range(60):
            writer.append(b"", key=b"often" if number % 2 else b"%d" % number)
    lines = run("stats", tmp_path, "--top", 2).lines
    assert any(line.startswith("often") and "30" in line for line in lines)
    assert any(line.startswith("and at least ") for line in lines)


def test_table_has_bars(samples: Path) -> None:
    outcome = run("stats", samples / "queues", "--top", 2)
    assert outcome.code == 0
    assert "mail       330  6.66 KiB  ████████████████████████" in outcome.lines
    assert "jobs       100  1.60 KiB  ███████▎" in outcome.lines
    assert run("stats", samples / "queues", "--top", 2, "--json").object["op"][0] == {
        "op": "addx",
        "records": 180,
        "bytes": 7810,
    }


def test_damage_behaves_by_mode(samples: Path) -> None:
    file = samples / "damaged" / "jnl" / "0000000000000442.jnl"
    assert_one_error_line(run("stats", samples / "damaged"), 1, f"error: {file} @ 49388: size 65535 does not match")
    outcome = run("stats", samples / "damaged", "--mode", "permissive", "--json")
    assert (outcome.code, outcome.object["records"]) == (1, 2999)
    assert "skipped: " in outcome.err


def test_empty_journal_has_no_groups(tmp_path: Path) -> None:
    sej.Writer(tmp_path).close()
    outcome = run("stats", tmp_path)
    assert (outcome.code, outcome.lines) == (0, ["format   sej", "records  0", "bytes    0 B"])


def test_interrupt_ends_it_at_once_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITERS["sej"](tmp_path / "journal", random.Random(1))
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(statistics.Groups, "add", lambda *arguments: signal.raise_signal(signal.SIGINT))
    outcome = run("stats", tmp_path / "journal")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "")
    assert sorted(tmp_path.rglob("*")) == before
