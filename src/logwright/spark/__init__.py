"""Journals as tables on Spark, through PySpark's Python Data Source API.

    from logwright.spark import session

    spark = session()                                       # or register(your_own_session)
    spark.read.format("sej").load("events")                 # one format, in its own columns
    spark.read.format("logwright").load("journals")         # any journals below a root, in common columns
    spark.read.schema("offset BIGINT").format("sej").load("events")    # decodes this column only

Spark needs Java 17 or later, and its workers must run the same Python: `session` checks the first and sets the second.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import LogwrightError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA: Final = 17

_SETTINGS: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",  # off by default; doubles the speed of sources
}
_AT_START: Final = {
    # A fifth faster than TCP between Python and the JVM. Must be set before Spark starts.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
}


def session(master: str = "local[*]", name: str = "logwright", **settings: Any) -> SparkSession:
    """A Spark session with the journal formats registered.

    `settings` are settings of Spark; a `_` in a name means a dot.
    """
    _require_java()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    given = {key if "." in key else key.replace("_", "."): value for key, value in settings.items()}
    for key, value in {**_SETTINGS, **_AT_START, **given}.items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())


def register(spark: SparkSession) -> SparkSession:
    """Register the formats with an existing session, and return it."""
    from .source import SOURCES

    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
    for source in SOURCES:
        spark.dataSource.register(source)
    return spark


def _require_java() -> None:
    """Raise a clear error instead of Spark's stack trace."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise LogwrightError(f"Spark needs Java {LEAST_JAVA} or later, and no java was found on the PATH")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is not None and int(version[1]) < LEAST_JAVA:
        raise LogwrightError(f"Spark needs Java {LEAST_JAVA} or later, but {java} is Java {version[1]}")


__all__ = ["register", "session"]
