"""A real standalone cluster on loopback: a master and two workers, each in its own process.

The package is shipped as users ship it: as a wheel, in an environment that is packed into an archive, or as a zip of
Python files. The cluster does not use the checkout in which the tests run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import pyarrow

from tests.spark import quick
from tests.spark.driver import DEADLINE_SECONDS, wait_for

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = quick.home()
WORKERS = 2
LIBRARIES = Path("lib") / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
"""The directory of the packages of an environment."""


SHARE = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.extraJavaOptions": quick.java_options(),
    "spark.log.level": "WARN",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{DEADLINE_SECONDS:.0f}s",
}
"""The resources of a job: an executor with one core on each worker, so that two jobs fit; both or none."""


# --- the cluster ----------------------------------------------------------------------------------------------------


@dataclass
class Cluster:
    """A cluster that is running."""

    directory: Path
    url: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start the master and, once its address is known, the workers; return when all of them are registered."""
        ports = ["--port", "0", "--webui-port", "0"]
        master = self._java("master", "127.0.0.1", "org.apache.spark.deploy.master.Master", *ports)
        self.url = self._said(master, r"Starting Spark master at (spark://\S+)")
        port = self._said(master, r"started service 'MasterUI' on port (\d+)")
        for number in range(WORKERS):
            work = ["--cores", "2", "--memory", "1200m", "--work-dir", str(self.directory / "work" / str(number))]
            host = f"127.0.0.{1 + number}"  # Spark runs a speculative copy of a task on another host, or not at all
            self._java(f"worker {number}", host, "org.apache.spark.deploy.worker.Worker", *work, *ports, self.url)
        wait_for(lambda: self._alive_workers(port) == WORKERS, "that the workers are there")

    def _java(self, name: str, host: str, program: str, *arguments: str) -> Path:
        """Start one of the cluster's own processes; the path of its log."""
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
        options = [*quick.java_options().split(), "-Xmx256m", "-Dspark.master.rest.enabled=false"]
        (first,) = (SPARK_HOME / "jars").glob("slf4j-api-*.jar")
        options += ["-cp", f"{SPARK_HOME}/conf:{first}:{SPARK_HOME}/jars/*"]  # as Spark does when it starts a JVM
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(java), *options, program, "--host", host, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env=spark_environment() | {"SPARK_LOCAL_IP": host},
            )
        self.processes.append(process)
        return log

    def _said(self, log: Path, pattern: str) -> str:
        """The status that one of the processes reports."""
        found = wait_for(lambda: self._all_run() and re.search(pattern, log.read_text()), pattern)
        said: str = found[1]
        return said

    def _all_run(self) -> bool:
        for process in self.processes:
            assert process.poll() is None, f"{process.args!r} has ended: see the logs in {self.directory}"
        return True

    def _alive_workers(self, port: str) -> int:
        self._all_run()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=DEADLINE_SECONDS) as answer:
                if "json" not in answer.headers.get_content_type():
                    return 0  # the page for people, before the other one is ready
                alive: int = json.load(answer)["aliveworkers"]
                return alive
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return 0  # the master listens before its pages are ready

    def stop(self) -> None:
        """End everything. Executors end with their workers."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    """A cluster during a `with` block."""
    directory.mkdir(parents=True)
    cluster = Cluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def spark_environment() -> dict[str, str]:
    """The environment of a machine of the cluster, and of one that submits: it contains nothing of ours."""
    ours = ("PYTHON", "PYSPARK", "SPARK", "LOGWRIGHT", "VIRTUAL_ENV")
    (core,) = (SPARK_HOME / "jars").glob("spark-core_*.jar")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_SCALA_VERSION": re.search(r"_(\d+\.\d+)-", core.name)[1],  # type: ignore[index]
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


# --- what is shipped there ------------------------------------------------------------------------------------------


def build_wheel(directory: Path) -> Path:
    """A wheel of the project with its kernels compiled, built from a copy, because builds leave files.

    Compiled kernels are copied to where the build looks for its own; it reuses those that are up to date.
    """
    source = directory / "source"
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    built = source / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for kernel in (ROOT / "src").rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
        place = built / kernel.relative_to(ROOT / "src")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(kernel, place)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(source))
    (wheel,) = directory.glob("logwright-*.whl")
    return wheel


def make_environment(directory: Path, wheel: Path | None) -> Path:
    """A virtual environment with pyarrow from the environment of the tests, and the wheel if one is given.

    Spark brings its own Python part, so it is not needed here.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    libraries = directory / LIBRARIES
    unneeded = shutil.ignore_patterns("include", "src", "tests")
    shutil.copytree(Path(pyarrow.__file__).parent, libraries / "pyarrow", symlinks=True, ignore=unneeded)
    if wheel is not None:
        python = str(directory / "bin" / "python")
        _pip("--python", python, "install", "--no-index", "--no-deps", "--no-compile", str(wheel))
    return directory


def pack_environment(directory: Path, archive: Path) -> Path:
    """The result of `venv-pack` for an environment, but not compressed, because it is sent only over loopback."""
    with tarfile.open(archive, "w:gz", compresslevel=0) as packed:
        for entry in sorted(directory.iterdir()):
            packed.add(entry, entry.name)
    return archive


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    # The compiler must not get options of the interpreter of the tests.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


assert sysconfig.get_path("purelib").endswith(str(LIBRARIES)), "environments are laid out differently here"
