"""Tries a wheel as a new user would: in a new environment, in an empty directory, without checkout and compiler.

    python tools/smoke.py dist/logwright-….whl

The dependencies are those of the Python that runs this, so nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROGRAM = """\
import asyncio, pathlib, sys
import logwright
from logwright import appendfile, arrow, kestrel, sej, versioned, yeltsin

assert pathlib.Path(logwright.__file__).is_relative_to(sys.prefix), logwright.__file__
with sej.Writer("orders", sync="always") as writer:
    writer.append(b"a pear", key=b"ada")
with logwright.open("orders") as journal:
    assert [message.value for message in journal] == [b"a pear"]
assert arrow.to_arrow("orders").num_rows == 1
with kestrel.Queue("queues", "mail", sync="always") as queue:
    queue.put(b"to ada")
with kestrel.Queue("queues", "mail") as queue:
    assert queue.get() == b"to ada"
with versioned.VersionedKVStore("stores", "prices") as store:
    store.insert("pear", 120)
assert versioned.VersionedRecovery.load("stores").history("pear")[0].o == 120
with appendfile.Writer("readings") as writer:
    writer.append(b"21.5")
with yeltsin.Database("t.ydb", "t.jrnl") as database, database.transaction() as transaction:
    transaction.modify(transaction.allocate(), 0, b"hello")
"""
COMMANDS = (
    ["--version"],
    ["doctor"],
    ["demo", "demo"],
    ["verify", "demo/orders"],
    ["repair", "demo/damaged", "--yes"],
    ["state", "demo/stores"],
    ["sql", "SELECT count(*) AS records FROM 'demo/orders'"],
    ["convert", "demo/orders", "orders.parquet", "--to", "parquet"],
)
_DAMAGE_FOUND = 1
_MAY_FIND_DAMAGE = ("repair",)


def environment(directory: Path) -> dict[str, str]:
    """An environment in which neither the checkout nor a compiler is found."""
    (directory / "bin").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LOGWRIGHT", "PYTEST"))}
    return {**kept, "PATH": str(directory / "bin"), "CC": "false", "HOME": str(directory), "COLUMNS": "200"}


def try_wheel(wheel: Path, directory: Path) -> str:
    """Install a wheel below an empty directory and use it; the output of all commands. Failures are raised."""
    home, work = directory / "environment", directory / "work"
    work.mkdir()
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    variables = environment(directory)

    def call(*command: str | Path, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(command, cwd=work, env=variables, capture_output=True, text=True, check=False)
        if done.returncode not in codes:
            raise RuntimeError(
                f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index")
    call(*pip, "--no-deps", wheel.resolve())
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "dependencies.pth").write_text(
        "".join(f"{path}\n" for path in sys.path if path.endswith("site-packages"))
    )
    call(python, "-c", PROGRAM)
    call(*pip, "logwright[sql]")  # the command of our messages: pip finds the extra in the installed package
    printed = []
    for arguments in COMMANDS:
        codes = (0, _DAMAGE_FOUND) if arguments[0] in _MAY_FIND_DAMAGE else (0,)
        printed.append(call(home / "bin" / "logwright", *arguments, codes=codes))
    return "".join(printed)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        print(try_wheel(Path(sys.argv[1]), Path(directory)))
    print(f"{sys.argv[1]} works in a new environment")
    return 0


if __name__ == "__main__":
    sys.exit(main())
