"""A Spark that starts with half of the work: what every start does again is done once, and kept in the environment.

A JVM of Spark that lives for seconds spends most of them on loading classes, and each of its Python processes on
compiling PySpark, which Spark hands to them as a zip. So there are, in the directory `quick-spark` of the environment:

    python/lib/pyspark.zip      the installed PySpark, which is compiled: a directory is on a path what a zip is
    classes.jsa                 the classes of a JVM that has done a bit of everything, as it had them in memory

All else leads to the Spark that is installed. The home is made when it is asked for; the archive takes half a minute,
so `python -m tests.spark.quick` makes it, which `make test` does beside the checks of style and types. Without it, or
with one that another Java has made, Spark does as ever, only later.
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
"""For a JVM that lives for seconds: it starts sooner, leaves the other core alone, and takes half of the work.

With this compiler there would be space for 48 MiB of compiled code, which a hundred tests fill: it would be thrown away
and made again.
"""
_ERRORS_ONLY = "-Xlog:disable -Xlog:all=error:stderr"
"""No word of an archive that does not fit."""


def choose() -> None:
    """Have this process, and those that it starts, use this Spark, unless another one is configured."""
    if importlib.util.find_spec("pyspark") is not None:
        os.environ.setdefault("SPARK_HOME", str(home()))
        os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())


def java_options() -> str:
    """The JVM options of a short-lived Spark, without spaces, since nothing quotes them."""
    if not ARCHIVE.exists() or " " in str(ARCHIVE):
        return PLAIN_JAVA
    return f"{PLAIN_JAVA} -XX:SharedArchiveFile={ARCHIVE} {_ERRORS_ONLY}"


def home() -> Path:
    """A home of Spark, made if there is none yet, and if no other process has made it meanwhile."""
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
    """Where a package is; it is not imported, which every run of tests would have to wait for."""
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
        # A job that fails or hangs leaves no archive, or half of one: then there is none.
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
