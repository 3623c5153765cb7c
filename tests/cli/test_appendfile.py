"""The verbs on journals with checkpoints: the changes of segments between two places."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from logwright.appendfile import Writer
from tests.cli.support import assert_one_error_line, run


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two closed segments, the first of them checked, and an open third one."""
    home = tmp_path / "journal"
    with Writer(home) as writer:
        for number in range(3):
            writer.append_many([b"%d%s" % (number, letter) for letter in (b"a", b"b")])
            if number < 2:
                writer.register_checkpoint()
        writer.check_checkpoint()
    return home


def described(*records: bytes, complete: bool = False, checked: bool = False) -> dict[str, Any]:
    shown = [base64.b64encode(record).decode() for record in records]
    return {"complete": complete, "checked": checked, "records": shown}


def test_diff_shows_segments_that_are_new_extended_closed_or_checked(journal: Path) -> None:
    outcome = run("diff", journal, "0.journal@26", "now", "--json")
    assert outcome.code == 0
    assert outcome.object == {
        "added": {"1": described(b"1a", b"1b", complete=True), "2": described(b"2a", b"2b")},
        "changed": {
            "0": {"before": described(b"0a"), "after": described(b"0a", b"0b", complete=True, checked=True)},
        },
        "removed": {},
    }
    words = [line.split()[:2] for line in run("diff", journal, "0.journal@26", "now").lines[1:]]
    assert words == [["added", "1"], ["added", "2"], ["changed", "0"]]
    backwards = run("diff", journal, "now", "0.journal@26", "--json").object
    assert list(backwards["removed"]) == ["1", "2"]
    assert run("diff", journal, "now", "now", "--json").object == {"added": {}, "changed": {}, "removed": {}}


def test_diff_distinguishes_segments_of_two_generations(journal: Path) -> None:
    with Writer(journal, recovering=True) as writer:
        writer.append(b"next")
    found = run("diff", journal, "0.journal@0", "now", "--json").object
    assert list(found["added"]) == ["1/0", "1/1", "1/2", "2"]
    assert run("diff", journal, "1.journal@0", "now", "--json").object["added"] == {"2": described(b"next")}


def test_diff_refuses_invalid_positions(journal: Path) -> None:
    assert_one_error_line(run("diff", journal, "2 hours ago", "now"), 2, "times cannot be looked up")
    assert_one_error_line(run("diff", journal, "0.journal@9999", "now"), 2, "there is no record 0.journal@9999")
    assert_one_error_line(run("diff", journal, "7.journal@0", "now"), 2, "no such file")
