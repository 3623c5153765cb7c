"""The steps of a repair, and which sequences of them can be carried out.

Each step compares what it finds with what its plan expects. A plan whose steps interfere with each other would stop
half-way, so `check_steps` refuses it before anything is written.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, TypeAlias

from ...errors import LogwrightError
from ..bytes.outcome import Span


@dataclass(frozen=True, slots=True)
class _Step:
    """The base of the steps: what is done to a file."""

    def as_json(self) -> dict[str, Any]:
        """The name of the step and its fields."""
        return {"do": type(self).__name__.lower(), **{each.name: getattr(self, each.name) for each in fields(self)}}


@dataclass(frozen=True, slots=True)
class Cut(_Step):
    """Shorten a file from `end` bytes to `start`."""

    file: str
    start: int
    end: int
    reason: str

    def describe(self) -> str:
        return f"{self.file} @ {self.start}: cut off {self.end - self.start} bytes: {self.reason}"


@dataclass(frozen=True, slots=True)
class Patch(_Step):
    """Replace the `old` bytes at a position by `new` ones of the same length. Patches of a plan do not overlap."""

    file: str
    position: int
    old: bytes
    new: bytes
    reason: str

    def describe(self) -> str:
        return f"{self.file} @ {self.position}: change {self.old.hex()} to {self.new.hex()}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        return {**_Step.as_json(self), "old": self.old.hex(), "new": self.new.hex()}


@dataclass(frozen=True, slots=True)
class Zeros:
    """Zeros in the place of lost bytes, so that the bytes after them keep their positions."""

    size: int


@dataclass(frozen=True, slots=True)
class Create(_Step):
    """Create a file from ranges of another file and zeros, in their order, followed by `data`.

    `inserts` are bytes to insert, each with the number of the range that it precedes.
    """

    file: str
    source: str
    spans: tuple[Span | Zeros, ...]
    reason: str
    data: bytes = b""
    inserts: tuple[tuple[int, bytes], ...] = ()

    @property
    def size(self) -> int:
        return sum(span.size for span in self.spans) + sum(len(data) for _, data in self.inserts) + len(self.data)

    def describe(self) -> str:
        places = ", ".join(
            f"@ {span.start} ({span.size} bytes)" if isinstance(span, Span) else f"{span.size} zeros"
            for span in self.spans
        )
        origin = f" from {self.source} {places}" if self.spans else ""
        return f"{self.file}: create with {self.size} bytes{origin}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        return {
            **_Step.as_json(self),
            "spans": [[span.start, span.end] if isinstance(span, Span) else [span.size] for span in self.spans],
            "data": base64.b64encode(self.data).decode(),
            "inserts": [[number, base64.b64encode(data).decode()] for number, data in self.inserts],
        }


@dataclass(frozen=True, slots=True)
class Remove(_Step):
    """Remove a file after copying all of it."""

    file: str
    reason: str

    def describe(self) -> str:
        return f"{self.file}: move away: {self.reason}"


@dataclass(frozen=True, slots=True)
class Rename(_Step):
    """Rename a file within its directory. No file may have the new name."""

    file: str
    target: str
    reason: str

    def describe(self) -> str:
        return f"{self.file}: rename to {self.target}: {self.reason}"


Step: TypeAlias = Cut | Patch | Create | Remove | Rename


def step_from_json(item: dict[str, Any]) -> Step:
    file, reason = str(item["file"]), str(item["reason"])
    match item["do"]:
        case "cut":
            return Cut(file, int(item["start"]), int(item["end"]), reason)
        case "patch":
            return Patch(file, int(item["position"]), bytes.fromhex(item["old"]), bytes.fromhex(item["new"]), reason)
        case "create":
            spans = tuple(Span(*map(int, at)) if len(at) == 2 else Zeros(*map(int, at)) for at in item["spans"])
            data = base64.b64decode(item["data"], validate=True)
            inserts = tuple((int(number), base64.b64decode(text)) for number, text in item.get("inserts", ()))
            return Create(file, str(item["source"]), spans, reason, data, inserts)
        case "remove":
            return Remove(file, reason)
        case "rename":
            return Rename(file, str(item["target"]), reason)
        case other:
            raise ValueError(f"there is no step {other!r}")


@dataclass(slots=True)
class _Changes:
    """What the steps so far do to a file: the ranges that they patch, and where they cut it."""

    patched: list[tuple[int, int]] = field(default_factory=list)
    end: int | None = None
    removed: bool = False

    def __bool__(self) -> bool:
        return bool(self.patched) or self.end is not None or self.removed


def check_steps(steps: Iterable[Step]) -> None:
    """Raise `LogwrightError` for steps that interfere with each other: an error of the planner, not of the journal."""
    files: dict[str, _Changes] = {}
    for step in steps:
        changes = files.setdefault(step.file, _Changes())
        if not _can_follow(step, changes, files):
            raise _interferes(step)
        match step:
            case Patch():
                changes.patched.append((step.position, step.position + len(step.old)))
            case Cut():
                changes.end = step.start
            case Create():
                files[step.file] = _Changes()
            case Remove():
                changes.removed = True
            case Rename():
                files[step.target] = files.pop(step.file)
                files[step.file] = _Changes(removed=True)
    for name, changes in files.items():
        ranges = sorted(changes.patched)
        for (_, end), (start, _) in pairwise(ranges):
            if start < end:
                raise _error(f"two steps change {name} @ {start}")


def _can_follow(step: Step, changes: _Changes, files: dict[str, _Changes]) -> bool:
    """Whether a step will find its file, and the source of a new one, as the plan expects."""
    match step:
        case Patch():
            end = step.position + len(step.old)
            fits = changes.end is None or end <= changes.end
            return fits and not changes.removed and len(step.old) == len(step.new)
        case Cut():
            fits = all(end <= step.start for _, end in changes.patched)
            return fits and not changes.removed and changes.end is None
        case Create():
            return not changes.patched and changes.end is None and not (step.spans and files.get(step.source))
        case Remove():
            return not changes
        case Rename():
            return not changes.removed


def _interferes(step: Step) -> LogwrightError:
    return _error(f"an earlier step prevents this one: {step.describe()}")


def _error(what: str) -> LogwrightError:
    return LogwrightError(f"internal error in the plan of a repair: {what}; nothing was changed")
