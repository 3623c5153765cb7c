"""`logwright doctor`: what is there, what is missing, what that costs, and the command that installs it.

The optional packages are those of the installed distribution's own metadata, so a new extra appears here by itself. The
commands work for every kind of installation, also one from a checkout: pip takes the extras from the package that is
installed.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import click

from .. import __version__
from .arguments import json_option, verb
from .output import Column, Table, print_json

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_FOR_DEVELOPERS: Final = ("dev", "bench", "docs")
_PURPOSES: Final = {
    "avro": "values of Avro",
    "connect": "clients of Spark Connect",
    "delta": "tables in Delta",
    "hub": "serve hub, copy",
    "iceberg": "tables in Iceberg",
    "msgpack": "values of MessagePack",
    "server": "serve kestrel, twice as fast",
    "spark": "Spark, the pipeline on large journals",
    "sql": "sql, --where, expectations",
}
"""What an extra is for; by default its name says it."""
_REQUIREMENT: Final = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*\(?([^;)]*)\)?;.*\bextra == ['\"]([\w-]+)['\"]")
_BOUND: Final = re.compile(r"(>=|<)\s*(\d+(?:\.\d+)*)")
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_LEAST_JAVA: Final = 17
_JAVA_SECONDS: Final = 20


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the installation. `get` is None if nothing needs to be done."""

    part: str
    found: str | None
    purpose: str
    get: str | None = None


def compiled_kernels(package: Path = _PACKAGE) -> list[str]:
    """The modules of the compiled kernels that are installed, relative to the package."""
    found = set()
    for path in package.rglob("_*"):
        if path.name.endswith(tuple(EXTENSION_SUFFIXES)):
            found.add(".".join((*path.relative_to(package).parts[:-1], path.name.split(".")[0])))
    return sorted(found)


def describe_kernels(kernels: list[str]) -> str:
    """The kernels in one line, for `--version` and `doctor`."""
    if not kernels:
        return "not compiled: about ten times slower"
    if os.environ.get("LOGWRIGHT_PURE"):
        return "compiled, but switched off by LOGWRIGHT_PURE: about ten times slower"
    return f"{len(kernels)} compiled ({', '.join(sorted({name.split('.')[0] for name in kernels}))})"


@verb(
    "doctor",
    examples=[
        ("what is missing here, and how to get it", "logwright doctor"),
        ("the same for a program", "logwright doctor --json"),
    ],
)
@json_option
def command(as_json: bool) -> None:
    """Report what is missing on this machine, what it is for, and how to get it.

    Missing parts are optional, so the exit code is 0.
    """
    if as_json:
        for part in parts():
            print_json(asdict(part))
        return
    with Table([Column("part"), Column("found"), Column("for"), Column("to get it")]) as table:
        for part in parts():
            table.add(part.part, part.found or "missing", part.purpose, part.get or "-")


def parts() -> Iterator[Part]:
    """Python, the kernels, Java and the optional packages, as they are on this machine."""
    yield Part("Python", platform.python_version(), "everything")
    yield _kernels()
    yield _java()
    yield from _packages()


def _kernels() -> Part:
    kernels = compiled_kernels()
    get = None
    if not kernels:
        compiler = "install gcc and the headers of Python (Debian, Ubuntu: apt install gcc python3-dev), then "
        if (_PACKAGE.parent.parent / "setup.py").is_file():
            get = f"{compiler}make kernels"
        else:
            get = f"{compiler}{sys.executable} -m pip install --force-reinstall --no-deps {_origin()}"
    elif os.environ.get("LOGWRIGHT_PURE"):
        get = "unset LOGWRIGHT_PURE"
    return Part("kernels", describe_kernels(kernels) if kernels else None, "speed: ten times slower without", get)


def _origin() -> str:
    """What pip installs again: the checkout that it was given, or else the package of the index, from its source."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        found = json.loads(metadata.distribution("logwright").read_text("direct_url.json") or "{}")
        if "dir_info" in found:
            return shlex.quote(url2pathname(urlsplit(found["url"]).path))
    return "--no-binary logwright logwright"


def _java() -> Part:
    purpose = "Spark, the pipeline on large journals"
    get = f"Debian, Ubuntu: apt install openjdk-{_LEAST_JAVA}-jre-headless"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        return Part("Java", None, purpose, get)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Part("Java", None, purpose, get)
    match = _JAVA_VERSION.search(done.stderr + done.stdout)
    if match is None:
        return Part("Java", None, purpose, get)
    return Part("Java", match[1], purpose, get if int(match[1]) < _LEAST_JAVA else None)


def _packages() -> Iterator[Part]:
    """A part for each optional package, with the extra that installs it."""
    try:
        requirements = metadata.requires("logwright") or []
    except metadata.PackageNotFoundError:  # only on the path, not installed
        yield Part("logwright", None, "optional packages", "pip install . in the checkout")
        return
    seen: set[str] = set()
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is None or match[1] in {"logwright", *seen} or match[3] in _FOR_DEVELOPERS:
            continue
        name, bounds, extra = match[1], match[2], match[3]
        seen.add(name)
        found = _version(name)
        is_good = found is not None and _is_within(found, bounds)
        get = None if is_good else f"{sys.executable} -m pip install 'logwright[{extra}]'"
        yield Part(name, found, _PURPOSES.get(extra, extra), get)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_within(version: str, bounds: str) -> bool:
    """Whether a version satisfies all `>=` and `<` of a requirement; other conditions do not occur in ours."""
    number = _numbers(version)
    return all(
        number >= _numbers(bound) if operator == ">=" else number < _numbers(bound)
        for operator, bound in _BOUND.findall(bounds)
    )


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(number) for number in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def print_version() -> None:
    """What `--version` prints."""
    click.echo(f"logwright {__version__}\nPython {platform.python_version()}")
    click.echo(f"kernels: {describe_kernels(compiled_kernels())}")
