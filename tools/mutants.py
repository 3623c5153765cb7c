"""Mutation tests: each sync, rename, lock and truncation is removed once, and a test must fail.

`.mutants/tree` is a copy of the sources in which every such call can be switched off by name, and each decision of the
modules that recover journals can be changed. The tests run there once and record which test reaches which mutant. Then
each mutant is switched on in turn, and the tests that reach it run until one fails, beginning with the one that failed
last time. A mutant that no test detects survives: write a test for the line, or remove it.

    .venv/bin/python tools/mutants.py                              all of them; exit code 1 if one survives
    .venv/bin/python tools/mutants.py --only kestrel/model/packing those whose name contains this
    .venv/bin/python tools/mutants.py --list                       their names only

The results are kept in `.mutants` until a source or test changes. A changed test is tried again; `--fresh` tries all.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".mutants"
TREE = HOME / "tree"
PYTHON = ROOT / ".venv" / "bin" / "python"

NAMES = ("sej", "kestrel", "appendfile", "versioned", "yeltsin")
MUTATED = ("core", *NAMES, "servers", "pipeline", "arrow", "cli/convert.py")
"""Where calls are removed, below src/logwright."""
RECOVERY = (
    "core/io/quarantine.py",
    "core/publish/protocol.py",
    "core/write/opening.py",
    "sej/files/ending.py",
    "kestrel/files/note.py",
    "kestrel/model/packing.py",
    "versioned/files/buffer.py",
    "versioned/model/ending.py",
    "versioned/model/opening.py",
    "versioned/model/stale_files.py",
    "appendfile/files/boundaries.py",
    "appendfile/files/opening.py",
    "yeltsin/files/opening.py",
    "yeltsin/model/redo_note.py",
)
"""The modules whose decisions are changed as well."""
CONTRACT = [f"test_{name}.py" for name in ("crash", "faults", "full_disk", "opening", "staging", "torn_tails")]
TESTS = {
    "core/": [
        ("tests/core", ""),
        *((f"tests/sej/test_{name}.py", "") for name in ("checksums", "repair", "restore", "staging", "writer")),
        *((f"tests/kestrel/test_{name}.py", "") for name in ("restore", "staging")),
        *((f"tests/contract/{file}", "sej") for file in CONTRACT),
    ],
    "servers/": [("tests/servers", "")],
    "pipeline/": [(f"tests/pipeline/{name}", "") for name in ("publish", "test_run.py", "test_increments.py")],
    "pipeline/publish/": [("tests/pipeline/publish", "")],
    "arrow/": [("tests/test_arrow.py", ""), ("tests/test_dataset.py", "")],
    "cli/": [("tests/cli/test_convert.py", "")],
} | {f"{name}/": [(f"tests/{name}", ""), *((f"tests/contract/{file}", name) for file in CONTRACT)] for name in NAMES}
"""By prefix of a module's path: test files or folders, and a word that the name of a test must contain."""
NOT_RUN = [
    "bonjson",
    "codec",
    "column",
    "kernel",
    "memory",
    "power",
    "protobuf",
    "scanner",
    "shapes",
    "splits",
]
"""Words in the names of test files that are not run: they concern bytes, are slow, or need a loop device."""
TELLING = ("crash", "fault", "opening", "staging", "redo", "restore", "repair", "lock", "durability", "quarantine")
"""Words in the names of the test files that are tried first."""
USAGE_ERROR = 4
"""The exit code of pytest if a test does not exist, for instance because its parameters depend on the removed call."""
SLACK_SECONDS = 30
NICE = 10
MOST_MEMORY_BYTES = 8 << 30

EQUIVALENT: dict[str, str] = {}
"""The mutants that no test can detect, each with the reason."""


# --- finding them -----------------------------------------------------------------------------------------------------


@dataclass
class Mutant:
    """One change of one expression. `before` and `after` are put around it; `{name}` switches it on."""

    name: str
    module: str
    line: int
    kind: str
    start: int
    end: int
    before: str
    after: str


class Finder(ast.NodeVisitor):
    """Finds the mutants of one module."""

    def __init__(self, module: str, source: bytes) -> None:
        self.module = module
        self.found: list[Mutant] = []
        self._logic = module in RECOVERY
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scope: list[str] = []
        self._names: dict[str, int] = defaultdict(int)
        self.visit(ast.parse(source))

    def _add(self, node: ast.expr, kind: str, before: str, after: str) -> None:
        text = ast.unparse(node)
        text = text if len(text) <= 70 else text[:67] + "..."
        name = f"{self.module}: {'.'.join(self._scope) or 'module'}: {kind} {text}"
        self._names[name] += 1
        if self._names[name] > 1:
            name += f" #{self._names[name]}"
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        switch = f"_mutants.on({name!r})"
        before, after = before.replace("{on}", switch), after.replace("{on}", switch)
        self.found.append(Mutant(name, self.module, node.lineno, kind, start, end, before, after))

    def _scoped(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._scope.append(node.name)
        for child in node.body:
            self.visit(child)
        self._scope.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _scoped  # noqa: N815

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        kind = left_out(node)
        if kind == "acquire":
            arguments = ", ".join(map(ast.unparse, node.args))
            lock = ast.unparse(node.func).rpartition(".")[0]
            self._add(node, "lock", f"(_mutants.unlocked({lock}, {arguments}) if {{on}} else ", ")")
        elif kind:
            self._add(node, kind, "(None if {on} else ", ")")
        self.generic_visit(node)

    # decisions

    def visit_Expr(self, node: ast.Expr) -> None:
        if self._logic and self._scope and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func)
            if not left_out(node.value) and not called.startswith(("logger.", "super()")) and ".close" not in called:
                self._add(node.value, "call", "(None if {on} else ", ")")
        self.generic_visit(node)

    def _condition(self, node: ast.expr) -> None:
        if not self._logic or not self._scope or isinstance(node, ast.Constant):
            return
        if isinstance(node, ast.BoolOp):
            neutral = " or {on})" if isinstance(node.op, ast.And) else " and not {on})"
            for value in node.values:
                self._add(value, "part", "((", ")" + neutral)
        else:
            self._add(node, "condition", "({on} != bool(", "))")

    def visit_If(self, node: ast.If) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.BoolOp | ast.Compare):
            self._condition(node.value)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        other = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}.get(type(node.ops[0]))
        if self._logic and self._scope and other is not None and len(node.ops) == 1:
            changed = f"({ast.unparse(node.left)}) {other} ({ast.unparse(node.comparators[0])})"
            self._add(node, "compare", f"({changed} if {{on}} else ", ")")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        for side in (node.left, node.right):
            if self._logic and self._scope and isinstance(side, ast.Constant) and type(side.value) is int:
                self._add(side, "one more", "(", " + {on})")
        self.generic_visit(node)


def left_out(node: ast.Call) -> str:
    """The kind of a call that is removed; empty for any other call."""
    if isinstance(node.func, ast.Name):
        return "sync" if node.func.id == "_sync_data" else ""
    if not isinstance(node.func, ast.Attribute):
        return ""
    owner, name = ast.unparse(node.func.value), node.func.attr
    if name in ("sync", "sync_directory"):
        return "sync"
    if name == "acquire" and owner == "Lock":
        return "acquire"
    if (name == "lock" and not node.args) or (name == "flock" and "LOCK_EX" in ast.unparse(node)):
        return "lock"
    if (name == "rename" and len(node.args) == 2) or (name == "replace" and owner == "os"):
        return "rename"
    if name == "fsync" and owner == "os":
        return "sync"
    return "truncate" if name in ("truncate", "ftruncate") else ""


def find(package: Path) -> Iterator[tuple[Path, list[Mutant]]]:
    """The modules with mutants in them."""
    for beginning in MUTATED:
        path = package / beginning
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            finder = Finder(str(file.relative_to(package)), file.read_bytes())
            if finder.found:
                yield file, finder.found


# --- the copy in which they can be switched on ------------------------------------------------------------------------


def rewritten(source: bytes, mutants: list[Mutant]) -> bytes:
    """The source with a switch around each mutated expression."""
    inserts: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for number, mutant in enumerate(mutants):
        size = mutant.end - mutant.start
        inserts[mutant.start].append((1, -size * 1000 + number, mutant.before))  # the longest begins first
        inserts[mutant.end].append((0, size * 1000 - number, mutant.after))  # and ends last
    parts, last = [], 0
    for place in sorted(inserts):
        parts.append(source[last:place])
        parts += [text.encode() for _, _, text in sorted(inserts[place])]
        last = place
    parts.append(source[last:])
    text = b"".join(parts)
    first = b"from __future__ import annotations"
    assert text.count(first) == 1
    return text.replace(first, first + b"; import mutants_runtime as _mutants")


def make_tree() -> list[Mutant]:
    """Copy sources and tests, and put the switches in; all mutants. Unchanged files keep their modification times."""
    TREE.mkdir(parents=True, exist_ok=True)
    instrumented = {file: (mutants, file.read_bytes()) for file, mutants in find(ROOT / "src" / "logwright")}
    wanted: set[Path] = set()
    files = [file for name in ("src", "tests", "docs") for file in (ROOT / name).rglob("*")]
    files.append(ROOT / "pyproject.toml")
    for file in files:
        if not file.is_file() or file.suffix in (".pyc", ".c", ".pyx", ".pxd"):
            continue
        target = TREE / file.relative_to(ROOT)
        wanted.add(target)
        if file in instrumented:
            mutants, source = instrumented[file]
            data = rewritten(source, mutants)
            compile(data, str(file), "exec")
        else:
            data = file.read_bytes()
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    runtime = TREE / "src" / "mutants_runtime.py"
    shutil.copy(ROOT / "tools" / runtime.name, runtime)
    for file in (TREE / "src", TREE / "tests"):
        for stale in file.rglob("*"):
            if stale.is_file() and stale.suffix != ".pyc" and stale not in wanted and stale != runtime:
                stale.unlink()
    venv = TREE / ".venv"
    if not venv.exists():
        venv.symlink_to((ROOT / ".venv").resolve())
    return [mutant for mutants, _ in instrumented.values() for mutant in mutants]


# --- running tests in it ----------------------------------------------------------------------------------------------


class Tester:
    """A process that runs tests in the copy, each time in a fork of itself; one for each worker."""

    def __init__(self, name: str, log: Path | None = None) -> None:
        self._listed, self._output = HOME / f"arguments-{name}", HOME / f"output-{name}"
        temporary = HOME / f"temporary-{name}"
        environment = {**os.environ, "PYTHONPATH": f"{TREE / 'src'}{os.pathsep}{TREE}", "MUTANTS_LOG": str(log or "")}
        self._options = ["-q", "-p", "no:cacheprovider", "--durations=0", "--tb=line"]
        self._options += ["-m", "not torture", f"--basetemp={temporary}", f"@{self._listed}"]
        self._process = subprocess.Popen(
            [str(PYTHON), "-c", f"import mutants_runtime; mutants_runtime.serve({NICE}, {MOST_MEMORY_BYTES})"],
            cwd=TREE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, arguments: Iterable[str], mutant: str = "", seconds: float = 1e9) -> tuple[int | None, str]:
        """Run tests with a mutant; the exit code, or None if they did not end in time, and the output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._listed.write_text("\n".join(arguments))
        request = {"mutant": mutant, "arguments": self._options, "seconds": seconds, "output": str(self._output)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code: int | None = json.loads(self._process.stdout.readline())
        return code, self._output.read_text(errors="replace")

    def close(self) -> None:
        """End the process: it ends when its input is closed."""
        self._process.communicate()


class Reach:
    """Which test reaches which mutants, and how long it takes; kept for each test file until that changes."""

    def __init__(self, *, fresh: bool) -> None:
        self._path = HOME / "reach.json"
        known = json.loads(self._path.read_text()) if self._path.exists() and not fresh else {}
        self._seconds: dict[str, float] = {}
        self.files: dict[str, dict[str, Any]] = known
        """By test file and word, as in `TESTS`: its digest, the seconds of each test, the tests by mutant."""

    def update(self, modules: set[str], workers: int) -> None:
        """Run the test files of the modules that are new or have changed."""
        todo: dict[str, list[str]] = defaultdict(list)
        digests = {}
        for beginning, units in TESTS.items():
            if not any(module.startswith(beginning) for module in modules):
                continue
            for place, word in units:
                path = TREE / place
                for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
                    name = str(file.relative_to(TREE))
                    unit = f"{name} {word}"
                    digests[unit] = hashlib.sha256(file.read_bytes()).hexdigest()
                    if any(known in name for known in NOT_RUN):
                        continue
                    if self.files.get(unit, {}).get("digest") != digests[unit] and name not in todo[word]:
                        todo[word].append(name)
        for word, names in todo.items():
            if names:
                print(f"== {len(names)} test files are run once, to see what they reach {word}", flush=True)
                self._record(names, word, digests, workers)

    def _record(self, names: list[str], word: str, digests: dict[str, str], workers: int) -> None:
        log = HOME / "log"
        log.unlink(missing_ok=True)
        tester = Tester("reach", log)
        code, printed = tester.run([f"-n{workers}", *([f"-k{word}"] if word else []), *names])
        tester.close()
        if code:
            print(printed[-3000:])
        if code not in (0, 1):
            raise SystemExit("the tests did not run")
        found: dict[str, dict[str, Any]] = {name: {"seconds": {}, "reaches": defaultdict(list)} for name in names}
        lines = [line.split("\t") for line in log.read_text().splitlines()] if log.exists() else []
        for what, *rest in lines:
            if what == "ran" and rest[1] == "passed":
                found[rest[0].partition("::")[0]]["seconds"][rest[0]] = float(rest[2])
        for what, *rest in lines:
            file = found.get(rest[1].partition("::")[0]) if what == "reached" else None
            if file is not None and rest[1] in file["seconds"]:
                file["reaches"][rest[0]].append(rest[1])
        for name, file in found.items():
            unit = f"{name} {word}"
            self.files[unit] = {"digest": digests[unit], **file}
        self._path.write_text(json.dumps(self.files))

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant, the most promising first. For a new mutant, those that reach its module."""
        found = self._reaching(lambda name: name == mutant.name)
        return found or self._reaching(lambda name: name.startswith(f"{mutant.module}:"))

    def _reaching(self, wanted: Any) -> list[str]:
        ranked = []
        for name, file in self.files.items():
            telling = not any(word in name for word in TELLING)
            tests = {test for reached, tests in file["reaches"].items() if wanted(reached) for test in tests}
            ranked += [(telling and file["seconds"][test] > 0.5, file["seconds"][test], test) for test in tests]
        self._seconds |= {test: seconds for _, seconds, test in ranked}
        return [test for _, _, test in sorted(set(ranked))]

    def seconds(self, test: str) -> float:
        return self._seconds.get(test, 1.0)


# --- the answers ------------------------------------------------------------------------------------------------------


class Judge:
    """Tries mutants one by one, and remembers the results."""

    def __init__(self, reach: Reach, budget: float, jobs: int) -> None:
        self._reach = reach
        self._budget = budget
        self._path = HOME / "results.json"
        self._lock = threading.Lock()
        known = json.loads(self._path.read_text()) if self._path.exists() else {}
        self._digest = content_digest()
        self._killers: dict[str, str] = known.get("killers", {})
        self._results: dict[str, str] = known.get("results", {}) if known.get("digest") == self._digest else {}
        self._testers = [Tester(str(number)) for number in range(jobs)]
        self._sound: dict[str, bool] = {}

    def judge(self, mutant: Mutant) -> str:
        """`killed by …`, or `survived …`."""
        known = self._results.get(mutant.name)
        if known is None:
            with self._lock:
                tester = self._testers.pop()
            known = self._try(mutant, tester)
            with self._lock:
                self._testers.append(tester)
                self._results[mutant.name] = known
                if known.startswith("killed by tests"):
                    self._killers[mutant.name] = known.removeprefix("killed by ")
                answers = {"digest": self._digest, "killers": self._killers, "results": self._results}
                temporary = self._path.with_suffix(".new")
                temporary.write_text(json.dumps(answers, indent=1))
                temporary.replace(self._path)
        return known

    def _try(self, mutant: Mutant, tester: Tester) -> str:
        tests = self._reach.tests_of(mutant)
        killer = self._killers.get(mutant.name, "")
        if killer in tests:
            tests = [killer, *(test for test in tests if test != killer)]
        reached = len(tests)
        if self._budget:
            spent = 0.0
            for count, test in enumerate(tests):
                spent += self._reach.seconds(test)
                if spent > self._budget and count:
                    tests = tests[:count]
                    break
        first, tests = tests[:1] if killer else [], tests[1 if killer else 0 :]
        for part in (first, tests):
            while part:
                code, printed = self._run(mutant, part, tester)
                if code is None:
                    return "killed by the time limit"
                if code == 0:
                    break
                failed = failing_test(printed)
                if not failed and code == USAGE_ERROR:
                    return f"survived, for the tests were not run: {printed.strip()[-200:]!r}"
                if not failed:
                    return f"killed by exit code {code}: {printed.strip()[-200:]!r}"
                if self._is_sound(failed, tester):
                    return f"killed by {failed}"
                part = [test for test in part if test != failed]
        return (
            f"survived {reached} tests"
            if not self._budget
            else f"survived {len(first) + len(tests)} of {reached} tests"
        )

    def _run(self, mutant: Mutant, tests: list[str], tester: Tester) -> tuple[int | None, str]:
        return tester.run(["-x", *tests], mutant.name, SLACK_SECONDS + 5 * sum(map(self._reach.seconds, tests)))

    def _is_sound(self, test: str, tester: Tester) -> bool:
        """Whether a test passes without any mutant."""
        if test not in self._sound:
            self._sound[test] = tester.run([test])[0] == 0
        return self._sound[test]

    def close(self) -> None:
        for tester in self._testers:
            tester.close()


def failing_test(printed: str) -> str:
    for line in printed.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.partition(" ")[2].partition(" - ")[0].strip()
    return ""


def content_digest() -> str:
    digest = hashlib.sha256()
    for file in sorted([*(TREE / "src").rglob("*"), *(TREE / "tests").rglob("*")]):
        if file.is_file() and file.suffix != ".pyc":
            digest.update(str(file.relative_to(TREE)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description="Leave out one sync, rename, lock or truncation at a time.")
    parser.add_argument("--only", metavar="PATTERN", action="append", help="those whose name has this in it")
    parser.add_argument("--list", action="store_true", help="their names only")
    parser.add_argument("--fresh", action="store_true", help="record again which test reaches what")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--budget", type=float, default=0, metavar="SECONDS", help="of tests for each; 0 for all tests")
    options = parser.parse_args()
    mutants = make_tree()
    unknown = EQUIVALENT.keys() - {mutant.name for mutant in mutants}
    chosen = [one for one in mutants if not options.only or any(text in one.name for text in options.only)]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.module}:{mutant.line}\t{mutant.name.partition(': ')[2]}")
        return 0
    reach = Reach(fresh=options.fresh)
    reach.update({mutant.module for mutant in chosen}, options.jobs)
    judge = Judge(reach, options.budget, options.jobs)
    tried = [mutant for mutant in chosen if mutant.name not in EQUIVALENT]
    began, survivors = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant, answer in zip(tried, pool.map(judge.judge, tried), strict=True):
            survivors += answer.startswith("survived")
            print(f"{mutant.module}:{mutant.line}\t{mutant.name.partition(': ')[2]}\t{answer}", flush=True)
    judge.close()
    equivalent = len(chosen) - len(tried)
    for name in sorted(unknown):
        print(f"there is no mutant {name!r}: take it off the list")
    print(
        f"{len(chosen)} mutants: {len(tried) - survivors} killed, {survivors} survived, {equivalent} that no test can "
        f"notice; {time.monotonic() - began:.0f} s"
    )
    return 1 if survivors or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
