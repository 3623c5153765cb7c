"""The layers of the package: which modules import which, which access files, and what `import logwright` loads.

Data flows from disk to journal, codec or kernel, records or columns, replay or Arrow, Spark, pipeline, people; imports
go only the other way. These tests read the sources, so they detect every shortcut.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Set
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGE = SOURCE / "logwright"
MODULES = sorted(PACKAGE.rglob("*.py"))
FORMATS = sorted(path.parent.name for path in PACKAGE.glob("*/format.py") if path.parent.name != "core")
OPTIONAL = {
    "pyarrow",
    "pyspark",
    "click",
    "rich",
    "grpc",
    "uvloop",
    "starlette",
    "uvicorn",
    "watchfiles",
    "msgpack",
    "duckdb",
    "deltalake",
    "pyiceberg",
    "sqlalchemy",
    "polars",
    "pandas",
    "numpy",
}
FOLDERS = ("bytes", "files", "model", "tables")
"""The folders of every format, besides its `format.py`; each may load the preceding ones, and `model/replay.py`."""
LOADS_LATER = {("kestrel/files/queue_files.py", "packing")}
"""Modules that load from a later folder nevertheless: a queue packs its files by its own replay."""
ARROW_MODULES = {"backlog", "columns", "materializer", "messages", "spark_columns"}
"""Modules in the folder `tables` of a format that may load Arrow."""
ARROW_PLACES = {
    "cli/sql.py",
    "location.py",
    "core/arrow/batches.py",
    "core/arrow/columns.py",
    "core/arrow/spark_columns.py",
}
"""Modules outside of the formats that may load Arrow: columns of files, files by `pyarrow.fs`, rows of queries."""
FILE_MODULES = {"core/io/disk.py", "core/io/watch.py"}
"""The modules that access the file system."""


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports_of(path: Path, *, when_loaded: bool = False, with_types: bool = False) -> frozenset[str]:
    """Everything that a module imports, as absolute names, or only the imports at its loading.

    Imports for type checkers only, in `if TYPE_CHECKING:`, are omitted unless `with_types`: they load nothing.
    """
    module = name_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    left_out = {
        child for node in ast.walk(tree) if _is_left_out(node, when_loaded, with_types) for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(_imported_from(node, package))
    return frozenset(found)


def _is_left_out(node: ast.AST, when_loaded: bool, with_types: bool) -> bool:
    if isinstance(node, ast.If):
        return not with_types and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return when_loaded and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _imported_from(node: ast.ImportFrom, package: str) -> Iterator[str]:
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
    yield base
    for alias in node.names:
        yield f"{base}.{alias.name}"


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def in_house(names: Set[str]) -> set[str]:
    return {name for name in names if within(name, "logwright")}


def outside(names: Set[str]) -> set[str]:
    """The top-level packages that are neither ours nor the standard library's."""
    tops = {name.partition(".")[0] for name in names} - {"logwright", "", "cython"}  # the last has a stand-in
    return {top for top in tops if top not in sys.stdlib_module_names}


def place_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def modules_below(*parts: str) -> list[Path]:
    root = PACKAGE.joinpath(*parts)
    return [path for path in MODULES if root in path.parents]


def modules_of_formats() -> list[Path]:
    return [path for format in FORMATS for path in modules_below(format)]


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=place_of)


# --- which modules import which -------------------------------------------------------------------------------------


@each([path for path in modules_below("core") if place_of(path) not in ARROW_PLACES])
def test_core_imports_only_the_standard_library_and_core(path: Path) -> None:
    names = imports_of(path)
    assert outside(names) == set()
    others = {name for name in in_house(names) if not within(name, "logwright.core")}
    assert {name for name in others if not within(name, "logwright.errors")} <= {"logwright"}


def test_every_format_has_the_same_folders() -> None:
    for format in FORMATS:
        found = {path.name for path in (PACKAGE / format).iterdir() if path.is_dir() and path.name != "__pycache__"}
        assert found == set(FOLDERS), format
        files = {path.name for path in (PACKAGE / format).iterdir() if path.suffix in (".py", ".pyx", ".pxd")}
        assert files == {"__init__.py", "format.py"}, format


def test_no_two_modules_of_a_folder_differ_by_a_plural_only() -> None:
    for folder in {path.parent for path in MODULES}:
        names = {path.stem.lstrip("_") for path in folder.iterdir() if path.suffix in (".py", ".pyx") or path.is_dir()}
        assert not names & {f"{name}{ending}" for name in names for ending in ("s", "es", "ing")}, folder


def test_modules_do_not_pass_on_names_of_other_modules() -> None:
    """Except those that choose between a kernel and its source, within an `if`, and the modules of packages."""
    for path in MODULES:
        if path.name != "__init__.py":
            imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
            aliases = [alias for node in imports if node.level for alias in node.names]
            assert [alias.name for alias in aliases if alias.asname == alias.name] == [], place_of(path)


@each([path for path in modules_of_formats() if len(path.relative_to(PACKAGE).parts) > 2])
def test_folder_loads_only_the_preceding_folders(path: Path) -> None:
    format, folder = path.relative_to(PACKAGE).parts[:2]
    for name in in_house(imports_of(path, when_loaded=True)):
        parts = name.split(".")
        if parts[1:2] == [format] and len(parts) > 3 and parts[2] in FOLDERS and parts[3].lstrip("_") != "replay":
            is_later = FOLDERS.index(parts[2]) > FOLDERS.index(folder)
            assert not is_later or (place_of(path), parts[3]) in LOADS_LATER, f"{name} is in a later folder"


@each(modules_of_formats())
def test_format_imports_no_other_format_and_nothing_above_it(path: Path) -> None:
    format = path.relative_to(PACKAGE).parts[0]
    for name in in_house(imports_of(path)):
        for other in FORMATS:
            assert other == format or not within(name, f"logwright.{other}"), f"{name} is another format"
        for above in ("spark", "pipeline", "cli", "servers", "web"):
            assert not within(name, f"logwright.{above}"), f"{name} is above"


@each([path for path in MODULES if path.relative_to(PACKAGE).parts[1:2] == ("bytes",)])
def test_bytes_and_model_import_no_files_no_arrow_and_no_logging(path: Path) -> None:
    names = imports_of(path)
    assert outside(names) == set()
    for name in in_house(names):
        parts = name.split(".")
        is_pure = (
            within(name, "logwright.errors") or parts[2:3] in (["bytes"], []) or parts[3:4] in (["replay"], ["_replay"])
        )
        assert is_pure, f"{path.stem} imports {name}"
    forbidden = {"pathlib", "io", "shutil", "tempfile", "logging", "mmap", "socket", "asyncio", "fcntl"}
    assert not {name.partition(".")[0] for name in names} & forbidden
    assert used_of("os", path) <= ({"environ"} if path.stem == "compiled" else set())


def used_of(module: str, path: Path) -> set[str]:
    """The attributes of an imported module that a source uses."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module
    }


@each([path for path in modules_of_formats() if path.stem in ("replay", "rules")])
def test_replay_never_sees_bytes(path: Path) -> None:
    forbidden = {"codec", "layout", "kernel", "_kernel"}
    assert not {name for name in in_house(imports_of(path)) if name.rpartition(".")[2] in forbidden}
    assert not {
        name for name in in_house(imports_of(path)) if name.split(".")[-2:-1] and name.split(".")[-2] in forbidden
    }


@each([path for path in MODULES if place_of(path) not in ARROW_PLACES and path.stem not in ARROW_MODULES])
def test_arrow_is_imported_only_in_columns_and_arrow(path: Path) -> None:
    if place_of(path).startswith(("arrow/", "spark/", "pipeline/", "web/")):
        return  # above: Spark accepts Arrow batches
    assert "pyarrow" not in outside(imports_of(path))


@each([path for path in modules_of_formats() if path.stem not in ARROW_MODULES])
def test_readers_and_writers_load_columns_only_when_needed(path: Path) -> None:
    format = path.relative_to(PACKAGE).parts[0]
    assert not {name for name in in_house(imports_of(path)) if within(name, "logwright.arrow")}
    for name in in_house(imports_of(path, when_loaded=True)):
        columns = any(within(name, f"logwright.{format}.tables.{module}") for module in ARROW_MODULES)
        assert not columns, f"{name}: import it in the function that needs it"


@pytest.mark.parametrize("top", ["spark", "pipeline", "cli", "servers", "web"])
def test_layers_above_the_formats_do_not_import_layout_or_codec(top: str) -> None:
    for path in modules_below(top):
        for name in in_house(imports_of(path)):
            if name.split(".")[1:2] != [top]:
                assert not {"layout", "codec", "kernel", "_kernel"} & set(name.split(".")), f"{path}: {name} is bytes"


@each(MODULES)
def test_optional_packages_are_imported_only_where_they_are_used(path: Path) -> None:
    """A package that only some features need is not imported by modules that everything imports."""
    top = path.relative_to(PACKAGE).parts[0]
    allowed = {
        "cli": {"click", "rich", "msgpack"},
        "arrow": {"pyarrow", "duckdb"},
        "location.py": {"pyarrow"},
        "spark": {"pyarrow", "pyspark"},
        # pyspark and pyiceberg raise errors of py4j and sqlalchemy
        "pipeline": {"pyarrow", "pyspark", "py4j", "deltalake", "duckdb", "pyiceberg", "sqlalchemy"},
        "servers": {"grpc", "uvloop", "google"},
        "web": {"starlette", "uvicorn", "anyio", "pyarrow", "duckdb"},
    }.get(top, set())
    if place_of(path) in ARROW_PLACES or (top in FORMATS and path.stem in ARROW_MODULES):
        allowed = allowed | {"pyarrow"}
    assert outside(imports_of(path)) <= allowed


# --- no circles -----------------------------------------------------------------------------------------------------

LAZY_PLACES = {"registry.py", "cli/__init__.py", *(f"{format}/format.py" for format in FORMATS)}
"""Modules whose imports within functions are lazy on purpose. Elsewhere such imports count as well."""
_COMPILED_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+)?c?import[ \t]+(\([^)]*\)|[^\n#]+)", re.MULTILINE
)


def imports_of_compiled(path: Path) -> set[str]:
    """Everything that a `.pyx` or `.pxd` imports and cimports, as absolute names."""
    found: set[str] = set()
    parents = name_of(path).split(".")
    source = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
    for dots, base, names in _COMPILED_IMPORT.findall(source):
        above = parents[: len(parents) - len(dots)] if dots else []
        for name in names.strip("() \n").split(","):
            if parts := name.split():
                full = [*above, *base.split("."), *parts[0].split(".")]
                found.update({".".join(filter(None, full[:-1])), ".".join(filter(None, full))})
    return found


@functools.cache
def imports_between_modules(*, with_types: bool = False) -> dict[str, set[str]]:
    """The modules that each of our modules imports. A module that is interpreted and compiled is one module."""
    compiled = [path for kind in ("*.pyx", "*.pxd") for path in PACKAGE.rglob(kind)]
    found: dict[str, set[str]] = {name_of(path): set() for path in [*MODULES, *compiled]}
    for path in MODULES:
        found[name_of(path)] |= imports_of(path, when_loaded=place_of(path) in LAZY_PLACES, with_types=with_types)
    for path in compiled:
        found[name_of(path)] |= imports_of_compiled(path)
    return {name: set(_modules_of(names, found.keys())) - {name} for name, names in found.items()}


def _modules_of(names: set[str], known: Collection[str]) -> Iterator[str]:
    """The modules with these names, or from which the names are imported."""
    packages = {name.rpartition(".")[0] for name in names}
    for name in names - packages:
        yield from [module for module in (name, name.rpartition(".")[0]) if module in known][:1]


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules that import each other in a cycle."""
    reached: dict[str, set[str]] = {}
    for start in imports:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            new = imports[ahead.pop()] - seen
            seen |= new
            ahead += new
        reached[start] = seen
    groups = {frozenset({other for other in reached[name] if name in reached[other]}) for name in imports}
    return [set(group) for group in groups if group]


def test_no_modules_import_each_other_in_a_cycle() -> None:
    assert circles(imports_between_modules()) == []


CIRCLES_OF_TYPES = [
    {"core.format", "core.publish.manifest", "core.publish.restore"},
    {"sej.files.check", "sej.files.offset_file", "sej.files.reader"},
    {"kestrel.files.check", "kestrel.files.reader", "kestrel.files.survey"},
    {"appendfile.files.check", "appendfile.files.reader"},
    {"versioned.files.check", "versioned.files.reader"},
    {"yeltsin.files.check", "yeltsin.files.reader"},
    {"appendfile.files.writer", "appendfile.model.recovery"},
    {"yeltsin.model.database", "yeltsin.model.transaction"},
]
"""Modules that name each other's types, and load each other in one direction only. There must be no others."""


def test_no_other_modules_name_each_others_types() -> None:
    for circle in circles(imports_between_modules(with_types=True)):
        names = {name.removeprefix("logwright.") for name in circle}
        assert any(names <= known for known in CIRCLES_OF_TYPES), f"{sorted(names)} import each other for their types"


def test_imports_for_types_are_detected() -> None:
    check = PACKAGE / "sej" / "files" / "check.py"
    assert "logwright.sej.files.reader.Reader" not in imports_of(check)
    assert "logwright.sej.files.reader.Reader" in imports_of(check, with_types=True)


def test_cycles_within_functions_and_in_kernels_are_detected() -> None:
    imports = imports_between_modules()
    assert "logwright.core.arrow.batches" in imports["logwright.core.read.chunk_reader"], "within a function"
    assert "logwright.sej.bytes.layout" in imports["logwright.sej.bytes._kernel"], "in a kernel"
    assert "logwright.core.bytes._buffers" in imports["logwright.sej.bytes._kernel"], "by a cimport"
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]


BY_NAME = {
    "__init__.py": "the formats, which `from . import` would ask `__getattr__` for",
    "values.py": "packages that need not be installed",
    "versioned/files/archive_stream.py": "packages that need not be installed",
    "versioned/files/archiving.py": "packages that need not be installed",
}
"""The places where modules are imported by a computed name, and which modules."""
IMPORT_NOTHING = {
    *("importlib", "importlib.util", "importlib.util.find_spec"),
    *("importlib.metadata", "importlib.machinery", "importlib.machinery.EXTENSION_SUFFIXES"),
}
"""The parts of importlib that only look things up."""


@each([path for path in MODULES if place_of(path) not in BY_NAME])
def test_no_module_is_imported_by_a_name_in_a_string(path: Path) -> None:
    assert not {name for name in imports_of(path) if name.partition(".")[0] == "importlib"} - IMPORT_NOTHING
    assert not {"__import__", "import_module"} & set(re.findall(r"\w+", path.read_text()))


# --- which modules access files -------------------------------------------------------------------------------------

FILE_CALLS_OF_OS = {
    *("open", "read", "pread", "preadv", "write", "pwrite", "pwritev", "ftruncate", "truncate", "fsync", "fdatasync"),
    *("rename", "replace", "remove", "unlink", "rmdir", "mkdir", "makedirs", "listdir", "scandir", "walk", "link"),
    *("symlink", "stat", "lstat", "fstat", "chmod", "utime", "sendfile", "copy_file_range", "posix_fallocate"),
}
FILE_METHODS = {
    *("read_bytes", "read_text", "write_bytes", "write_text", "iterdir", "glob", "rglob", "unlink", "touch", "rename"),
    *("symlink_to", "hardlink_to", "is_file", "is_symlink", "rmdir", "samefile", "exists", "is_dir", "stat", "lstat"),
}


@each([path for path in modules_of_formats() + modules_below("core") if place_of(path) not in FILE_MODULES])
def test_files_are_accessed_only_through_the_disk(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        place = f"{place_of(path)}:{node.lineno}"
        function = node.func
        if isinstance(function, ast.Name):
            assert function.id != "open", f"{place} opens a file"
        elif isinstance(function, ast.Attribute):
            owner = function.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            assert not (name == "os" and function.attr in FILE_CALLS_OF_OS), f"{place} calls os.{function.attr}"
            assert name not in ("shutil", "tempfile", "mmap", "fcntl", "io"), f"{place} calls {name}.{function.attr}"
            if function.attr in FILE_METHODS and name not in ("disk", "_disk"):
                assert not _is_path(owner), f"{place} calls .{function.attr} of a path"


def _is_path(node: ast.expr) -> bool:
    """Whether an expression looks like a path: `path`, `self.directory`, `folder / name`, `Path(...)`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.rpartition("_")[2] in (
                "path",
                "directory",
                "folder",
                "root",
                "home",
                "parent",
                "target",
                "source",
            )
        case ast.BinOp(op=ast.Div()):
            return True
        case ast.Call(func=ast.Name(id="Path")):
            return True
    return False


def test_checks_of_this_file_detect_violations() -> None:
    """The helpers see through relative imports, imports within functions, and file calls."""
    reader = PACKAGE / "sej" / "files" / "reader.py"
    assert "logwright.errors.DamagedJournal" in imports_of(reader)
    assert "logwright.sej.tables.splits" in imports_of(PACKAGE / "sej" / "format.py")
    assert "logwright.sej.bytes.codec" in imports_of(reader)
    assert outside(imports_of(PACKAGE / "arrow" / "bounds.py")) == {"pyarrow"}
    tree = ast.parse("Path('x').read_bytes(); (folder / 'x').exists(); self.path.unlink(); found.exists()")
    calls = [
        node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert sorted(call.attr for call in calls if _is_path(call.value)) == ["exists", "read_bytes", "unlink"]


# --- what importing loads -------------------------------------------------------------------------------------------


def loaded_by(code: str) -> set[str]:
    """The modules that a new interpreter has loaded after running some code."""
    listing = f"import sys, json; {code}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_logwright_is_light() -> None:
    loaded = loaded_by("import logwright") - loaded_by("pass")
    tops = {name.partition(".")[0] for name in loaded}
    assert not tops & OPTIONAL
    assert not tops & {"asyncio", "concurrent", "multiprocessing", "unittest", "http", "email", "logging", "sqlite3"}
    assert not {name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in FORMATS}, "loaded when used"


def test_reading_and_writing_a_journal_loads_no_optional_package() -> None:
    loaded = loaded_by("from logwright import sej; sej.Writer, sej.Reader, sej.Scanner")
    assert not {name.partition(".")[0] for name in loaded} & OPTIONAL
    assert "logwright.sej.tables.columns" not in loaded
    assert "logwright.arrow" not in loaded


def test_help_of_the_command_line_loads_no_arrow() -> None:
    loaded = loaded_by("import logwright.cli")
    assert not {name.partition(".")[0] for name in loaded} & {"pyarrow", "pyspark", "pandas", "numpy"}


@pytest.mark.parametrize("path", MODULES, ids=place_of)
def test_each_module_starts_with_a_docstring(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, f"{place_of(path)} has no docstring"
    first = docstring.split("\n\n")[0]
    assert first.rstrip().endswith((".", ":", "?")), f"{place_of(path)}: {first!r} is no sentence"


def test_page_on_the_architecture_names_existing_files() -> None:
    page = (SOURCE.parent / "docs" / "architecture.md").read_text()
    named = re.findall(r"`([\w/]+\.pyx?)`", page)
    assert len(named) > 40
    for name in named:
        places = [SOURCE.parent / name, PACKAGE / name, *(PACKAGE / format / name for format in FORMATS)]
        assert any(place.exists() for place in places), name
