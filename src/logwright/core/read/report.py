"""The results of `inspect` and `verify`, the same for every format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ..repair.losses import Loss

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes done and the total bytes."""
SOUND_SO_FAR: Final = "sound so far"
"""The health of a journal whose names, sizes and ends are right."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or odd, at a byte of a file. `file` is relative to the journal."""

    file: str
    position: int
    kind: str
    message: str

    def as_json(self) -> dict[str, Any]:
        return {"file": self.file, "position": self.position, "kind": self.kind, "message": self.message}


@dataclass(slots=True)
class Report:
    """The result of `verify`. Anomalies are odd but harmless, and losses are known: both leave a journal sound."""

    format: str
    records: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    anomalies: list[Problem] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.problems

    def odd_file(self, file: str, kind: str, message: str) -> None:
        """Add an anomaly that concerns a file as a whole."""
        self.anomalies.append(Problem(file, 0, kind, message))

    def as_json(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "sound": self.sound,
            "records": self.records,
            "bytes": self.bytes,
            "problems": [problem.as_json() for problem in self.problems],
            "anomalies": [anomaly.as_json() for anomaly in self.anomalies],
            "losses": [loss.as_json() for loss in self.losses],
        }


@dataclass(slots=True)
class Summary:
    """The result of `inspect`: what this is, without reading all of it.

    `first` and `last` are records as JSON objects; `details` holds fields that only this format has. `damaged` says
    whether damage was seen; a torn tail is not damage, and not everything was read. `health` is one line of text.
    """

    format: str
    path: str
    files: int
    bytes: int
    records: int | None
    first: dict[str, Any] | None
    last: dict[str, Any] | None
    health: str
    damaged: bool
    details: dict[str, Any] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "path": self.path,
            "files": self.files,
            "bytes": self.bytes,
            "records": self.records,
            "first": self.first,
            "last": self.last,
            "health": self.health,
            "losses": [loss.as_json() for loss in self.losses],
            **self.details,
        }
