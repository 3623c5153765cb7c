"""Damage as an operator meets it, in every format, through every verb: the same promises hold everywhere.

What exactly is lost depends on the format, and is in `tests/*/test_damage*.py`. Here: no verb fails in an
unforeseen way or changes anything, a plan says what the repair then does, after a repair the journal is sound and its
losses are known, and `undo` gives every byte back.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from logwright.core.io.disk import REAL_DISK
from tests.cli.support import Outcome, run
from tests.support.damage import cut, drop, insert, noise, overwrite
from tests.support.trees import Tree, differences, read_tree

JOURNALS: Final = {
    "sej": "orders/jnl",
    "kestrel": "queues",
    "versioned": "stores",
    "appendfile": "readings",
    "yeltsin": "pages",
}
PREFIXES: Final = {"kestrel": "jobs"}
LOOKING: Final = (
    ("inspect",),
    ("dump", "--json", "--mode", "permissive"),
    ("dump", "--json"),
    ("count", "--json"),
    ("tail", "-n", "3"),
    ("state", "--json"),
    ("verify",),
    ("verify", "--strict"),
    ("repair", "--plan"),
)

TEXT: Final = b"this is no journal, but somebody's notes about one\n" * 3


def _middle(data: bytes) -> int:
    return len(data) // 2


DAMAGES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "the last 7 bytes are missing": lambda data: cut(data, len(data) - 7),
    "half a copy": lambda data: cut(data, _middle(data)),
    "a byte is flipped": lambda data: overwrite(data, _middle(data), bytes([data[_middle(data)] ^ 0xFF])),
    "a page is zeros": lambda data: overwrite(data, _middle(data), bytes(min(512, len(data) - _middle(data)))),
    "a page is noise": lambda data: overwrite(data, _middle(data), noise(min(512, len(data) - _middle(data)))),
    "3 bytes were inserted": lambda data: insert(data, _middle(data), b"\x00\xff\x07"),
    "3 bytes were deleted": lambda data: drop(data, _middle(data), _middle(data) + 3),
    "text was appended": lambda data: data + TEXT,
    "zeros were appended": lambda data: data + bytes(4096),
    "all of it is zeros": lambda data: bytes(len(data)),
    "all of it is text": lambda data: (TEXT * (len(data) // len(TEXT) + 1))[: len(data)],
    "it is empty": lambda data: b"",
}


def journal_files(format: str, demo: Path) -> list[Path]:
    """The files of a sample journal, oldest first."""
    directory = demo / JOURNALS[format]
    names = [path for path in directory.iterdir() if path.is_file() and path.name.startswith(PREFIXES.get(format, ""))]
    return sorted(names, key=lambda path: (path.suffix in ("", ".jrn"), path.name))


def journal_of(format: str, demo: Path) -> Path:
    return demo / JOURNALS[format].split("/")[0]


def tree(path: Path) -> Tree:
    """The files of a journal without what a repair keeps beside them, and without lock files."""
    found = read_tree(REAL_DISK, path)
    beside = (".lck", ".lock")
    return {name: data for name, data in found.items() if ".logwright" not in name and not name.endswith(beside)}


def records(path: Path, format: str) -> list[str]:
    """What is whole in a journal, without what a move of bytes changes."""
    left_out = {"file", "position", "previous", "next", "offset", "flags", "complete", "outcome"}
    outcome = run("dump", path, "--json", "--mode", "permissive", "--format", format)
    rows = [row for row in outcome.objects if "damage" not in row and not is_placeholder(row)]
    return [json.dumps({name: value for name, value in row.items() if name not in left_out}) for row in rows]


def is_placeholder(row: dict[str, Any]) -> bool:
    """Whether this is an item of a queue that a repair put where one was lost: it has expired in 1970."""
    return (row.get("op"), row.get("added"), row.get("expires"), row.get("data")) == ("addx", 0, 1, "")


def look_at(path: Path, format: str) -> list[Outcome]:
    """Every verb that only looks; none of them fails in an unforeseen way."""
    outcomes = [run(verb, path, *options, "--format", format) for verb, *options in LOOKING]
    for outcome in outcomes:
        assert outcome.code in (0, 1, 2), outcome
        assert "Traceback" not in outcome.err
    return outcomes


def bounds(losses: list[dict[str, Any]]) -> tuple[int, float]:
    """How many records are lost, by an account: at least, and at most."""
    least = sum(loss.get("records", loss.get("at_least", 0)) for loss in losses)
    most = [loss["records"] if "records" in loss else loss["at_most"] for loss in losses]
    return least, float("inf") if None in most else sum(most)


def as_planned(account: list[Any], planned: list[Any]) -> list[Any]:
    """The losses of an account as a plan has them: a loss at the end of a store ends when the repair is made."""
    for loss, plan in zip(account, planned, strict=False):
        if "store" in plan["fields"] and plan["fields"]["to"] is None:
            assert loss["fields"]["to"] > loss["fields"]["from"]
            loss["fields"]["to"] = None
    return account


@pytest.mark.parametrize("which", [0, -1], ids=["first file", "last file"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("format", JOURNALS)
def test_damage_is_found_accounted_for_and_restored_by_undo(format: str, damage: str, which: int, demo: Path) -> None:
    path = journal_of(format, demo)
    file = journal_files(format, demo)[which]
    written = records(path, format)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    before = read_tree(REAL_DISK, path)

    look_at(path, format)
    found = run("verify", path, "--json", "--format", format).object
    assert found["losses"] == []
    plan = run("repair", path, "--plan", "--json", "--format", format).object
    assert differences(before, read_tree(REAL_DISK, path)) == []
    if not plan["steps"]:
        assert found["sound"] or plan["left"], "what is wrong can be repaired, or is said to stay"
        return

    repaired = run("repair", path, "--yes", "--json", "--format", format)
    assert repaired.object["losses"] == plan["losses"], "the plan says what is lost"
    assert repaired.code == (1 if plan["losses"] or plan["left"] else 0)
    after = run("verify", path, "--json", "--format", format)
    known = as_planned(after.object["losses"], plan["losses"])
    assert known == plan["losses"], "the account is known to every later verify"
    if not plan["left"]:
        assert after.object["problems"] == []
        assert run("verify", path, "--strict", "--format", format).code == (1 if plan["losses"] else 0)
        check_records(written, records(path, format), plan["losses"], found)
    look_at(path, format)

    assert run("repair", path, "--undo", "--yes", "--format", format).code == 0
    wanted = {name: data for name, data in before.items() if name in tree(path)}
    assert differences(wanted, tree(path)) == []


def check_records(written: list[str], there: list[str], losses: list[dict[str, Any]], found: dict[str, Any]) -> None:
    """Compare what is there with what was written: nothing is invented, and what is missing is in the account.

    What a torn tail held is in no account: it was never acknowledged as durable. Without checksums the payload of a
    whole record next to the damage may have changed: for each problem one such record may differ.
    """
    invented, position = [], 0
    for row in there:
        if row in written[position:]:
            position = written.index(row, position) + 1
        else:
            invented.append(row)
    assert len(invented) <= len(found["problems"]), f"{invented[:3]} were never written"
    missing = len(written) - len(there)
    least, most = bounds(losses)
    if not any(problem["kind"] == "torn_tail" for problem in found["problems"]):
        assert missing <= most, f"{missing} records are missing, and the account says at most {most}"
    assert least <= max(missing, 0), f"{missing} records are missing, and the account says at least {least}"


@pytest.mark.parametrize("format", ["sej", "versioned"])
def test_a_missing_file_is_found(format: str, demo: Path) -> None:
    files = journal_files(format, demo)
    files[len(files) // 2].unlink()
    path = journal_of(format, demo)
    look_at(path, format)
    assert run("verify", path, "--format", format).code == 1


def test_account_is_copied_with_the_directory(demo: Path, tmp_path: Path) -> None:
    path = demo / "orders"
    segment = sorted((path / "jnl").iterdir())[0]
    segment.write_bytes(overwrite(segment.read_bytes(), 5000, bytes(512)))
    losses = run("repair", path, "--yes", "--json").object["losses"]
    assert losses
    shutil.copytree(path, tmp_path / "copy")
    assert run("verify", tmp_path / "copy", "--json").object["losses"] == losses
