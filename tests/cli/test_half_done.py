"""A repair that was killed half-way: every verb reports it, and the repair can be finished or undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logwright import kestrel
from logwright.arrow import to_arrow
from logwright.core.bytes.outcome import Damage
from logwright.core.format import find_format, open_journal
from logwright.core.io.disk import REAL_DISK
from logwright.core.repair import plan as core
from logwright.core.repair.plan import Create, Patch, Plan, Remove
from logwright.errors import DamagedJournal
from logwright.kestrel.files.queues import QueuesReader
from tests.cli.support import assert_one_error_line, run
from tests.support.trees import differences, read_tree

SEGMENT = "jnl/0000000000000000.jnl"
SHARD = "events/web.2.001"
JOURNALS = [
    ("orders", SEGMENT, "sej", "orders"),
    ("events", f"web.2.001/{SEGMENT}", "sej", "events"),
    ("events", f"web.2.001/{SEGMENT}", "sej", SHARD),
    ("queues", "mail", "kestrel", "queues"),
    ("queues", "mail", "kestrel", "queues/mail"),
    ("readings", "4.journal", "appendfile", "readings"),
    ("stores", "fleet.jrn", "versioned", "stores"),
    ("stores", "fleet.jrn", "versioned", "stores/fleet.jrn"),
    ("pages", "accounts.jrnl", "yeltsin", "pages"),
    ("pages", "accounts.jrnl", "yeltsin", "pages/accounts.jrnl"),
]


class Killed(BaseException):
    """The exception that stands for the death of the process."""


def _kill(*arguments: object) -> None:
    raise Killed


@pytest.fixture
def half_done(demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample journals, each with a repair that was killed after it moved a file away and before it replaced it."""
    with monkeypatch.context() as patch:
        patch.setattr(core, "_put", _kill)
        for directory, file, name in sorted({journal[:3] for journal in JOURNALS}):
            data = (demo / directory / file).read_bytes()
            plan = Plan(name, (Remove(file, "it is damaged"), Create(file, "", (), "it is put right", data)))
            with pytest.raises(Killed):
                core.apply(REAL_DISK, demo / directory, plan)
    return demo


@pytest.fixture
def changing(demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample journals, each with a repair that was killed after one of two steps, with all files in place."""
    with monkeypatch.context() as patch:
        patch.setattr(core, "_put", _kill)
        for directory, file, name in sorted({journal[:3] for journal in JOURNALS}):
            byte = (demo / directory / file).read_bytes()[:1]
            plan = Plan(name, (Patch(file, 0, byte, byte, "first"), Create(f"{file}.second", "", (), "second", b"x")))
            with pytest.raises(Killed):
                core.apply(REAL_DISK, demo / directory, plan)
    return demo


@pytest.mark.parametrize(("directory", "file", "name", "path"), JOURNALS)
def test_readers_arrow_and_splits_refuse_a_half_repaired_journal(
    changing: Path, directory: str, file: str, name: str, path: str
) -> None:
    reader = open_journal(changing / path)
    hint = rf"a repair was interrupted after 1 of 2 steps; `logwright repair {changing / directory}` finishes it"
    splits = find_format(name).splits
    asked: list[Callable[[], object]] = [
        lambda: list(reader),
        lambda: list(reader.scan()),
        lambda: reader.last(3),
        lambda: to_arrow(changing / path),
        lambda: list(find_format(name).follow(changing / path, reader.end, timeout=0, mode="failfast").located()),
        lambda: [list(splits.chunks(reader, split)) for split in splits.plan(reader)],
    ]
    for ask in asked:
        with pytest.raises(DamagedJournal, match=hint):
            ask()


@pytest.mark.parametrize(("directory", "file", "name", "path"), JOURNALS)
def test_permissive_reader_returns_one_damage_for_a_half_repaired_journal(
    changing: Path, samples: Path, directory: str, file: str, name: str, path: str
) -> None:
    reader, splits = open_journal(changing / path), find_format(name).splits
    given: dict[str, list[object]] = {
        "scan": list(reader.scan(mode="permissive")),
        "splits": [item for split in splits.plan(reader) for item in splits.chunks(reader, split, mode="permissive")],
    }
    for way, items in given.items():
        assert [item.kind for item in items if isinstance(item, Damage)] == ["repair"], way
    table = to_arrow(changing / path, mode="dropmalformed")
    assert table.num_rows == to_arrow(samples / path).num_rows


def test_interrupted_repair_of_another_format_in_the_directory_is_ignored(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = demo / "queues"
    before = list(open_journal(queues))
    with monkeypatch.context() as patch:
        patch.setattr(core, "_put", _kill)
        with pytest.raises(Killed):
            core.apply(REAL_DISK, queues, Plan("versioned", (Create("fleet.jrn", "", (), "it is put right", b"x"),)))
    reader = QueuesReader(queues)
    assert list(reader) == before
    with kestrel.Scanner(queues, timeout=0) as scanner:
        assert len(list(scanner)) == len(before)


@pytest.mark.parametrize(("directory", "file", "name", "path"), JOURNALS)
def test_no_reader_skips_a_file_that_a_half_done_repair_has_moved_away(
    half_done: Path, directory: str, file: str, name: str, path: str
) -> None:
    splits = find_format(name).splits
    for ask in (
        lambda: list(open_journal(half_done / path)),
        lambda: to_arrow(half_done / path),
        lambda: [
            list(splits.chunks(reader, split))
            for reader in [open_journal(half_done / path)]
            for split in splits.plan(reader)
        ],
    ):
        with pytest.raises(DamagedJournal, match="a repair was interrupted after 1 of 2 steps"):
            ask()


@pytest.mark.parametrize(("directory", "file", "name", "path"), JOURNALS)
def test_every_verb_reports_a_half_done_repair_and_the_next_command(
    half_done: Path, directory: str, file: str, name: str, path: str
) -> None:
    home = half_done / directory
    assert not (home / file).exists()
    for verb in ("verify", "inspect", "count", "dump", "state"):
        outcome = run(verb, half_done / path)
        assert outcome.code == 1, (verb, outcome)
        assert "a repair was interrupted after 1 of 2 steps" in outcome.err
        assert f"`logwright repair {home}` finishes it, `logwright repair {home} --undo` undoes it" in outcome.err
    if path != SHARD:
        plan = run("repair", half_done / path, "--plan", "--json").object
        assert (plan["format"], plan["interrupted"]) == (name, True)


@pytest.mark.parametrize(("directory", "file", "name", "path"), [one for one in JOURNALS if one[3] != SHARD])
@pytest.mark.parametrize("verb", [("repair", "--yes"), ("repair", "--undo", "--yes")])
def test_half_done_repair_is_finished_or_undone_without_naming_the_format(
    samples: Path, half_done: Path, directory: str, file: str, name: str, path: str, verb: tuple[str, ...]
) -> None:
    assert run(verb[0], half_done / path, *verb[1:]).code == 0
    assert (half_done / directory / file).read_bytes() == (samples / directory / file).read_bytes()
    assert run("verify", half_done / path).code == 0


@pytest.mark.parametrize("options", [["--plan"], ["--yes"], ["--undo", "--yes"]])
def test_repair_of_a_root_cannot_be_finished_or_undone_in_one_shard(half_done: Path, options: list[str]) -> None:
    before = read_tree(REAL_DISK, half_done / "events")
    outcome = run("repair", half_done / SHARD, *options)
    assert_one_error_line(outcome, 2, f"`logwright repair {half_done / 'events'}` finishes it")
    assert differences(before, read_tree(REAL_DISK, half_done / "events")) == []


def test_neighbouring_journals_are_not_affected(half_done: Path) -> None:
    for path in ("queues/jobs", "events/web.2.002"):
        outcome = run("verify", half_done / path)
        assert (outcome.code, outcome.err) == (0, "")


def test_repair_with_an_interrupted_undo_can_only_be_undone(half_done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = half_done / "orders"
    with monkeypatch.context() as patch:
        patch.setattr(core, "_put", _kill)
        with pytest.raises(Killed):
            core.undo(REAL_DISK, home)
    outcome = run("verify", home)
    assert outcome.code == 1
    assert "undoing a repair was interrupted after" in outcome.err
    assert outcome.err.endswith(f"`logwright repair {home} --undo` finishes that\n")
    before = read_tree(REAL_DISK, home / "jnl")
    assert run("repair", home, "--yes").code == 2
    assert differences(before, read_tree(REAL_DISK, home / "jnl")) == []
    assert run("repair", home, "--undo", "--yes").code == 0
    assert run("verify", home).code == 0
