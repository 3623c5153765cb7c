"""Text, tables and progress, on terminals and elsewhere."""

from __future__ import annotations

import contextlib
import io

import pytest

from logwright.cli import output
from logwright.cli.output import Column, Table, crop, escape, one_line, progress_bar, styled
from tests.cli.support import Terminal


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        ("größe".encode(), "größe"),
        (b"two\nlines\t", r"two\nlines\t"),
        (b"\x1b[31mred\x00", r"\x1b[31mred\x00"),
        (b"\xff\xfe\xc3\xa9", r"\xff\xfe\xc3\xa9"),
        ("a\u202eb".encode(), r"a\u202eb"),
        (b"", ""),
    ],
)
def test_bytes_are_shown_without_control_characters(data: bytes, text: str) -> None:
    assert escape(data) == text


def test_error_is_one_line() -> None:
    assert one_line("a\nb\x1b[0m\udcff") == r"a\nb\x1b[0m\udcff"


@pytest.mark.parametrize(("text", "cropped"), [("abcdef", "abcdef"), ("abcdefg", "abcde…"), ("日本語文字", "日本…")])
def test_text_is_cropped_by_its_display_width(text: str, cropped: str) -> None:
    assert crop(text, 6) == cropped


def printed(*, terminal: bool, value: str = "x" * 60) -> list[str]:
    out = Terminal() if terminal else io.StringIO()
    columns = [Column("offset", right=True), Column("value", flexible=True), Column("end")]
    with contextlib.redirect_stdout(out), Table(columns) as table:
        table.add("1", "short", "|")
        table.add("20", value, "|")
    return out.getvalue().splitlines()


def test_table_is_written_to_a_file_completely_without_colours() -> None:
    header, first, second = printed(terminal=False)
    assert header.split() == ["offset", "value", "end"]
    assert first == "     1  short" + " " * 55 + "  |"
    assert second == "    20  " + "x" * 60 + "  |"


def test_wide_characters_do_not_shift_the_following_columns() -> None:
    _, first, second = printed(terminal=False, value="日本語")
    assert first == "     1  short   |"
    assert second == "    20  日本語  |"


def test_table_is_cropped_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    header, first, second = printed(terminal=True)
    assert header == "\x1b[1moffset  value" + " " * 22 + "  end\x1b[0m"
    assert first == "     1  short" + " " * 22 + "  |"
    assert second == "    20  " + "x" * 26 + "…  |"


def test_no_colour_is_used_when_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("text", output.RED, Terminal()) == "text"
    monkeypatch.delenv("NO_COLOR")
    assert styled("text", output.RED, Terminal()) == "\x1b[31mtext\x1b[0m"
    assert styled("text", output.RED, io.StringIO()) == "text"


def test_table_prints_rows_as_they_arrive() -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        table = Table([Column("n")])
        for number in range(60):
            table.add(str(number))
        assert out.getvalue().splitlines() == ["n", *map(str, range(60))]


def test_header_follows_lines_printed_before_the_first_row() -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        table = Table([Column("n")])
        table.add_line("a line", output.DIM)
        table.flush()
        table.add("1")
    assert out.getvalue().splitlines() == ["a line", "n", "1"]


def test_bar_shows_percent_and_time_left_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "SHOW_AFTER_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    talk = Terminal()
    with contextlib.redirect_stderr(talk), contextlib.redirect_stdout(io.StringIO()) as out:
        with progress_bar("reading", beside_rows=True) as progress:
            assert progress is not None
            for done in range(0, 1001, 250):
                progress(done, 1000)
                output.print_line(f"row {done}")
        assert out.getvalue() == "row 0\nrow 250\nrow 500\nrow 750\nrow 1000\n"
    assert "row" not in talk.getvalue()
    assert "reading" in talk.getvalue()
    assert "100%" in talk.getvalue()
    assert "0:00:00" in talk.getvalue()


def test_bar_without_a_known_total_shows_the_amount_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "SHOW_AFTER_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    talk = Terminal()
    with contextlib.redirect_stderr(talk), progress_bar("restoring") as progress:
        assert progress is not None
        progress(250, None)
        progress(750, None)
    assert "restoring" in talk.getvalue()
    assert "750/?" in talk.getvalue()
    assert "100%" not in talk.getvalue()


def test_no_bar_is_shown_for_a_short_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "SHOW_AFTER_SECONDS", 3600.0)
    talk = Terminal()
    with contextlib.redirect_stderr(talk), progress_bar("reading") as progress:
        assert progress is not None
        progress(1, 2)
    assert talk.getvalue() == ""


@pytest.mark.parametrize(("out", "err"), [(io.StringIO, io.StringIO), (Terminal, Terminal)])
def test_no_bar_is_shown_without_a_terminal_or_beside_rows(out: type[io.StringIO], err: type[io.StringIO]) -> None:
    with (
        contextlib.redirect_stdout(out()),
        contextlib.redirect_stderr(err()),
        progress_bar("reading", beside_rows=True) as progress,
    ):
        assert progress is None
