"""What went wrong on Spark, in one line: the error that a task of ours raised, or the root of Spark's own.

Spark wraps what a Python worker raises into exceptions of the JVM, with the stack of both in their text. Our own errors
are found again by their name in it, and come out as what they were.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from .. import errors
from ..errors import DamagedJournal, LogwrightError

_OURS: Final = re.compile(r"logwright\.errors\.(\w+): (.+)")
_PLACE: Final = re.compile(r"(.+?) @ (\d+): (.+)")
_CAUSE: Final = re.compile(r"Caused by: (.+)")
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_MOST_TEXT: Final = 500
_NO_SPACE: Final = "No space left on device"


class SparkFailed(LogwrightError):
    """Spark failed for a reason of its own."""


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn what Spark raises into errors of this library."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise said_by(str(error)) from error


@contextlib.contextmanager
def telling_where(out: str) -> Iterator[None]:
    """Say which disks are meant when Spark says that one is full: it does not."""
    try:
        yield
    except SparkFailed as error:
        if _NO_SPACE not in str(error):
            raise
        places = f"the tables go to {out}, and Spark's own files to {tempfile.gettempdir()} unless it is told otherwise"
        raise SparkFailed(f"{error}: {places}") from error


def said_by(text: str) -> LogwrightError:
    """The error that the text of one of Spark's tells of."""
    ours = _OURS.findall(text)
    if ours:
        return _our_error(*ours[-1])
    causes = _CAUSE.findall(text)
    raised = _RAISED.findall(text) if "Traceback (most recent call last)" in text else []
    if raised:
        said = ": ".join(raised[-1])
    elif causes:
        said = causes[-1]
    else:
        said = next((line for line in text.splitlines() if line.strip()), "it did not say why")
    return SparkFailed(f"Spark failed: {said.strip()[:_MOST_TEXT]}")


def _our_error(name: str, message: str) -> LogwrightError:
    kind = getattr(errors, name, None)
    place = _PLACE.fullmatch(message.strip())
    if isinstance(kind, type) and issubclass(kind, DamagedJournal):
        return kind(place[1], int(place[2]), place[3]) if place else LogwrightError(message.strip())
    if isinstance(kind, type) and issubclass(kind, LogwrightError) and kind is not errors.StorageFailed:
        return kind(message.strip())
    return LogwrightError(message.strip())
