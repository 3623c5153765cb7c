"""Every example in README and docs runs and prints the documented output, and every link and path on a page exists.

A ```python block runs in the page's own scratch directory; all blocks of a page share one namespace. If a ```text block
follows directly, it is the expected output. A ```console block has commands after `$ `, and their output. A line `...`
matches any lines, and `…` any text within a line. Blocks of other kinds are not run.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import griffe
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGE = ROOT / "src" / "logwright"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
WITHOUT_EXAMPLES = [
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    ROOT / "examples" / "README.md",
]
DEADLINE_SECONDS = 600
"""Only for hangs: a command that starts its own Spark is slow on a busy machine."""
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int
    start: int
    end: int


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 2, match.start(), match.end())
        for match in _BLOCK.finditer(text)
    ]


def as_pattern(expected: str) -> str:
    """A regular expression for an expected output with `...` and `…` in it."""
    lines = []
    for line in expected.rstrip("\n").split("\n"):
        if line.strip() == "...":
            lines.append("(?:.*\n)*")
        else:
            lines.append(".*".join(re.escape(part.rstrip()) for part in line.rstrip().split("…")) + " *\n")
    return "".join(lines)


def assert_output(actual: str, expected: str, where: str) -> None:
    if not re.fullmatch(as_pattern(expected), actual.rstrip("\n") + "\n"):
        pytest.fail(f"{where} printed\n{actual}\nbut the page says\n{expected}")


def run_python(block: Block, page: Path, names: dict[str, object]) -> str:
    printed = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def run_console(block: Block, page: Path, directory: Path) -> None:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "120",
            "TZ": "UTC",
        }
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
        )
        where = f"{page.name}:{block.line}: {shlex.quote(command)}"
        assert_output(done.stdout, expected, where)
        assert ("error: " in done.stdout) == ("error: " in expected), f"{where} printed\n{done.stdout}"


@pytest.mark.parametrize(
    "page",
    PAGES,
    ids=[str(page.relative_to(ROOT)) for page in PAGES],
)
def test_examples_of_a_page_print_the_documented_output(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    text = page.read_text()
    blocks = blocks_of(page)
    for number, block in enumerate(blocks):
        if block.kind == "python":
            printed = run_python(block, page, names)
            following = blocks[number + 1] if number + 1 < len(blocks) else None
            if following is not None and following.kind == "text" and text[block.end : following.start].isspace():
                assert_output(printed, following.text, f"{page.name}:{block.line}")
        elif block.kind == "console":
            run_console(block, page, tmp_path)


def typed_examples(page: Path) -> str:
    """The Python of a page as a module, with the same line numbers as on the page."""
    lines: list[str] = []
    for block in blocks_of(page):
        if block.kind == "python":
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    return "\n".join([*lines, ""])


def check_types(directory: Path, examples: dict[str, str]) -> str:
    """The output of mypy, as strict as for the package, for examples, each in a module of this name."""
    for name, text in examples.items():
        (directory / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", *sorted(str(directory / f"{name}.py") for name in examples)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS)
    return done.stdout + done.stderr


def test_examples_of_all_pages_pass_the_type_checker(tmp_path: Path) -> None:
    named = {re.sub(r"\W", "_", str(page.relative_to(ROOT))): typed_examples(page) for page in PAGES}
    wrong = "def half(number: int) -> str:\n    return number / 2\n"
    said = check_types(tmp_path, {**named, "wrong": wrong})
    (error,) = [line for line in said.splitlines() if ": error:" in line]
    assert error.endswith(
        'wrong.py:2: error: Incompatible return value type (got "float", expected "str")  [return-value]'
    )


# --- the site, the pictures and the programs -------------------------------------------------------------------------

PUBLIC = ("", "sej", "kestrel", "versioned", "appendfile", "yeltsin", "arrow", "spark", "pipeline", "errors")


def public_names(package: str) -> list[str]:
    """The public names of a package: its `__all__`, or all that it defines without an underscore."""
    name = f"logwright.{package}".rstrip(".")
    module = importlib.import_module(name)
    defined = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name]
    return [f"{name}.{key}" for key in getattr(module, "__all__", defined) if not key.startswith("_")]


def test_site_is_built_without_warnings_and_has_every_public_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    missing = []
    for package in PUBLIC:
        text = (tmp_path / "site" / "reference" / f"{package or 'index'}.html").read_text()
        names = [name for name in public_names(package) if name.rpartition(".")[2] not in PUBLIC]
        missing += [name for name in names if f'id="{name}"' not in text]
    assert missing == []
    page = (tmp_path / "site" / "index.html").read_text()
    assert re.findall(r'(?:src|href)="(https?://[^"]*\.(?:js|css|woff2?)|[^"]*fonts\.g[^"]*)"', page) == []


def test_every_public_name_has_a_docstring() -> None:
    loader = griffe.GriffeLoader(search_paths=[PACKAGE.parent])
    root = loader.load("logwright")
    loader.resolve_aliases(external=False, implicit=True)
    missing: list[str] = []
    for package in (*PUBLIC, "versioned.bytes.bonjson"):
        for name in public_names(package):
            found = root[name.removeprefix("logwright.")]
            found = found.final_target if found.is_alias else found
            methods = [one for key, one in found.members.items() if found.is_class and not key.startswith("_")]
            missing += [one.path for one in (found, *methods) if not (one.is_attribute or one.docstring)]
            missing += [name] if found.is_attribute and not found.docstring else []
    assert missing == []


def test_pictures_show_what_the_commands_print() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "pictures.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_readme_is_short_and_starts_with_an_example() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 200
    assert "```python" in lines[:10]


def test_there_are_eight_short_programs_and_the_page_lists_them() -> None:
    assert len(EXAMPLES) == 8
    page = (ROOT / "examples" / "README.md").read_text()
    for path in EXAMPLES:
        assert f"]({path.name})" in page
        assert len(path.read_text().splitlines()) < 40


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_program_runs_and_prints_what_it_should(path: Path, tmp_path: Path) -> None:
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, path],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert_output(done.stdout, PRINTED[path.name], path.name)


PRINTED = {
    "accounts.py": "the line is cut\ncompleted 4 operations\nrolled_back 1 operations\ncompleted 2 operations\n",
    "async_workers.py": "100 jobs done, 0 left\n",
    "mail_queue.py": "sent to ada\n" + 3 * "nobody failed: no such address\n" + "sent to chen\nparked: [b'nobody']\n",
    "order_journal.py": "handled 0 b'a pear'\nhandled 1 b'two plums'\nhandled 2 b'a fig'\n",
    "rescue.py": "99 of 100 messages can be read\nlost 1 record: …\norders: sound, with known losses …\n...\n",
    "settings_store.py": (
        "now: {'per_hour': 500}\nbefore: {'per_hour': 100}\nall: [{'per_hour': 100}, {'per_hour': 500}]\n"
    ),
    "sharded_events.py": "1000 events of 50 visitors\n",
    "to_parquet.py": "1000 rows\n1000 rows in orders.parquet\n...\n│         3 │\n...\n",
}


# --- links and paths ------------------------------------------------------------------------------------------------

_LINK = re.compile(r"\]\(([^()\s]+)\)")
_PATH = re.compile(r"`([\w.]+(?:/[\w.]+)+/?|\w+\.py)`")


def prose_of(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """The links of a page to files or headings that do not exist."""
    broken = []
    for link in _LINK.findall(prose_of(page)):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors_of(target))):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", [*PAGES, *WITHOUT_EXAMPLES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    assert broken_links(page) == []


def test_broken_link_is_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `page`, again\n[a](#a-page-again) [b](#b) [c](page.md#a-page-again) [d](d.md) [e](http://e/#e)\n"
    )
    assert broken_links(page) == ["#b", "d.md"]


@pytest.mark.parametrize("name", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_path_on_a_page_for_contributors_exists(name: str) -> None:
    """A path is relative to the project, to the package, or to the package of each format."""
    paths = {path for path in _PATH.findall(prose_of(ROOT / name)) if "NAME" not in path}
    assert len(paths) > 40
    roots = (ROOT, PACKAGE, PACKAGE / "sej")
    missing = [path for path in sorted(paths) if not any((root / path).exists() for root in roots)]
    assert [path for path in missing if not path.startswith("build/")] == []


def test_drawing_of_the_architecture_shows_all_folders_and_no_others() -> None:
    drawing = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]
    homes = (PACKAGE, PACKAGE / "core", PACKAGE / "sej")
    folders = {path.parent for home in homes for path in home.glob("*/__init__.py")}
    assert set(re.findall(r"(\w+)/", drawing)) == {folder.name for folder in folders}
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert set(re.findall(r"\w+\.py", drawing)) == modules | {"format.py"}


def test_wrong_output_is_detected() -> None:
    assert re.fullmatch(as_pattern("a …\n...\nz\n"), "a b\n1\n2\nz\n")
    assert not re.fullmatch(as_pattern("a …\n...\nz\n"), "a b\n1\n2\ny\n")
    assert not re.fullmatch(as_pattern("abc\n"), "abd\n")
