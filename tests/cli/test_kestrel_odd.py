"""Verbs on problematic queues: the newest file damaged or missing, odd names, or open in a program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logwright.core.format import detect
from logwright.errors import UnknownFormat
from logwright.kestrel import Queue, Writer
from tests.cli.support import assert_one_error_line, run
from tests.kestrel.samples import addx, encoded, write

A, B = addx(b"A"), addx(b"B")
DAMAGED = {
    "the first operation is torn": encoded([A])[:10],
    "the first operation is damaged": b"\xff" + encoded([A])[1:] + encoded([B]),
    "nothing is left of it": b"\xff" * 100,
    "its size is past all bounds": b"\x02\xff\xff\xff\x7f" + encoded([A, B]),
}
WHOLE = {"the first operation is damaged": [b"A", b"B"], "its size is past all bounds": [b"A", b"B"]}
"""The queue after a repair: only the opcode of the first item was wrong, and only one opcode fits."""
COMPANY: dict[str, Callable[[Path], object]] = {
    "a rotated file": lambda home: write(home / "cars.50", A),
    "a pack": lambda home: write(home / "cars.50.pack", A),
    "another queue": lambda home: write(home / "bikes", A),
    "a lock": lambda home: write(home / ".logwright" / "cars.lck"),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("company", COMPANY)
def test_newest_file_damaged_at_its_start_is_detected_by_its_siblings(
    damage: str, company: str, tmp_path: Path
) -> None:
    path = tmp_path / "cars"
    path.write_bytes(DAMAGED[damage])
    with pytest.raises(UnknownFormat):
        detect(path)
    COMPANY[company](tmp_path)
    assert run("verify", path, "--json").object["format"] == "kestrel"
    assert run("inspect", path).code in (0, 1)
    repaired = run("repair", path, "--yes")
    assert repaired.code in (0, 1)
    assert run("verify", path).code == 0
    others = [b"A"] if company in ("a rotated file", "a pack") else []
    with Queue(tmp_path, "cars") as queue:
        assert list(queue) == others + WHOLE.get(damage, [])


def test_other_files_count_as_queues_only_among_mostly_queues(tmp_path: Path) -> None:
    for name in ("notes", "todo", "letter"):
        (tmp_path / name).write_text("not a queue\n")
    write(tmp_path / "cars", A)
    with pytest.raises(UnknownFormat):
        detect(tmp_path / "notes")
    write(tmp_path / "bikes", A)
    write(tmp_path / "vans", A)
    assert detect(tmp_path / "notes").name == "kestrel", "most of the others are queues, so this one is damaged"
    (tmp_path / "notes.txt").write_text("not a queue\n")
    with pytest.raises(UnknownFormat):
        detect(tmp_path / "notes.txt")


@pytest.mark.parametrize("option", [[], ["--format", "kestrel"]])
def test_queue_without_its_newest_file_consists_of_its_other_files(option: list[str], tmp_path: Path) -> None:
    """A crash between the two steps of a rotation leaves this."""
    path = tmp_path / "cars"
    write(tmp_path / "cars.50", A)
    write(tmp_path / "cars.60", B)
    for verb, *more in (["inspect"], ["dump"], ["tail"], ["count"], ["verify"], ["state"], ["repair", "--plan"]):
        assert run(verb, path, *more, *option).code == 0, verb
    assert run("count", path, "--json", *option).object == {"records": 2}
    assert len(run("state", path, "--json", *option).object["items"]) == 2
    assert run("history", path, "cars.50@0", *option).code == 0
    assert run("diff", path, "cars.50@0", "cars.60@0", *option).code == 0
    assert run("convert", path, tmp_path / "out.parquet", *option).code == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cars.50", "cars.60", "out.parquet"]
    with Queue(tmp_path, "cars") as queue:
        assert list(queue) == [b"A", b"B"]
    assert_one_error_line(run("count", tmp_path / "vans", *option), 2, "vans: no such file or directory")
    assert_one_error_line(run("count", tmp_path / "cars.70", *option), 2, "cars.70: no such file or directory")
    assert_one_error_line(run("count", tmp_path / "no" / "cars", *option), 2, "no such file or directory")


def test_names_with_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    for name in ("red\x1b[31m", "two\nlines"):
        write(tmp_path / name, A)
    for verb in ("inspect", "state", "verify", "dump", "count"):
        shown = run(verb, tmp_path)
        assert "\x1b" not in shown.out
        assert "\x1b" not in shown.err
    lines = run("inspect", tmp_path).lines
    assert any(line.startswith("queues red\\x1b[31m") for line in lines)
    assert any(line.startswith("queues two\\nlines") for line in lines)


def test_repair_of_an_open_queue_is_refused_in_one_line(tmp_path: Path) -> None:
    with Writer(tmp_path / "cars") as writer:
        writer.addx(b"A")
        writer.flush()
        damaged = (tmp_path / "cars").read_bytes() + b"\x02\x10"
        (tmp_path / "cars").write_bytes(damaged)
        refused = run("repair", tmp_path / "cars", "--yes")
        assert_one_error_line(refused, 2, "locked")
        assert refused.out == ""
    assert run("repair", tmp_path / "cars", "--yes").lines[-1].startswith(f"{tmp_path / 'cars'}: repaired")


def test_state_at_an_invalid_position_is_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A, B)
    assert_one_error_line(run("state", path, "--at", "cars@1"), 2, "cars@1 is within an operation", "begins at cars@0")
    assert_one_error_line(run("diff", path, "cars@0", "cars@23"), 2, "cars@23 is within an operation")
    assert_one_error_line(run("state", path, "--at", "cars@999"), 2, "operation at cars@999", "next one gets cars@44")


def test_missing_directory_is_named_as_given(tmp_path: Path) -> None:
    path = write(tmp_path / "cars", A)
    missing = tmp_path / "missing"
    assert_one_error_line(run("convert", path, missing / "out.parquet"), 2, f"{missing}: no such directory")
    assert not missing.exists()
