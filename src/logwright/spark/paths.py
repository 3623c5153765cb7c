"""The paths of a table, a stream or a sink, as Spark's own sources take them.

- `load("a")`, `option("path", "a")` and, for tables, `load(["a", "b"])`.
- A relative path is below the directory in which Spark was started: in Spark Connect that of the server.
- `*`, `?`, `[a-c]`, `[^a-c]` and `{a,b}` are wildcards, unless the path exists as it is written. None matches a `/` or
  the dot of a hidden name; `?` is no wildcard in a URI, where it begins the options.

Journals of one path have their names below it. With several paths or wildcards, they have their names below the
directory that all paths share, so that the names are unique. A journal to which several paths lead is read once.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ..arrow.discovery import Journal, Refused, list_journals
from ..core.format import find_format, is_there
from ..core.io.disk import Disk
from ..core.io.file_names import printed
from ..errors import NotFound, UnknownFormat, WrongUse
from ..location import is_local, locate, without_secrets

_WILD: Final = re.compile(r"[*?\[{]")
_WILD_IN_URI: Final = re.compile(r"[*\[{]")
_ALTERNATIVES: Final = re.compile(r"(?<!\\)\{([^{}]*)\}")
_SINGLE_SLASH: Final = re.compile(r"file:/(?!/)")
"""As Hadoop prints the paths of this machine."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Absolute paths and URIs, which may have wildcards."""

    given: tuple[str, ...]

    def find_journals(self, format: str | None, refused: Refused) -> list[Journal]:
        """The journals at or below the paths, in the order of their names; of one format, or of any."""
        found = self._search(format, refused, may_be_missing=False)
        if not found:
            kind = format or "any known format"
            given = ", ".join(map(without_secrets, self.given))
            raise UnknownFormat(f"{given}: no journal of {kind} is at or below this path")
        return found

    def list_journals(self, format: str | None, refused: Refused) -> list[Journal]:
        """As `find_journals`, but there may be none, and wildcards need not match anything yet."""
        return self._search(format, refused, may_be_missing=True)

    def _search(self, format: str | None, refused: Refused, *, may_be_missing: bool) -> list[Journal]:
        if len(self.given) == 1 and _fixed_part(self.given[0]) == self.given[0]:
            return list_journals(self.given[0], format, refused)
        base = _shared([_fixed_part(path) for path in self.given])
        found: dict[str, Journal] = {}
        for path in self.given:
            for root in _expanded(path, may_be_missing):
                for journal in list_journals(root, format, refused):
                    one = _as_a_whole(replace(journal, name=_name_below(base, root, journal)))
                    found.setdefault(_identity(one.location), one)
        once = [journal for place, journal in found.items() if not _belongs_to_another(place, found)]
        return sorted(once, key=lambda journal: journal.location.split("/"))


def paths_of(options: Mapping[str, str], advice: str) -> Paths:
    """The paths in the options, which are folded; `advice` says how to give one."""
    given = json.loads(options.get("paths") or "[]") or [options.get("path")]
    if not all(given):
        raise WrongUse(advice)
    return Paths(tuple(absolute(path) for path in given))


def absolute(path: str) -> str:
    """A path that means the same in every process of Spark."""
    path = _SINGLE_SLASH.sub("file:///", path)
    return path if "://" in path or os.path.isabs(path) else os.path.join(_directory_of_spark(), path)


def _directory_of_spark() -> str:
    """The directory in which Spark was started, where its own sources look for relative paths.

    A worker runs there too, unless its session has artifacts of its own, as those of Spark Connect have: then the first
    process above it with another directory is Spark.
    """
    here = os.getcwd()
    if os.environ.get("SPARK_JOB_ARTIFACT_UUID", "default") == "default":
        return here
    try:
        process, directory = os.getpid(), here
        while directory == here:
            with open(f"/proc/{process}/stat") as file:
                process = int(file.read().rpartition(")")[2].split()[1])
            directory = os.readlink(f"/proc/{process}/cwd")
    except OSError:
        raise WrongUse("give an absolute path: it is not known in which directory Spark was started") from None
    return directory


# --- wildcards --------------------------------------------------------------------------------------------------------


def _fixed_part(path: str) -> str:
    """The path itself if it has no wildcards or exists as it is written; otherwise the directory above the first."""
    wild = _WILD_IN_URI.search(path.partition("?")[0]) if "://" in path else _WILD.search(path)
    fixed = path if wild is None else path[: wild.start()].rpartition("/")[0] or "/"
    if fixed.endswith(":/"):
        raise WrongUse(f"{without_secrets(path)}: the name of a bucket cannot have wildcards")
    return path if wild is None or _exists(path) else fixed


def _exists(path: str) -> bool:
    try:
        return is_there(*locate(path))
    except WrongUse:
        if "://" in path:  # braces and brackets are not valid in a URI
            return False
        raise


def _expanded(path: str, may_be_missing: bool) -> list[str]:
    """The paths that match a path with wildcards."""
    fixed = _fixed_part(path)
    if fixed == path:
        return [path]
    rest, options = path.removeprefix(fixed), ""
    if "://" in path:
        rest, question, options = rest.partition("?")
        options = question + options
    disk, directory = locate(fixed + options)
    if may_be_missing and not is_there(disk, directory):
        raise NotFound(f"{without_secrets(fixed)}: no such file or directory")
    patterns = [pattern.strip("/").split("/") for pattern in _alternatives(rest)]
    below = sorted({name for pattern in patterns for name in _matching(disk, directory, pattern)})
    if not below and not may_be_missing:
        raise NotFound(f"{without_secrets(path)}: no such file or directory; no path matches these wildcards")
    return [f"{fixed.rstrip('/')}/{name}{options}" for name in below]


def _alternatives(pattern: str) -> Iterator[str]:
    """A pattern without `{a,b}`: one for each of them."""
    found = _ALTERNATIVES.search(pattern)
    if found is None:
        yield pattern
        return
    for choice in found[1].split(","):
        yield from _alternatives(pattern[: found.start()] + choice + pattern[found.end() :])


def _matching(disk: Disk, directory: Path, pattern: list[str]) -> Iterator[str]:
    """The paths below a directory that match a pattern, which is divided at `/`."""
    first, rest = pattern[0], pattern[1:]
    try:
        names = disk.list_directory(directory) if disk.is_directory(directory) else []
    except NotFound:  # removed in the meantime
        return
    matches = _matcher(first)
    for name in filter(matches, names):
        if rest:
            yield from (f"{name}/{below}" for below in _matching(disk, directory / name, rest))
        else:
            yield name


def _matcher(pattern: str) -> Callable[[str], bool]:
    r"""Whether a name matches. Python's patterns differ: a class is negated by `!`, and `\*` is written `[*]`."""
    translated = re.sub(r"\\(.)", r"[\1]", pattern).replace("[^", "[!")
    hidden = pattern.startswith(".")
    return lambda name: (hidden or not name.startswith(".")) and fnmatch.fnmatchcase(name, translated)


# --- several paths ----------------------------------------------------------------------------------------------------


def _shared(paths: list[str]) -> list[str]:
    """The components that all paths begin with."""
    divided = [_components(path) for path in paths]
    shared = []
    for each in zip(*divided, strict=False):
        if len(set(each)) > 1:
            break
        shared.append(each[0])
    return shared


def _components(path: str) -> list[str]:
    return [name for name in without_secrets(path).split("/") if name]


def _name_below(base: list[str], root: str, journal: Journal) -> str:
    """The name of a journal that was found at or below a root."""
    above = "/".join(printed(name) for name in _components(root)[len(base) :])
    if not above:
        return journal.name
    return above if journal.location == root else f"{above}/{journal.name}"


def _as_a_whole(journal: Journal) -> Journal:
    """The journal that a file belongs to: `queues/*` matches each file of a queue."""
    disk, path = locate(journal.location)
    format = find_format(journal.format)
    if not format.flat or disk.is_directory(path):
        return journal
    name = path.name
    whole = format.journal_of(name)
    return replace(
        journal,
        location=journal.location.removesuffix(name) + whole,
        name=journal.name.removesuffix(printed(name)) + printed(whole),
    )


def _identity(location: str) -> str:
    disk, path = locate(location)
    return os.path.realpath(path) if is_local(disk) else location


def _belongs_to_another(place: str, found: Mapping[str, Journal]) -> bool:
    """Whether a journal is part of another one that was found: a segment, a shard, or one queue of a directory."""
    for distance, above in enumerate(Path(place).parents):
        journal = found.get(str(above))
        if journal is not None and (
            not find_format(journal.format).flat or (distance == 0 and not os.path.isdir(place))
        ):
            return True
    return False
