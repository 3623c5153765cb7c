"""The verbs on stores: state, history and diff by time, the form of their JSON, and questions without an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logwright.core.times import shown_time
from logwright.versioned import VersionedKVStore, VersionedRecovery
from logwright.versioned.files.files import archive_name
from tests.cli.support import assert_one_error_line, run

TEN = 1768471200000000000
"""2026-01-15T10:00:00Z"""


@pytest.mark.parametrize("at", [str(TEN), "2026-01-15T10:00Z", "2026-01-15 11:00+01:00"])
def test_state_at_a_time_in_every_notation(at: str, samples: Path) -> None:
    expected = VersionedRecovery.load(samples / "stores").recover_at(TEN)
    outcome = run("state", samples / "stores", "--at", at, "--json")
    assert outcome.code == 0
    assert outcome.object == {
        key: {"value": value, "timestamp": expected.timestamps[key]} for key, value in expected.items()
    }


def test_state_at_a_relative_time_and_now(samples: Path) -> None:
    now = run("state", samples / "stores", "--json")
    assert run("state", samples / "stores" / "fleet.jrn", "--at", "2 hours ago", "--json").object == now.object
    assert len(now.object) == len(run("state", samples / "stores").lines) - 1


def test_history_and_diff_have_the_documented_form(samples: Path) -> None:
    history = run("history", samples / "stores", "truck/3", "--json")
    assert history.code == 0
    changes = [json.loads(line) for line in history.lines]
    assert all(set(change) in ({"t", "value"}, {"t", "deleted"}) for change in changes)
    assert [change["t"] for change in changes] == sorted(change["t"] for change in changes)
    found = run("diff", samples / "stores", str(TEN), "2026-01-15T10:30Z", "--json").object
    assert list(found) == ["added", "changed", "removed"]
    assert all(set(change) == {"before", "after"} for change in found["changed"].values())


def test_time_before_the_first_state_is_exit_2_and_names_the_first_time(samples: Path) -> None:
    outcome = run("state", samples / "stores", "--at", "2020-01-01")
    assert_one_error_line(outcome, 2, "the state is known from 1768464000000000000 on")
    assert run("history", samples / "stores", "no such key").code == 2


def test_dump_begins_each_file_with_its_metadata_and_count_counts_the_entries(samples: Path) -> None:
    records = [json.loads(line) for line in run("dump", samples / "stores", "--json").lines]
    heads = [record for record in records if "initialized" in record]
    assert records[0] == heads[0]
    assert heads[0]["format_version"] == 2
    assert len(heads) == len({record["file"] for record in records})
    assert run("count", samples / "stores", "--json").object["records"] == len(records) - len(heads)


def test_history_reports_its_damaged_or_missing_parts(tmp_path: Path) -> None:
    ends = []
    with VersionedKVStore(tmp_path, "cars", background=False) as store:
        for number in range(4):
            store.insert("key", number)
            ends.append(store.rotate())
    assert run("history", tmp_path, "key").code == 0
    (tmp_path / archive_name("cars", ends[1])).unlink()
    missing = run("history", tmp_path, "key", "--json")
    assert (missing.code, len(missing.lines)) == (1, 4)
    assert f"ended at {shown_time(ends[0])}: one is missing" in missing.err
    archive = tmp_path / archive_name("cars", ends[0])
    archive.write_bytes(archive.read_bytes()[:-6])
    damaged = run("history", tmp_path / "cars.jrn", "key", "--json")
    assert damaged.code == 1
    assert archive.name in damaged.err
