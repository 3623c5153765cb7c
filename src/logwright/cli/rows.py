"""Print records as JSON objects or as rows of a table, with their values decoded on request.

The columns of a row are the fields of `as_json` of the record's format: bytes become text, times become dates. A
separate line says when the file changes.
"""

from __future__ import annotations

import json
from typing import Any, Final, Self

from ..core.bytes.outcome import Damage
from ..core.format import Located, Reader
from ..core.times import shown_time
from ..values import Undecodable, payload
from .arguments import Wanted
from .output import DIM, MILLISECONDS, RED, Column, Table, describe, escape, print_json, warn

_HIDDEN: Final = ("file", "shard", "queue", "store", "decoded", "undecodable")
"""Fields that are not columns: the file is on a separate line, and its name contains the part."""
_PLACE: Final = ("position", "size")
_NUMBERS: Final = ("position", "size", "offset", "type", "xid", "count", "previous", "next", "flags")
_PAYLOADS: Final = ("value", "data")
_TIMES: Final = {"timestamp": 1, "t": 1, **MILLISECONDS}
"""Fields that are times, and their units in nanoseconds."""


class Printer:
    """Prints records and damaged ranges. `damaged` counts the ranges, without torn tails."""

    def __init__(self, reader: Reader, wanted: Wanted, *, as_json: bool, local: bool) -> None:
        self.damaged = 0
        self._reader = reader
        self._as_json = as_json
        self._local = local
        self.decode = wanted.decoder()
        self._decoding = wanted.decode
        self._undecodable = 0
        self._table = Table()
        self._fields: list[str] = []
        self._file: str | None = None

    def record(self, located: Located) -> None:
        """Print one record."""
        fields = self._reader.as_json(located)
        if self.decode is not None:
            fields.update(self._decoded(located))
        if self._as_json:
            print_json(fields)
            return
        if not self._fields:
            self._choose_columns(fields)
        self._print_file(located.file)
        if "initialized" in fields:  # the header of a journal, not a change
            since = shown_time(fields["initialized"], local=self._local)
            self._table.add_line(f"-- the active journal since {since}", DIM)
            return
        self._table.add(*(self._cell(name, fields, located) for name in self._fields))

    def damage(self, damage: Damage, *, show: bool) -> None:
        """Count a damaged range, and print it among the records if the mode says so."""
        if damage.kind != "torn_tail":
            self.damaged += 1
            if not show:
                warn(describe(self._reader.path, damage))
        if not show:
            return
        if self._as_json:
            print_json(damage_as_json(damage))
        else:
            self._print_file(damage.file)
            text = f"!! {damage.kind} @ {damage.start}: {damage.reason} ({damage.size} bytes)"
            self._table.add_line(text, RED)

    def flush(self) -> None:
        """Print the buffered rows."""
        self._table.flush()

    def close(self) -> None:
        """Print the rest, and how many values could not be decoded."""
        self.flush()
        if self._undecodable:
            values = "value is" if self._undecodable == 1 else "values are"
            warn(f"{self._undecodable} {values} no valid {self._decoding}")

    def _decoded(self, located: Located) -> dict[str, Any]:
        data = payload(located.record)
        if data is None or self.decode is None:
            return {}
        try:
            return {"decoded": self.decode(data)}
        except Undecodable as error:
            self._undecodable += 1
            return {"decoded": None, "undecodable": str(error)}

    def _choose_columns(self, fields: dict[str, Any]) -> None:
        known = self._reader.row_fields or tuple(fields)
        own = [name for name in known if name not in _HIDDEN and name not in _PLACE]
        self._fields = [*own[:1], *_PLACE, *own[1:]]  # numbers first, contents last
        self._table.columns = [
            Column(
                "time" if name == "timestamp" else name,
                right=name in _NUMBERS,
                flexible=name not in _NUMBERS and name not in _TIMES,
            )
            for name in self._fields
        ]

    def _print_file(self, file: str) -> None:
        if file != self._file:
            self._file = file
            self._table.add_line(f"-- {file}", DIM)

    def _cell(self, name: str, fields: dict[str, Any], located: Located) -> str:
        if name in _PAYLOADS and fields.get("decoded") is not None:
            decoded = fields["decoded"]
            return decoded if isinstance(decoded, str) else json.dumps(decoded, ensure_ascii=False)
        value = getattr(located.record, name, fields.get(name))
        if isinstance(value, bytes):
            return escape(value)
        if isinstance(value, tuple):
            return "; ".join(map(str, value)) or "-"
        if name == "o":
            return json.dumps(fields[name], ensure_ascii=False)
        if name in _TIMES and value is not None:
            scale = self._reader.time_scale if name == "timestamp" else _TIMES[name]
            return shown_time(value * scale, local=self._local)
        return "-" if value is None else str(value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or not issubclass(kind, BrokenPipeError):
            self.close()


def damage_as_json(damage: Damage) -> dict[str, Any]:
    """A damaged range as `dump --json --mode permissive` prints it."""
    place = {"file": damage.file, "position": damage.start, "size": damage.size}
    return {**place, "damage": damage.reason, "kind": damage.kind}
