"""Errors of Spark in one line: the error that one of our tasks raised, or the root cause of Spark's own.

Spark wraps exceptions of Python workers in exceptions of the JVM, with both stacks in the text. Our own errors are
found by their name in that text and raised again as the original type.
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
    """Spark failed, and not because of an error of this library."""


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Convert exceptions of Spark to errors of this library."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise error_from(str(error)) from error


@contextlib.contextmanager
def naming_full_disk(out: str) -> Iterator[None]:
    """Name the directories that may be full when Spark reports a full disk without naming it."""
    try:
        yield
    except SparkFailed as error:
        if _NO_SPACE not in str(error):
            raise
        places = f"the tables go to {out}, and Spark's own files to {tempfile.gettempdir()} unless configured otherwise"
        raise SparkFailed(f"{error}: {places}") from error


def error_from(text: str) -> LogwrightError:
    """The error that the text of an exception of Spark describes."""
    ours = _OURS.findall(text)
    if ours:
        return _our_error(*ours[-1])
    causes = _CAUSE.findall(text)
    raised = _RAISED.findall(text) if "Traceback (most recent call last)" in text else []
    if raised:
        reason = ": ".join(raised[-1])
    elif causes:
        reason = causes[-1]
    else:
        reason = next((line for line in text.splitlines() if line.strip()), "it gave no reason")
    return SparkFailed(f"Spark failed: {reason.strip()[:_MOST_TEXT]}")


def _our_error(name: str, message: str) -> LogwrightError:
    kind = getattr(errors, name, None)
    place = _PLACE.fullmatch(message.strip())
    if isinstance(kind, type) and issubclass(kind, DamagedJournal):
        return kind(place[1], int(place[2]), place[3]) if place else LogwrightError(message.strip())
    if isinstance(kind, type) and issubclass(kind, LogwrightError) and kind is not errors.StorageFailed:
        return kind(message.strip())
    return LogwrightError(message.strip())
