"""Common rules of all verbs: exit codes, errors in one line, pipes, signals, and lazy imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import logwright
from logwright.cli import VERBS, every_verb
from tests.cli.support import Outcome, assert_one_error_line, execute, run, shell, start

VERBS_OF_A_PATH = (
    "inspect",
    "dump",
    "tail",
    "count",
    "verify",
    "repair",
    "state",
    "offsets",
    "clean",
    "stats",
    "changes",
)


EVERY_VERB = dict(every_verb())


# --- wrong use ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dmp", "orders"), "No such command 'dmp'; did you mean dump?"),
        (("dump",), "Missing argument 'PATH' (see 'logwright dump --help')"),
        (("dump", ".", "--frm", "1"), "No such option"),
        (("dump", ".", "--from", "one"), "--from"),
        (("dump", ".", "--from", "-1"), "--from"),
        (("dump", ".", "--mode", "brave"), "--mode"),
        (("dump", ".", "--decode", "xml"), "--decode"),
        (("dump", ".", "--format", "csv"), "--format"),
        (("tail", ".", "-n", "-1"), "-n"),
        (("reset", "orders", "billing"), "--to"),
        (("pipeline",), "Missing command (see 'logwright pipeline --help')"),
        (("pipeline", "rn"), "No such command 'rn'"),
        (("pipeline", "run", "--out", "tables"), "give --journals, or a file that contains it with --config"),
        (("pipeline", "run", "--journals", "."), "give --out, or a file that contains it with --config"),
        (("pipeline", "run", "--journals", ".", "--out", "tables", "--mode", "brave"), "--mode"),
        (("pipeline", "run", "--config", "nowhere.toml"), "nowhere.toml: no such file or directory"),
        (("pipeline", "restore", "--out", "again"), "--tables"),
        (("completion", "tcsh"), "tcsh"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    assert_one_error_line(run(*arguments), 2, words)


def test_without_arguments_the_help_is_printed() -> None:
    outcome = run()
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == run("--help").out
    assert all(f"\n  {name} " in outcome.out for name in VERBS)


@pytest.mark.parametrize("verb", VERBS_OF_A_PATH)
def test_missing_path_is_one_line_and_exit_code_2(verb: str, tmp_path: Path) -> None:
    assert_one_error_line(run(verb, tmp_path / "nowhere"), 2, f"{tmp_path / 'nowhere'}: no such file or directory")


@pytest.mark.parametrize("verb", VERBS_OF_A_PATH)
def test_files_that_are_not_a_journal_are_one_line_and_exit_code_2(verb: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("milk, eggs")
    for path in (tmp_path, tmp_path / "notes.txt"):
        assert_one_error_line(run(verb, path), 2, f"{path} is not a journal of any known format")


@pytest.mark.parametrize("verb", VERBS_OF_A_PATH)
def test_wrong_format_is_one_line_and_exit_code_2(verb: str, tmp_path: Path) -> None:
    assert_one_error_line(run(verb, tmp_path, "--format", "sej"), 2, str(tmp_path))


def test_name_cannot_break_the_line_or_colour_the_terminal(tmp_path: Path) -> None:
    assert_one_error_line(run("dump", tmp_path / "a\nb\x1b[31m"), 2, r"a\nb\x1b[31m: no such file")


def test_undecodable_name_is_one_error_line(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff\xfe"
    done = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"logwright", b"dump", odd], capture_output=True, text=True, check=False
    )
    assert_one_error_line(Outcome(done.returncode, done.stdout, done.stderr), 2, "no such file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_path_is_one_line_and_exit_code_2(demo: Path) -> None:
    segment = demo / "orders" / "jnl" / "0000000000000000.jnl"
    segment.chmod(0)
    assert_one_error_line(run("dump", demo / "orders"), 2, "Permission denied")


def test_link_in_a_journal_is_not_followed(demo: Path) -> None:
    segment = demo / "orders" / "jnl" / "0000000000000221.jnl"
    segment.rename(demo / "elsewhere")
    segment.symlink_to(demo / "elsewhere")
    assert_one_error_line(run("dump", demo / "orders"), 2, "is a symbolic link")


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", EVERY_VERB)
def test_every_verb_has_help_with_examples_and_the_common_options(verb: str) -> None:
    outcome = run(*verb.split(), "--help")
    assert outcome.code == 0
    assert outcome.err == ""
    assert f"Usage: logwright {verb}" in outcome.out
    assert "Examples:\n" in outcome.out
    for _, line in EVERY_VERB[verb].examples:
        assert f"  {line}\n" in outcome.out
    if verb != "completion":
        # The journals of a server are of one format; a query and a page may show several; `doctor` reads none.
        assert "--format" in outcome.out or verb.startswith("serve ") or verb in ("sql", "web", "doctor")
        assert "--json" in outcome.out


def test_help_lists_the_verbs() -> None:
    outcome = run("--help")
    assert outcome.code == 0
    for verb, about in VERBS.items():
        assert verb in outcome.out
        assert about.split()[0] in outcome.out
    assert run("-h").out == outcome.out


def test_version_is_that_of_the_package() -> None:
    outcome = execute("--version")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.lines[0] == f"logwright {logwright.__version__}"


def loaded_after(code: str) -> set[str]:
    """The modules that a new interpreter has loaded after it ran some code."""
    program = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import logwright", {"click", "rich", "pyarrow", "asyncio", "logwright.sej.files.reader"}),
        ("from logwright.cli import main; main(['--help'])", {"rich", "pyarrow", "logwright.cli.dump"}),
        ("from logwright.cli import main; main(['dump', 'nowhere'])", {"rich", "pyarrow", "logwright.cli.convert"}),
    ],
)
def test_heavy_modules_are_loaded_only_when_needed(code: str, heavy: set[str]) -> None:
    assert not loaded_after(code) & heavy


# --- pipes, files, signals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["", "--json"])
def test_closed_pipe_ends_the_command_silently(output: str, samples: Path) -> None:
    outcome = shell(f"logwright dump orders {output} | head -n 2", samples)
    assert outcome.code == 0
    assert outcome.err == ""
    assert len(outcome.lines) == 2


def test_data_goes_to_stdout_and_messages_to_stderr(samples: Path) -> None:
    outcome = execute("dump", samples / "torn", "--from", 2995, "--json")
    assert outcome.code == 0
    assert [record["offset"] for record in outcome.objects] == [2995, 2996, 2997, 2998]
    assert outcome.err.startswith("logwright: warning: ")
    assert "torn" in outcome.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_full_output_disk_is_one_line_and_exit_code_2(samples: Path) -> None:
    outcome = shell("logwright dump orders --json > /dev/full", samples)
    assert_one_error_line(outcome, 2, "No space left on device")


def test_closed_stdout_does_no_harm(samples: Path) -> None:
    assert "Traceback" not in shell("logwright count orders >&-", samples).err


def test_ctrl_c_ends_the_command_silently_with_exit_code_130(samples: Path) -> None:
    with start("tail", samples / "orders", "-n", 1, "-f", "--json") as child:
        child.line()
        os.kill(child.pid, signal.SIGINT)
        with pytest.raises(EOFError):
            child.line()
        assert child.join() == 130


def test_output_to_a_pipe_is_plain_text(samples: Path) -> None:
    for verb in ("inspect", "dump", "tail", "verify", "state", "offsets"):
        outcome = shell(f"logwright {verb} orders", samples, TERM="xterm-256color", FORCE_COLOR="")
        assert outcome.code == 0
        assert outcome.out.isascii() or verb in ("dump", "tail")
        assert "\x1b" not in outcome.out + outcome.err


def test_output_is_the_same_in_a_plain_locale(samples: Path) -> None:
    outcome = shell("logwright dump orders --limit 40", samples, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert outcome.code == 0
    assert r"customer/bj\xf6rn" in outcome.out
