"""Journals below a path are found once each, under unique names, whatever else is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logwright import kestrel, sej
from logwright.arrow.discovery import Journal, list_journals, open_journal
from logwright.errors import NotFound, StorageFailed
from tests.support.access import open_to_all, without_access


def make(path: Path, count: int = 1) -> Path:
    with sej.Writer(path) as writer:
        for number in range(count):
            writer.append(b"%d" % number)
    return path


def names(root: Path, format: str | None = None) -> list[str]:
    return [journal.name for journal in list_journals(str(root), format)]


def test_circular_links_do_not_duplicate_journals(tmp_path: Path) -> None:
    make(tmp_path / "a" / "orders")
    make(tmp_path / "z")
    for link, target in {"loop": ".", "a/up": "..", "a/self": "self", "a/orders/back": "../..", "b": "a"}.items():
        (tmp_path / link).symlink_to(target)
    assert names(tmp_path) == ["a/orders", "z"]
    assert names(tmp_path / "loop" / "loop") == ["a/orders", "z"]


def test_linked_journal_has_its_own_name_or_that_of_the_first_link(tmp_path: Path) -> None:
    make(tmp_path / "elsewhere" / "far")
    make(tmp_path / "root" / "b" / "near")
    for link, target in {"a": "b/near", "c": "../elsewhere/far", "d": "../elsewhere", "e": "b/near/jnl"}.items():
        (tmp_path / "root" / link).symlink_to(target)
    found = list_journals(str(tmp_path / "root"), None)
    assert [journal.name for journal in found] == ["b/near", "c"]
    assert [open_journal(journal).count() for journal in found] == [1, 1]
    (tmp_path / "link").symlink_to("root/b/near")
    assert names(tmp_path / "link") == ["link"], "a path that is asked for is followed"


def test_links_between_queues_do_not_duplicate_queues(tmp_path: Path) -> None:
    with kestrel.Writer(tmp_path / "cars") as writer:
        writer.addx(b"x")
    (tmp_path / "more").mkdir()
    with kestrel.Writer(tmp_path / "more" / "bikes") as writer:
        writer.addx(b"x")
    (tmp_path / "again").symlink_to("more")
    (tmp_path / "more" / "up").symlink_to("..")
    assert names(tmp_path) == [tmp_path.name, "more"]


@pytest.mark.parametrize("rotated", ["cars.904", "cars.904.pack"])
def test_queue_without_its_newest_file_is_found_by_its_name(tmp_path: Path, rotated: str) -> None:
    """A crash within a rotation leaves this."""
    with kestrel.Writer(tmp_path / "cars") as writer:
        writer.addx(b"x")
    (tmp_path / "cars").rename(tmp_path / rotated)
    (found,) = list_journals(str(tmp_path / "cars"), None)
    assert found == Journal("kestrel", str(tmp_path / "cars"), "cars")
    assert open_journal(found).count() == 1
    with pytest.raises(NotFound, match="bikes: no such file"):
        list_journals(str(tmp_path / "bikes"), None)


def test_journal_names_are_unique(tmp_path: Path) -> None:
    for name in (b"\xff", rb"\xff", b"a\\b"):
        make(tmp_path / os.fsdecode(name))
    found = list_journals(str(tmp_path), None)
    assert {journal.name for journal in found} == {r"\xff", r"\\xff", r"a\b"}
    assert {os.fsencode(Path(journal.location).name): journal.name for journal in found}[b"\xff"] == r"\xff"


def test_unreadable_directory_is_reported_and_the_others_are_found() -> None:
    with open_to_all() as root:
        make(root / "orders")
        make(root / "private" / "inner")
        assert names(root) == ["orders", "private/inner"]
        reported: list[tuple[str, str]] = []
        with without_access(root / "private"):
            found = list_journals(str(root), None, lambda name, error: reported.append((name, str(error))))
            with pytest.raises(StorageFailed, match=r"private.*Permission denied"):
                list_journals(str(root), None)
        assert found == [Journal("sej", str(root / "orders"), "orders")]
        ((name, reason),) = reported
        assert name == "private"
        assert reason.endswith("Permission denied; give this user access to it, then run this again")


def test_dangling_link_is_reported_and_the_others_are_found(tmp_path: Path) -> None:
    make(tmp_path / "orders")
    (tmp_path / "odd").symlink_to("x" * 300)
    reported: list[str] = []
    found = list_journals(str(tmp_path), None, lambda name, error: reported.append(name))
    assert [journal.name for journal in found] == ["orders"]
    assert reported == ["odd"]
