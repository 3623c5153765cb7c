"""JSON objects as `dump --json` prints them, as rows that the writers of their format take.

Fields that the journal determines (`file`, `position`, `offset`, …) are ignored; any other field that the format does
not have is an error. Everything is checked object by object, so that an error names the line that it is in.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from ..core.format import Format
from ..errors import LogwrightError, WrongUse

_IGNORED: Final = ("file", "position", "size", "decoded", "undecodable")


@dataclass(slots=True)
class Gathered:
    """Rows of one part of a journal, and the lines that they come from."""

    part: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


class JsonRows:
    """Gathers objects, and makes record batches of them."""

    def __init__(self, format: Format) -> None:
        self._format = format
        self._columns = format.columns
        self._rows_of = self._columns.json_rows()
        self._gathered: list[Gathered] = []
        self.records = 0
        """The number of objects that were taken."""
        self.skipped = 0
        """The number of objects that need not be written: heads of files, and copies."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """The fields that are written, with the types of their columns."""
        return self._columns.json_fields

    def add(self, fields: Any, line: int) -> None:
        """Take an object; `WrongUse` names its line."""
        try:
            if not isinstance(fields, dict):
                raise WrongUse("this is not an object")
            if "damage" in fields:
                raise WrongUse("this is a damaged range, not a record")
            part_field = self._columns.part_field
            part = fields.get(part_field) or "" if part_field is not None else ""
            _check_part(part)
            rows = [self._checked(row) for row in self._rows_of(fields)]
        except WrongUse as error:
            raise WrongUse(f"line {line}: {error}") from None
        if not rows:
            self.skipped += 1
            return
        self.records += 1
        if not self._gathered or self._gathered[-1].part != part:
            self._gathered.append(Gathered(part))
        self._gathered[-1].rows += rows
        self._gathered[-1].lines += [line] * len(rows)

    def add_text(self, text: bytes, line: int) -> None:
        """Take an object as a line of JSON."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise WrongUse(f"line {line}: this is not JSON: {error}") from None
        self.add(fields, line)

    def take(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The batches of what has gathered, each with its part.

        If a row cannot be written, the rows of the preceding lines are returned, and then `WrongUse` names its line.
        """
        gathered, self._gathered = self._gathered, []
        for each in gathered:
            batch = self._batch_of(each.rows)
            try:
                self._columns.check(batch)
            except LogwrightError:
                yield from self._up_to_bad_line(each)
            else:
                yield each.part, batch

    def take_with_parts(self) -> Iterator[pa.RecordBatch]:
        """The same, with the part in a column of the batch, if the format has parts."""
        name = self._columns.part_field
        for part, batch in self.take():
            if name is None or not part:
                yield batch
            else:
                yield batch.append_column(name, pa.repeat(pa.scalar(part, pa.string()), batch.num_rows))

    def _up_to_bad_line(self, each: Gathered) -> Iterator[tuple[str, pa.RecordBatch]]:
        for row, line in enumerate(each.lines):
            try:
                self._columns.check(self._batch_of(each.rows[row : row + 1]))
            except LogwrightError as error:
                whole = each.lines.index(line)  # of several rows for a line, none is written
                if whole:
                    yield each.part, self._batch_of(each.rows[:whole])
                self.records -= len(set(each.lines[whole:]))
                text = str(error).removeprefix("row 0: ")
                raise WrongUse(f"line {line}: {text}") from None
        yield each.part, self._batch_of(each.rows)

    def _batch_of(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        types = self.types
        found = {
            name: pa.array([row.get(name) for row in rows], _stored(kind))
            for name, kind in types.items()
            if any(name in row for row in rows)
        }
        return pa.RecordBatch.from_pydict(found)

    def _checked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that a writer needs, as values of Python."""
        types = self.types
        found: dict[str, Any] = {}
        for name, value in fields.items():
            if name in types:
                found[name] = None if value is None else _value(name, value, types[name])
            elif name not in _IGNORED and name not in self._columns.json_ignored:
                known = ", ".join(types)
                raise WrongUse(f"a record of {self._format.name} has no field {name!r}; it has {known}")
        if not found:
            raise WrongUse(f"there is none of the fields {', '.join(types)}")
        return found


def _check_part(part: Any) -> None:
    if not isinstance(part, str) or "/" in part or "\0" in part or part in (".", ".."):
        raise WrongUse(f"{part!r} cannot be the name of a part of the journal")


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.string() if kind == pa.json_() else kind


def _value(name: str, value: Any, kind: pa.DataType) -> Any:
    """A value of JSON as a column of this type takes it."""
    if kind == pa.json_():
        return json.dumps(value)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        if not isinstance(value, str):
            raise WrongUse(f"{name} is not a string")
        try:
            return base64.b64decode(value, validate=True) if pa.types.is_binary(kind) else _encodable(value)
        except (binascii.Error, ValueError):
            raise WrongUse(f"{name} is not base64" if pa.types.is_binary(kind) else f"{name} is not text") from None
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongUse(f"{name} is not a whole number")
    bits, signed = (64, True) if pa.types.is_timestamp(kind) else (kind.bit_width, pa.types.is_signed_integer(kind))
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not low <= value <= high:
        raise WrongUse(f"{name} is not within {low} and {high}")
    return value


def _encodable(text: str) -> str:
    text.encode()
    return text
