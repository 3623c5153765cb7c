"""`verify` of a directory of journals: a line for each, a sum, exit codes, and what cannot be read."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from logwright import sej
from logwright.core.io.disk import RealDisk
from logwright.errors import StorageFailed
from tests.cli.support import assert_one_error_line, run
from tests.support.damage import damage_file, flip_bits


def test_all_journals_below_a_directory_are_checked(demo: Path) -> None:
    outcome = run("verify", demo)
    assert outcome.code == 1
    assert outcome.lines[0].split() == ["journal", "format", "records", "bytes", "result"]
    results = {line.split()[0]: line for line in outcome.lines[1:-1]}
    assert results["orders"].split()[1:] == ["sej", "3000", "353", "KiB", "sound"]
    assert "1 problem: jnl/0000000000000442.jnl @ 49388: size 65535 does not match" in results["damaged"]
    assert set(results) == {"damaged", "events", "orders", "pages", "queues", "readings", "stores", "torn"}
    assert outcome.lines[-1].startswith("8 journals: 6 sound, 2 with problems; 10731 records")


def test_objects_are_those_of_each_journal_with_its_name(demo: Path) -> None:
    outcome = run("verify", demo, "--json")
    assert outcome.code == 1
    for found in outcome.objects:
        name = found.pop("journal")
        assert found == run("verify", demo / name, "--json").object


def test_sound_tree_is_success(demo: Path) -> None:
    shutil.rmtree(demo / "damaged")
    shutil.rmtree(demo / "torn")
    outcome = run("verify", demo)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.lines[-1].startswith("6 journals: 6 sound, 0 with problems; ")


def test_unreadable_file_is_a_problem_of_its_journal(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _refuse(monkeypatch, "open", demo / "queues" / "mail")
    outcome = run("verify", demo)
    assert outcome.code == 1
    assert any(line.startswith("queues") and "Permission denied" in line for line in outcome.lines)
    assert outcome.lines[-1].startswith("8 journals: 5 sound, 3 with problems; ")


def test_unreadable_directory_does_not_stop_the_rest(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _refuse(monkeypatch, "list_directory", demo / "queues")
    outcome = run("verify", demo, "--json")
    assert outcome.code == 2
    (unreadable,) = [found for found in outcome.objects if "error" in found]
    assert (unreadable["journal"], unreadable["format"]) == ("queues", None)
    assert "Permission denied" in unreadable["error"]
    assert run("verify", demo).lines[-1].startswith("8 journals: 5 sound, 2 with problems, 1 not readable; ")


def _refuse(monkeypatch: pytest.MonkeyPatch, operation: str, bad: Path) -> None:
    """Let the system refuse an operation on one path."""
    real = getattr(RealDisk, operation)

    def refuse(self: RealDisk, path: Path, *arguments: Any, **options: Any) -> Any:
        if path == bad:
            raise StorageFailed("cannot read", path, PermissionError(errno.EACCES, "Permission denied"))
        return real(self, path, *arguments, **options)

    monkeypatch.setattr(RealDisk, operation, refuse)


def test_directory_without_journals_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    assert_one_error_line(run("verify", tmp_path), 2, "is not a journal of any known format")


def test_other_file_systems_are_left_out(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (demo / "link").symlink_to(demo / "queues")
    real = RealDisk.identity

    def identity(self: RealDisk, path: Path) -> tuple[int, int] | None:
        found = real(self, path)
        is_mounted = path in (demo / "damaged", demo / "torn")
        return (found[0] + 1, found[1]) if found is not None and is_mounted else found

    monkeypatch.setattr(RealDisk, "identity", identity)
    outcome = run("verify", demo)
    left_out = "left out, because they are on other file systems: damaged, torn"
    assert (outcome.code, outcome.err) == (0, f"logwright: warning: {demo}: {left_out}\n")
    assert outcome.lines[-1].startswith("6 journals: 6 sound, 0 with problems; ")
    assert run("verify", demo / "damaged").code == 1


def test_links_to_other_file_systems_are_left_out(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    shutil.move(demo / "orders", tmp_path / "tree")
    (tmp_path / "tree" / "processes").symlink_to("/proc")
    outcome = run("verify", tmp_path / "tree")
    assert (outcome.code, outcome.lines[-1][:11]) == (0, "1 journals:")
    assert outcome.err.endswith("other file systems: processes\n")


@pytest.mark.parametrize("damage", [False, True])
def test_root_of_one_unsharded_journal_is_checked(tmp_path: Path, damage: bool) -> None:
    with sej.Writer(tmp_path / "orders") as writer:
        writer.append(b"one")
        writer.append(b"two")
    if damage:
        damage_file(tmp_path / "orders" / "jnl" / "0000000000000000.jnl", flip_bits, 3, 0xFF)
    outcome = run("verify", tmp_path, "--json")
    found = run("verify", tmp_path / "orders", "--json")
    assert (outcome.code, outcome.object) == (found.code, {"journal": "orders", **found.object})
    assert run("count", tmp_path).lines == [str(found.object["records"])]
