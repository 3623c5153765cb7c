"""Code that runs in the middle of a call, as the garbage collector, a finalizer or another thread may run it.

Code that may crash the interpreter runs in a separate process: `run_apart` calls a function there, and fails with the
output of that process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_apart(function: Callable[[], object], *, pure: bool = False) -> None:
    """Call a function of a module, without arguments, in another process."""
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])
    environment.pop("LOGWRIGHT_PURE", None)
    if pure:
        environment["LOGWRIGHT_PURE"] = "1"
    script = f"import {function.__module__} as module; module.{function.__name__}()"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr[-8000:]}"


@contextlib.contextmanager
def at_collections(action: Callable[[], object]) -> Iterator[None]:
    """Call a function whenever the collector starts, which is at nearly every allocation of a container."""
    is_running = False

    def hook(phase: str, information: object) -> None:
        nonlocal is_running
        if phase == "start" and not is_running:
            is_running = True
            try:
                action()
            finally:
                is_running = False

    before = gc.get_threshold()
    gc.callbacks.append(hook)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(hook)


def in_threads(*actions: Callable[[], object]) -> None:
    """Call functions at the same time, with as many thread switches as possible; raise the error of any of them."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], object]) -> None:
        start.wait()
        try:
            action()
        except BaseException as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(action,)) for action in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if failures:
        raise failures[0]


def while_bytes_change(sound: bytes, read: Callable[[bytearray], object], *errors: type[Exception]) -> None:
    """Read bytes that the collector and another thread change meanwhile: an expected error, or any result.

    The result is meaningless. But no memory may be read or written out of bounds.
    """
    chance = random.Random(11)
    buffer = bytearray(sound)

    def scribble() -> None:
        place = chance.randrange(len(sound))
        buffer[place] = chance.choice((0, 1, 2, 3, 8, 127, 128, 255, sound[place], sound[place], sound[place]))

    for _ in range(30):
        buffer[:] = sound
        with at_collections(scribble), contextlib.suppress(*errors):
            read(buffer)

    def write() -> None:
        for number in range(5_000):
            scribble()
            if number % 20 == 0:
                buffer[:] = sound

    def read_on() -> None:
        for _ in range(50):
            with contextlib.suppress(*errors):
                read(buffer)

    in_threads(write, read_on)
