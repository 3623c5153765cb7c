"""The account of losses: what a journal is known to have lost, kept beside it for every later reader.

    JOURNAL/.logwright/losses      one JSON object per line, oldest first

A repair adds a line for each range of records that it removed, and for each field that it restored by inference. `undo`
removes the lines of the repair that it takes back. `verify` lists the account and calls the journal sound with known
losses. Readers and consumers skip a gap that the account explains; a query that depends on lost records is refused. The
account is in the directory of the journal, and is copied and moved with it.

File names and positions are those before the repair: `.logwright/cut` has the bytes that were there.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from ...errors import DamagedJournal, Locked
from ..bytes.outcome import Damage
from ..bytes.text import why_invalid
from ..io.disk import Disk, make_directories, replace_file
from ..io.lock import Lock
from ..io.quarantine import DIRECTORY

ACCOUNT_NAME: Final = "losses"
_LOCK_NAME: Final = "losses.lck"
_LOCK_WAIT_SECONDS: Final = 10.0
_MOST_ACCOUNT_BYTES: Final = 64 << 20
MOST_LISTED: Final = 20
"""The most keys, items or transactions that are named in the text of one loss."""

_IN_SOURCE: Final = ", in the journal that this is a copy of"
"""Added to a loss by a conversion: offsets and places are those of the source."""

Kind: TypeAlias = Literal["lost", "restored"]


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that a repair removed (`lost`), or a field that it inferred from the bytes around it (`restored`).

    `restored` is also used for records that it kept without proof: their `fields` have `"proven": False`.

    `what` names the records in the terms of the format: offsets, times, segments, keys, items. `fields` holds the same
    for programs, such as `{"first": 12, "next": 20}` for offsets; each format documents its own. `at_most` is None if
    the number has no known bound. `part` is the queue or store in the directory; empty for a loss that concerns all of
    them, as after a conversion.
    """

    file: str
    position: int
    bytes: int
    at_least: int
    at_most: int | None
    what: str
    reason: str
    kind: Kind = "lost"
    part: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    repair: str = ""
    """The log of the repair, or the opening, that found it; empty for a loss that was copied from another journal."""

    @property
    def records(self) -> str:
        """The number of records as text."""
        if self.at_least == self.at_most:
            return f"{self.at_least} record{'' if self.at_least == 1 else 's'}"
        if self.at_most is None:
            least = f"at least {self.at_least} record{'' if self.at_least == 1 else 's'}"
            return least if self.at_least else "an unknown number of records"
        return f"at least {self.at_least} and at most {self.at_most} records"

    def describe(self) -> str:
        """One line of text: first the records, then the bytes."""
        place = f"{self.file} @ {self.position}: {self.bytes} bytes: {self.reason}"
        if self.kind == "restored":
            how = "kept without proof" if self.fields.get("proven") is False else "restored by inference"
            return f"{how}: {self.what} ({place})"
        return f"lost {self.records}: {self.what} ({place})"

    def as_json(self) -> dict[str, Any]:
        if self.at_least == self.at_most:
            count: dict[str, Any] = {"records": self.at_least}
        else:
            count = {"at_least": self.at_least, "at_most": self.at_most}
        return {
            "file": self.file,
            "position": self.position,
            "bytes": self.bytes,
            **count,
            "what": self.what,
            "reason": self.reason,
            "kind": self.kind,
            "part": self.part,
            "fields": dict(self.fields),
        }

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Loss:
        """The loss that `as_json` printed. `ValueError`, `KeyError` or `TypeError` for anything else."""
        exact = item.get("records")
        at_least = int(item["at_least"] if exact is None else exact)
        at_most = item["at_most"] if exact is None else exact
        kind: Kind = "restored" if item.get("kind") == "restored" else "lost"
        fields = item.get("fields", {})
        if not isinstance(fields, dict):
            raise TypeError("its fields are not an object")
        return cls(
            file=str(item["file"]),
            position=int(item["position"]),
            bytes=int(item["bytes"]),
            at_least=at_least,
            at_most=None if at_most is None else int(at_most),
            what=str(item["what"]),
            reason=str(item["reason"]),
            kind=kind,
            part=str(item.get("part", "")),
            fields=fields,
            repair=str(item.get("repair", "")),
        )


def inherited(losses: Iterable[Loss], damages: Iterable[Damage], *, same_numbers: bool) -> list[Loss]:
    """The account of a copy: the losses of its source, and a loss for each damaged range that was left out.

    Without `same_numbers` the copy has other record numbers: `fields` is then that of the source, stored under
    `source`.
    """
    found = [replace(loss, part="", repair="") for loss in losses]
    if not same_numbers:
        found = [_of_source(loss) for loss in found]
    for damage in damages:
        if damage.kind not in ("torn_tail", "lost"):
            what = "the records of a damaged range of the journal that this is a copy of"
            found.append(Loss(damage.file, damage.start, damage.size, 0, None, what, damage.reason))
    return found


def _of_source(loss: Loss) -> Loss:
    """A loss for a copy with other record numbers; unchanged in a copy of a copy."""
    if loss.what.endswith(_IN_SOURCE):
        return loss
    return replace(loss, what=loss.what + _IN_SOURCE, fields={"source": dict(loss.fields)} if loss.fields else {})


def listed(names: Iterable[str], count: int, most: int = MOST_LISTED) -> str:
    """Names as text: all of them, or the first `most` and the number of the others."""
    shown = [name for name, _ in zip(names, range(most), strict=False)]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def account_path(home: Path) -> Path:
    """The path of the account of the journals in a directory."""
    return home / DIRECTORY / ACCOUNT_NAME


def read_losses(disk: Disk, home: Path, part: str | None = None) -> list[Loss]:
    """The losses of the journals in a directory, or of one of them. `DamagedJournal` for a broken account."""
    path = account_path(home)
    found = []
    position = 0
    for line in _read_lines(disk, path):
        try:
            loss = _parsed(line)
        except ValueError as error:
            hint = "correct the line, or remove it: then this loss is no longer known"
            reason = f"a line of the account of losses is damaged: {error}; {hint}"
            raise DamagedJournal(path, position, reason) from None
        position += len(line)
        if part is None or loss.part in ("", part):
            found.append(loss)
    return found


def _read_lines(disk: Disk, path: Path) -> list[bytes]:
    if not disk.exists(path):
        return []
    with closing(disk.open(path, "read")) as file:
        size = file.size()
        if size > _MOST_ACCOUNT_BYTES:
            raise DamagedJournal(path, 0, f"an account of losses has at most {_MOST_ACCOUNT_BYTES} bytes, not {size}")
        return file.read_at(0, size).splitlines(keepends=True)


def _parsed(line: bytes) -> Loss:
    """The loss on a line; `ValueError` for a broken line."""
    try:
        return Loss.from_json(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(why_invalid(error)) from None


def add_losses(disk: Disk, home: Path, losses: Iterable[Loss], *, repair: str = "") -> None:
    """Add losses to the account, durably. Existing losses of the same repair are replaced.

    A loss without a repair, copied from another journal, is added only once.
    """
    new = [replace(loss, repair=repair) for loss in losses]

    def edit(old: list[Loss]) -> list[Loss]:
        kept = [loss for loss in old if not repair or loss.repair != repair]
        return kept + [loss for loss in new if repair or loss not in kept]

    if new:
        with _changing(disk, home) as change:
            change(edit)


def remove_losses(disk: Disk, home: Path, repair: str) -> None:
    """Remove the lines of a repair that was undone, durably."""
    if disk.exists(account_path(home)):
        with _changing(disk, home) as change:
            change(lambda old: [loss for loss in old if loss.repair != repair])


_Change: TypeAlias = Callable[[Callable[[list[Loss]], list[Loss]]], None]


@contextlib.contextmanager
def _changing(disk: Disk, home: Path) -> Iterator[_Change]:
    """Lock the account: journals of one directory share it, but not their locks."""
    path = account_path(home)
    make_directories(disk, path.parent)
    with _wait_for_lock(disk, path.with_name(_LOCK_NAME)):
        yield lambda edit: _save(disk, path, edit)


def _save(disk: Disk, path: Path, edit: Callable[[list[Loss]], list[Loss]]) -> None:
    """Rewrite the account. Broken lines stay, at the beginning: `verify` reports them, and repairs still work."""
    old: list[Loss] = []
    broken: list[bytes] = []
    for line in _read_lines(disk, path):
        try:
            old.append(_parsed(line))
        except ValueError:
            broken.append(line if line.endswith(b"\n") else line + b"\n")
    new = edit(old)
    if new == old:
        return
    if not new and not broken:
        disk.remove(path)
        disk.sync_directory(path.parent)
        return
    lines = [json.dumps({**loss.as_json(), "repair": loss.repair}).encode() + b"\n" for loss in new]
    replace_file(disk, path, b"".join([*broken, *lines]), path.with_name(ACCOUNT_NAME + ".tmp"))


def _wait_for_lock(disk: Disk, path: Path) -> Lock:
    deadline = time.monotonic() + _LOCK_WAIT_SECONDS
    while True:
        try:
            return Lock.acquire(disk, path)
        except Locked:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
