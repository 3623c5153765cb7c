"""What a new user gets: a wheel that works without checkout and compiler, and commands that install what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tools import smoke

import logwright
from logwright.cli import doctor
from tests.cli.support import run

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DEADLINE_SECONDS = 600


def built(directory: Path) -> tuple[Path, Path]:
    """The source distribution of the checkout, and the wheel that is built from it without a compiler."""
    source = directory / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source)
    ignored = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)  # with the C that Cython has made already
    variables = {**os.environ, "CC": "false"}
    variables.pop("PYTHONPATH", None)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory / "dist"), str(source)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the kernels were not built" in done.stdout + done.stderr
    (sources,), (wheel,) = (directory / "dist").glob("*.tar.gz"), (directory / "dist").glob("*.whl")
    return sources, wheel


def test_wheel_works_in_a_clean_environment_without_checkout_and_compiler(tmp_path: Path) -> None:
    sources, wheel = built(tmp_path)
    assert sources.name == f"logwright-{logwright.__version__}.tar.gz"
    with tarfile.open(sources) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kernels = {path.relative_to(ROOT).as_posix() for kind in ("pyx", "pxd") for path in ROOT.glob(f"src/**/*.{kind}")}
    assert kernels <= names
    with zipfile.ZipFile(wheel) as packed:
        assert "logwright/py.typed" in packed.namelist()
        assert not [name for name in packed.namelist() if name.endswith((".so", ".c")) or name.startswith("tests/")]
    (tmp_path / "trial").mkdir()
    printed = smoke.try_wheel(wheel, tmp_path / "trial")
    assert printed.startswith(f"logwright {logwright.__version__}\n")
    assert "kernels: not compiled: about ten times slower\n" in printed
    assert "pip install --force-reinstall --no-deps --no-binary logwright logwright" in printed  # doctor recommends it
    assert "\nrecords\n   3000\n" in printed


# --- what is missing, and how to get it ------------------------------------------------------------------------------


def test_version_is_written_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "logwright.__version__"}


def test_every_install_command_in_a_message_names_an_extra_that_exists() -> None:
    named = {
        (path.name, extra)
        for path in (ROOT / "src").rglob("*.py")
        for extras in re.findall(r"logwright\[([\w,]+)\]", path.read_text())
        for extra in extras.split(",")
    }
    assert ("query.py", "sql") in named
    assert {(name, extra) for name, extra in named if extra not in EXTRAS} == set()


def test_version_says_which_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert doctor.describe_kernels([]) == "not compiled: about ten times slower"
    for name in ("_kernel.abi3.so", "kernel.abi3.so", "_kernel.txt"):
        (tmp_path / "sej" / "bytes").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sej" / "bytes" / name).touch()
    assert doctor.compiled_kernels(tmp_path) == ["sej.bytes._kernel"]
    monkeypatch.delenv("LOGWRIGHT_PURE", raising=False)
    assert doctor.describe_kernels(["core.bytes._bytes", "sej.bytes._kernel"]) == "2 compiled (core, sej)"
    monkeypatch.setenv("LOGWRIGHT_PURE", "1")
    assert "switched off by LOGWRIGHT_PURE" in doctor.describe_kernels(["sej.bytes._kernel"])


def test_doctor_names_missing_and_outdated_packages_and_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    required = [
        'duckdb>=1.4; extra == "sql"',
        'pyspark<5,>=4.3; extra == "spark"',
        'mypy>=1; extra == "dev"',
        "click>=8",
    ]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: [*required, 'uvicorn>=0.30; extra == "web"'])
    monkeypatch.setattr(doctor, "_version", {"pyspark": "3.5.1", "uvicorn": "0.30"}.get)
    packages = {line["part"]: line for line in run("doctor", "--json").objects[3:]}
    pip = f"{sys.executable} -m pip install"
    assert {name: (line["found"], line["get"]) for name, line in packages.items()} == {
        "duckdb": (None, f"{pip} 'logwright[sql]'"),
        "pyspark": ("3.5.1", f"{pip} 'logwright[spark]'"),
        "uvicorn": ("0.30", None),
    }


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ('{"url": "file:///home/ada/log%20wright", "dir_info": {}}', "'/home/ada/log wright'"),
        ('{"url": "file:///tmp/logwright-1.whl", "archive_info": {}}', "--no-binary logwright logwright"),
        (None, "--no-binary logwright logwright"),
    ],
)
def test_doctor_compiles_the_checkout_that_pip_was_given(
    url: str | None, origin: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = SimpleNamespace(read_text=lambda name: url if name == "direct_url.json" else None)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: found)
    monkeypatch.setattr(doctor, "_PACKAGE", tmp_path / "lib" / "site-packages" / "logwright")
    monkeypatch.setattr(doctor, "compiled_kernels", list)
    assert (doctor._kernels().get or "").endswith(f"pip install --force-reinstall --no-deps {origin}")


def test_doctor_reports_java_that_is_missing_or_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "java" in (doctor._java().get or "") or "jre" in (doctor._java().get or "")
    assert doctor._java().found is None
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    for version, found, is_good in (("1.8.0_402", "8", False), ("17.0.9", "17", True), ("21", "21", True)):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        assert (doctor._java().found, doctor._java().get is None) == (found, is_good)


# --- continuous integration -------------------------------------------------------------------------------------------


def check(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS)


def test_workflows_are_valid(tmp_path: Path) -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]
    done = check("vendor.github-workflows", *WORKFLOWS)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs-at:"))
    assert check("vendor.github-workflows", wrong).returncode == 1


def test_workflows_test_every_version_that_the_package_names() -> None:
    versions = re.findall(r"Python :: (3\.\d+)", str(PROJECT["project"]["classifiers"]))
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    for workflow in WORKFLOWS:
        text = workflow.read_text()
        assert all(version in text or version.replace("3.", "cp3") in text for version in versions), workflow.name


def test_bill_of_materials_has_all_optional_parts() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (named,) = re.findall(r"pip install .*'\.\[([\w,]+)\]'", WORKFLOWS[1].read_text())
    found = set(named.split(","))
    for extra in list(found):
        found |= {
            name
            for part in extras[extra]
            for names in re.findall(r"logwright\[([\w,]+)\]", part)
            for name in names.split(",")
        }
    assert found == extras.keys() - {"docs", "dev", "bench"}
