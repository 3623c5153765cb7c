"""`changes`: the changes of stores and queues lead to their state, and are printed as they are made."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from logwright import kestrel, versioned
from tests.cli.random_journals import write_kestrel, write_versioned
from tests.cli.support import assert_one_error_line, run, start


@pytest.mark.parametrize("seed", range(5))
def test_changes_of_a_store_lead_to_its_state(tmp_path: Path, seed: int) -> None:
    write_versioned(tmp_path / "stores", random.Random(seed))
    state: dict[str, Any] = {}
    times: dict[str, int] = {}
    for change in run("changes", tmp_path / "stores").objects:
        assert list(change) == ["op", "before", "after", "ts_ns", "source"]
        row = change["after"] or change["before"]
        key = row["key"]
        assert change["before"] == ({"key": key, "value": state[key]} if key in state else None)
        assert change["op"] == ("d" if change["after"] is None else "u" if key in state else "c")
        assert times.get(key, 0) < change["ts_ns"]
        times[key] = change["ts_ns"]
        if change["after"] is None:
            del state[key]
        else:
            state[key] = change["after"]["value"]
        assert change["source"]["store"] == "fleet"
    final = run("state", tmp_path / "stores", "--json").object
    assert state == {key: found["value"] for key, found in final.items()}


def test_state_whose_history_is_gone_is_read(tmp_path: Path) -> None:
    write_versioned(tmp_path / "stores", random.Random(1))
    oldest = min((tmp_path / "stores").glob("*.zz"))
    oldest.unlink()
    changes = run("changes", tmp_path / "stores", "--mode", "permissive").objects
    assert changes[0]["op"] == "r"
    assert changes[0]["before"] is None


@pytest.mark.parametrize("seed", range(5))
def test_changes_of_queues_lead_to_their_items(tmp_path: Path, seed: int) -> None:
    write_kestrel(tmp_path / "queues", random.Random(seed))
    items: dict[str, list[dict[str, Any]]] = {"ada": [], "chen": []}
    for change in run("changes", tmp_path / "queues").objects:
        queue = change["source"]["queue"]
        if change["op"] == "c":
            assert change["before"] is None
            assert change["ts_ns"] == change["after"]["added"] * 10**6
            items[queue].append(change["after"])
        else:
            assert (change["op"], change["after"], change["ts_ns"]) == ("d", None, None)
            items[queue].remove(change["before"])
    state = run("state", tmp_path / "queues", "--json").object["queues"]
    for queue, found in items.items():
        left = [*state[queue]["open"], *state[queue]["items"]]
        names = ("data", "added", "expires")
        ordered = sorted(json.dumps([item[name] for name in names]) for item in left)
        assert sorted(json.dumps([item[name] for name in names]) for item in found) == ordered


def test_following_prints_changes_as_they_are_made(tmp_path: Path) -> None:
    with versioned.VersionedKVStore(tmp_path, "fleet") as store:
        store.insert("a", 1)
        store.sync()
        with start("changes", tmp_path / "fleet.jrn", "--follow") as child:
            assert json.loads(child.line())["op"] == "c"
            store.insert("a", 2)
            store.remove("a")
            store.sync()
            found = [json.loads(child.line()) for _ in range(2)]
    before, after = {"key": "a", "value": 1}, {"key": "a", "value": 2}
    assert [(change["op"], change["before"], change["after"]) for change in found] == [
        ("u", before, after),
        ("d", after, None),
    ]


def test_following_finds_new_queues(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with kestrel.Writer(tmp_path / name) as writer:
            writer.addx(b"a")
    with start("changes", tmp_path, "-f") as child:
        assert {json.loads(child.line())["source"]["queue"] for _ in range(2)} == {"one", "two"}
        with kestrel.Writer(tmp_path / "three") as writer:
            writer.addx(b"b")
            writer.remove()
        found = [json.loads(child.line()) for _ in range(2)]
    assert [(change["op"], change["source"]["queue"]) for change in found] == [("c", "three"), ("d", "three")]


def test_wrong_use_is_one_line(samples: Path) -> None:
    assert_one_error_line(run("changes", samples / "orders"), 2, "records of sej are no changes of keys or items")
    assert_one_error_line(run("changes", samples / "stores", "--timeout", 1), 2, "--timeout needs -f")
