"""Journals as tables on Spark, through PySpark's Python Data Source API.

    from logwright.spark import session

    spark = session()                                       # or register(your_own_session)
    spark = session(remote="sc://host:15002")               # a session of Spark Connect
    spark.read.format("sej").load("events")                 # one format, in its own columns
    spark.read.format("logwright").load("journals")         # any journals below a root, in common columns
    spark.read.schema("offset BIGINT").format("sej").load("events")    # decodes this column only

Spark needs Java 17 or later, and its workers must run the same Python: `session` checks the first and sets the second.
A client of Spark Connect needs no Java.
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
from urllib.parse import urlsplit

from ..errors import LogwrightError, WrongUse

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


_LOCAL_SERVER: Final = {
    "spark.connect.grpc.binding.address": "127.0.0.1",  # otherwise other machines can connect to it
}
_CONNECT_PORT: Final = 15002
_CONNECT_SECONDS: Final = 10.0


def session(
    master: str = "local[*]", name: str = "logwright", *, remote: str | None = None, **settings: Any
) -> SparkSession:
    """A Spark session with the journal formats registered.

    `remote` is the URL of a server of Spark Connect, such as `sc://host:15002`, or `local[2]` for one that is started
    here; `master` is ignored then. `settings` are settings of Spark; a `_` in a name means a dot.
    """
    starts_spark = remote is None or is_local_remote(remote)
    if starts_spark:
        _require_java()
    elif remote is not None:
        _require_server(remote)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    builder = builder.master(master) if remote is None else builder.remote(remote)
    given = {key if "." in key else key.replace("_", "."): value for key, value in settings.items()}
    at_start = {**(_AT_START if starts_spark else {}), **(_LOCAL_SERVER if remote is not None and starts_spark else {})}
    for key, value in {**_SETTINGS, **at_start, **given}.items():
        builder = builder.config(key, value)
    try:
        return register(builder.getOrCreate())
    except ImportError as error:
        raise LogwrightError(f"Spark Connect needs more: pip install 'logwright[connect]' ({error})") from error


def register(spark: SparkSession) -> SparkSession:
    """Register the formats with an existing session, and return it."""
    from .source import SOURCES

    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
    for source in SOURCES:
        spark.dataSource.register(source)
    return spark


def is_local_remote(remote: str) -> bool:
    """Whether this process is to start the server of Spark Connect by itself."""
    return remote.startswith("local")


def _require_server(remote: str) -> None:
    """Raise a clear error if no server can be reached: Spark would try again for ten minutes."""
    form = f"{remote}: write the URL of a server of Spark Connect as sc://HOST:PORT, or local[2] to start one"
    try:
        url = urlsplit(remote)
        host, port = url.hostname, url.port or _CONNECT_PORT
    except ValueError as error:
        raise WrongUse(f"{form} ({error})") from None
    if url.scheme != "sc" or not host:
        raise WrongUse(form)
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise LogwrightError(
            f"sc://{host}:{port}: no server of Spark Connect can be reached ({reason}); "
            "check the address, or start one with sbin/start-connect-server.sh of Spark"
        ) from error


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
