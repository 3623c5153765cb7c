"""A Spark that starts with half of the work: the work of every start is done once, and stored in the environment.

A JVM of Spark that lives for seconds spends most of them on loading classes, and each of its Python processes on
compiling PySpark, which Spark passes to them as a zip. So the directory `quick-spark` of the environment has:

    python/lib/pyspark.zip      the installed PySpark, compiled; it is a directory, which works on a path like a zip
    classes.jsa                 the classes in memory of a JVM that has used a little of everything

Everything else links to the installed Spark. The directory is made on request. The archive takes half a minute, so
`python -m tests.spark.quick` makes it, which `make test` runs beside the checks of style and types. Without the
archive, or with one of another Java, Spark works as usual, but starts more slowly.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.spark.driver import DEADLINE_SECONDS

HOME = Path(sys.prefix) / "quick-spark"
ARCHIVE = HOME / "classes.jsa"
JOB = Path(__file__).parent / "jobs" / "everything.py"

PLAIN_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=192m"
"""For a JVM that lives for seconds: it starts sooner, leaves the other core free, and does half of the work.

With this compiler there would be 48 MiB for compiled code, which a hundred tests fill: it would be discarded and
compiled again.
"""
_ERRORS_ONLY = "-Xlog:disable -Xlog:all=error:stderr"
"""Do not report an archive that does not fit."""


def choose() -> None:
    """Make this process and its children use this Spark, unless another one is configured."""
    if importlib.util.find_spec("pyspark") is not None:
        os.environ.setdefault("SPARK_HOME", str(home()))
        os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())


def java_options() -> str:
    """The JVM options of a short-lived Spark, without spaces, because nothing quotes them."""
    if not ARCHIVE.exists() or " " in str(ARCHIVE):
        return PLAIN_JAVA
    return f"{PLAIN_JAVA} -XX:SharedArchiveFile={ARCHIVE} {_ERRORS_ONLY}"


def home() -> Path:
    """A home of Spark, made if it does not exist and no other process has made it meanwhile."""
    if not HOME.exists():
        made = Path(tempfile.mkdtemp(prefix="quick-spark-", dir=sys.prefix))
        installed = _installed("pyspark")
        for name in ("bin", "jars"):
            (made / name).symlink_to(installed / name)
        for archive in (installed / "python" / "lib").glob("*.zip"):
            package = _installed(archive.name.partition("-")[0].removesuffix(".zip"))
            directory = made / "python" / "lib" / archive.name
            directory.mkdir(parents=True)
            (directory / package.name).symlink_to(package)
        try:
            made.rename(HOME)
        except OSError:
            shutil.rmtree(made)
    return HOME


def _installed(package: str) -> Path:
    """The directory of a package. It is not imported, which would delay every run of tests."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def make_archive() -> None:
    """Run a job whose JVM writes the archive, unless it exists."""
    if ARCHIVE.exists():
        return
    with tempfile.TemporaryDirectory() as directory:
        fresh = ARCHIVE.with_suffix(f".{os.getpid()}")
        options = f"{PLAIN_JAVA} -XX:ArchiveClassesAtExit={fresh} {_ERRORS_ONLY}"
        environment = os.environ | {"SPARK_HOME": str(home()), "PYSPARK_PYTHON": sys.executable}
        command = [str(home() / "bin" / "spark-submit"), "--master", "local[2]", "--driver-java-options", options]
        # A job that fails or hangs leaves no archive, or an incomplete one, which is removed.
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            subprocess.run(
                [*command, str(JOB), directory],
                env=environment,
                timeout=DEADLINE_SECONDS,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            fresh.rename(ARCHIVE)
        fresh.unlink(missing_ok=True)


if __name__ == "__main__":
    make_archive()
