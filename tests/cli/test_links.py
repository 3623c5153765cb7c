"""A link given on the command line is followed to its journal; a link inside a journal never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.core.format import detect
from logwright.errors import UnknownFormat
from tests.cli.support import assert_one_error_line, run

FILES = {
    "sej": "orders/jnl/0000000000000000.jnl",
    "kestrel": "queues/jobs",
    "appendfile": "readings/4.journal",
    "versioned": "stores/fleet.jrn",
    "yeltsin": "pages/accounts.jrnl",
}


@pytest.fixture
def links(tmp_path: Path) -> Path:
    directory = tmp_path / "links"
    directory.mkdir()
    return directory


@pytest.mark.parametrize("format", FILES)
@pytest.mark.parametrize("name", ["like the file", "any name"])
def test_link_to_a_file_is_the_file_for_every_verb(samples: Path, links: Path, format: str, name: str) -> None:
    file = samples / FILES[format]
    link = links / (file.name if name == "like the file" else "any")
    link.symlink_to(file)
    for verb in ("count", "dump", "state", "verify"):
        assert run(verb, link, "--json") == run(verb, file, "--json"), verb
    outcome = run("convert", link, links / "out.parquet", "--json")
    assert (outcome.code, outcome.object["from"]) == (0, format)
    assert sorted(path.name for path in links.iterdir()) == sorted([link.name, "out.parquet"]), "nothing is put beside"


def test_link_to_a_directory_is_the_directory(samples: Path, links: Path) -> None:
    for name in ("orders", "queues", "readings", "stores", "pages"):
        (links / name).symlink_to(samples / name)
        assert run("count", links / name, "--json") == run("count", samples / name, "--json")


def test_dangling_or_circular_link_is_reported(links: Path) -> None:
    (links / "nowhere").symlink_to("gone")
    assert_one_error_line(run("count", links / "nowhere"), 2, f"{links / 'gone'}: no such file or directory")
    (links / "circle").symlink_to("circle")
    assert_one_error_line(run("count", links / "circle"), 2, "is a link, and links are not followed")


def test_json_says_that_a_path_is_a_link(samples: Path, links: Path) -> None:
    (links / "any").symlink_to(samples / FILES["kestrel"])
    with pytest.raises(UnknownFormat, match="is a link, and links are not followed: give its target"):
        detect(links / "any")
