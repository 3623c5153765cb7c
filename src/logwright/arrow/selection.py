"""Choosing records of any format by their columns: by key, by a regular expression, by a condition of SQL.

    Selection(find_format("sej"), key="customer/ada", grep="gear|bolt", where="type = 1 AND value.price > 100")

A condition is evaluated by DuckDB over the columns of the table `records` (see `dataset`), on a few MiB of records at a
time. Values that are decoded have fields: `value.price`, in stores always `o.price`. A field has the type of what it is
compared with: a number that is not one, a missing field and a value that cannot be decoded are NULL. Whole numbers of
up to 38 digits compare exactly. In arithmetic, fields are DOUBLE.

Names of journals and files are never a part of the SQL. The connection has no access to files.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..core.bytes.outcome import Damage
from ..core.format import Format
from ..core.io.file_names import printed
from ..core.read.splits import Split, Times
from ..errors import DamagedJournal, WrongUse
from ..values import Decoder, to_json
from .bounds import Filter
from .query import BYTES_HINT, OFFSET_HINT, import_duckdb
from .rows import fill, record_columns, sources_of

_PART_NAMES: Final = ("shard", "queue", "store")
_GATHERED_BYTES: Final = 4 << 20
_SPLIT_BYTES: Final = 1 << 40
_ROW: Final = "#row"
_JSON: Final = "#json"
_ARITHMETIC: Final = ("+", "-", "*", "/", "//", "%", "**", "^", "abs", "round", "floor", "ceil", "sqrt")
_LOGICAL: Final = ("CONJUNCTION", "OPERATOR_NOT")
_WHOLE: Final = re.compile(r"INT(?!ERVAL)", re.IGNORECASE)
_NUMERIC: Final = re.compile(r"DECIMAL|NUMERIC|DOUBLE|FLOAT|REAL", re.IGNORECASE)
_MOST_DIGITS: Final = 38
"""A whole number of this many digits fits into a HUGEINT."""
_WHOLE_KINDS: Final = "'UBIGINT', 'BIGINT', 'HUGEINT', 'UHUGEINT'"
_NUMBER_KINDS: Final = f"{_WHOLE_KINDS}, 'DOUBLE', 'DECIMAL'"


class Selection:
    """Chooses the records that match everything that is given; see `core/read/chunk.py`: `Choice`."""

    def __init__(
        self,
        format: Format,
        *,
        key: str | None = None,
        grep: str | None = None,
        where: str | None = None,
        decode: Decoder | None = None,
        is_json: bool = False,
    ) -> None:
        """`decode` makes the fields of values, whose bytes are JSON already if `is_json` is set."""
        self._format = format
        self._part = ""
        self._schema = record_columns(format.name)
        self._tests: list[tuple[list[str], Callable[[pa.RecordBatch], pa.Array]]] = []
        if key is not None:
            self._tests.append(([format.columns.key], self._key_test(key)))
        if grep is not None:
            self._tests.append((list(format.columns.contents), _grep_test(grep, format.columns.contents)))
        self._condition = None
        if where is not None:
            self._condition = _Condition(where, self._schema, _Payload.of(format, decode, is_json=is_json))
        names = {name for wanted, _ in self._tests for name in wanted} | {"position"}
        names |= set() if self._condition is None else self._condition.columns
        self._wanted = pa.schema([field for field in self._schema if field.name in names])

    def _key_test(self, key: str) -> Callable[[pa.RecordBatch], pa.Array]:
        name = self._format.columns.key
        kind = self._schema.field(name).type
        value: str | bytes | int = key.encode("utf-8", "surrogateescape") if pa.types.is_binary(kind) else key
        if pa.types.is_integer(kind):
            if not key.isascii() or not key.isdigit() or int(key) >= 1 << 63:
                raise WrongUse(f"the key of {self._format.name} is the column {name}, a number, and not {key!r}")
            value = int(key)
        scalar = pa.scalar(value, kind)
        return lambda batch: pc.equal(batch.column(name), scalar)

    # --- what readers ask ---------------------------------------------------------------------------------------------

    def within(self, part: str) -> Selection:
        """The same for one part of a journal."""
        other = copy(self)
        other._part = part
        return other

    def ranges(self, reader: Any, start: int | None, stop: int | None) -> Sequence[tuple[int | None, int | None]]:
        """The parts of a range of record numbers that may have matches: by numbers, times, and the name of the part."""
        if self._condition is None:
            return [(start, stop)]
        chosen = self._condition.filter
        if self._part and not all(chosen.can_have(name, printed(self._part)) for name in _PART_NAMES):
            return []
        splits, bounds = self._format.splits, chosen.bounds
        if splits.prunes_numbers:
            start = bounds.start if start is None else max(start, bounds.start or 0)
            stop = min((limit for limit in (stop, bounds.stop) if limit is not None), default=None)
        if start is not None and stop is not None and start >= stop:
            return []
        times = Times(bounds.earliest_ns, None if reader.scanned_by else bounds.latest_ns)  # copies may be earlier
        if not splits.prunes_times or times == Times():
            return [(start, stop)]
        return _joined(splits.plan(reader, _SPLIT_BYTES, start, stop, times=times), stop, times)

    def rows(self, chunk: Any) -> list[int]:
        """The rows of a chunk that match."""
        return next(self._judged([chunk]))[1]

    def through(self, items: Iterable[Any]) -> Iterator[tuple[Any, Sequence[int]] | Damage]:
        """The chunks with the rows that match. Several are judged at a time, so their buffers are copied."""
        waiting: list[Any] = []
        held = 0
        try:
            for item in items:
                if isinstance(item, Damage):
                    gathered, waiting, held = waiting, [], 0
                    yield from self._judged(gathered)
                    yield item
                    continue
                waiting.append(replace(item, data=memoryview(bytes(item.data))))
                held += len(item.data)
                if held >= _GATHERED_BYTES:
                    gathered, waiting, held = waiting, [], 0
                    yield from self._judged(gathered)
        except DamagedJournal:
            yield from self._judged(waiting)  # what precedes the damage
            raise
        yield from self._judged(waiting)

    # --- columns ------------------------------------------------------------------------------------------------------

    def _judged(self, chunks: list[Any]) -> Iterator[tuple[Any, list[int]]]:
        if not chunks:
            return
        batches = [self._batch_of(chunk) for chunk in chunks]
        matching = self._matching(pa.Table.from_batches(batches, self._wanted).combine_chunks().to_batches())
        first = at = 0
        for chunk, batch in zip(chunks, batches, strict=True):
            end = first + batch.num_rows
            mine = []
            while at < len(matching) and matching[at] < end:
                mine.append(matching[at] - first)
                at += 1
            if batch.num_rows != chunk.count:  # several rows for a record: all of them are within its bytes
                starts, positions = chunk.starts(), batch.column("position")
                mine = sorted({bisect_right(starts, positions[row].as_py()) - 1 for row in mine})
            yield chunk, mine
            first = end

    def _batch_of(self, chunk: Any) -> pa.RecordBatch:
        columns = self._format.columns
        sharded = bool(self._part)
        names = sources_of(self._wanted.names, self._format.name, sharded=sharded)
        collector = columns.collector(names, sharded=sharded, batch_bytes=1 << 30)
        found = [*collector.add(chunk, self._part), *collector.finish()]
        filled = [fill(self._wanted, batch, self._format.name, "") for batch in found]
        table = pa.Table.from_batches(filled, self._wanted).combine_chunks()
        return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], self._wanted)

    def _matching(self, batches: list[pa.RecordBatch]) -> list[int]:
        """The numbers of the rows that match."""
        found: list[int] = []
        before = 0
        for batch in batches:
            rows = pa.array(range(batch.num_rows), pa.int64())
            chosen = batch
            for _, test in self._tests:
                mask = pc.fill_null(test(chosen), False)
                chosen, rows = chosen.filter(mask), rows.filter(mask)
            if self._condition is not None and len(rows):
                rows = rows.take(self._condition.matching(chosen))
            found += (before + row for row in rows.to_pylist())
            before += batch.num_rows
        return found


def _joined(planned: Sequence[Split], stop: int | None, times: Times) -> list[tuple[int | None, int | None]]:
    """Splits as ranges. Damage after the last record belongs to the last range, unless times exclude the end."""
    found: list[tuple[int | None, int | None]] = []
    for split in planned:
        if found and found[-1][1] == split.start:
            found[-1] = (found[-1][0], split.stop)
        else:
            found.append((split.start, split.stop))
    if found and (times.latest is None or planned[-1].after is not None):
        found[-1] = (found[-1][0], stop)
    return found


# --- regular expressions ----------------------------------------------------------------------------------------------


def _grep_test(pattern: str, names: Sequence[str]) -> Callable[[pa.RecordBatch], pa.Array]:
    """Whether a regular expression matches within one of these columns."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise WrongUse(f"{pattern!r} is not a regular expression: {reason}") from None

    def test(batch: pa.RecordBatch) -> pa.Array:
        found = pa.repeat(False, batch.num_rows)
        for name in names:
            found = pc.or_(found, pc.fill_null(_has_match(batch.column(name), pattern), False))
        return found

    return test


def _has_match(column: pa.Array, pattern: str) -> pa.Array:
    """Values that are UTF-8 are searched by characters, others by bytes."""
    if pa.types.is_string(column.type):
        return pc.match_substring_regex(column, pattern)
    texts = _texts_of(column)
    by_text = pc.match_substring_regex(texts, pattern)
    if texts.null_count == column.null_count:
        return by_text
    return pc.if_else(pc.is_null(texts), pc.match_substring_regex(column, pattern), by_text)


def _texts_of(column: pa.Array) -> pa.Array:
    """Bytes as text; null where they are not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text_of(value) for value in column.to_pylist()], pa.string())


def _text_of(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


# --- conditions of SQL ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Payload:
    """The column whose values have fields, and how its values become JSON; without `decode` they are JSON already."""

    column: str
    decode: Decoder | None
    has_fields: bool

    @classmethod
    def of(cls, format: Format, decode: Decoder | None, *, is_json: bool) -> _Payload | None:
        name = format.columns.payload
        if name is None:
            return None
        stored = pa.types.is_string(format.columns.typed.field(name).type)  # a column of text is JSON
        return cls(name, None if stored or is_json else decode, stored or decode is not None)

    def texts(self, column: pa.Array) -> pa.Array:
        if pa.types.is_string(column.type):
            return column
        if self.decode is None:
            return _texts_of(column)
        decode = self.decode
        return pa.array([None if value is None else to_json(decode, value)[0] for value in column.to_pylist()])


class _Condition:
    """A condition of SQL. It is checked when it is made."""

    def __init__(self, text: str, schema: pa.Schema, payload: _Payload | None) -> None:
        self._duckdb = import_duckdb("--where")
        self._schema = schema
        self._payload = payload
        self._connection = self._duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'; SET python_enable_replacements = false")
        self._connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        self._fields: dict[tuple[tuple[str, ...], str], str] = {}
        """The columns that hold the fields of values, by path and type."""
        tree = self._parsed(text)
        self.columns = self._columns_in(tree)
        self._type_fields(tree["statements"][0]["node"]["where_clause"], "boolean")
        self._query = self._with_fields(self._text_of(tree))
        empty = self._prepared(pa.RecordBatch.from_pylist([], self._schema))
        probe = _Probe(empty)
        self._run(probe)
        self.filter = Filter(probe.pushed, empty.schema)
        """What DuckDB makes of the condition for a scan: it may be less strict."""

    def matching(self, batch: pa.RecordBatch) -> pa.Array:
        """The numbers of the rows that match, in order."""
        return self._run(self._prepared(batch)).column(0).combine_chunks().sort()

    def _run(self, data: Any) -> pa.Table:
        try:
            self._connection.register("records", data)
            return self._connection.sql(self._query).to_arrow_table()
        except self._duckdb.Error as error:
            raise self._wrong(str(error)) from None
        except RuntimeError as error:
            if str(error) != "Query interrupted":
                raise
            raise KeyboardInterrupt from None  # DuckDB has taken the signal

    def _prepared(self, batch: pa.RecordBatch) -> pa.Table:
        """A batch with the numbers of its rows, and with the JSON of its values if fields are needed."""
        found = pa.Table.from_batches([batch])
        if self._payload is not None and self._fields:
            found = found.append_column(_JSON, self._payload.texts(batch.column(self._payload.column)))
        return found.append_column(_ROW, pa.array(range(batch.num_rows), pa.int64()))

    def _wrong(self, message: str) -> WrongUse:
        text = message.strip().split("\n")[0].rstrip("!.")
        for known in ("Binder Error: ", "Parser Error: ", "Conversion Error: ", "Catalog Error: "):
            text = text.removeprefix(known)
        hint = ""
        if 'near "offset"' in text:
            hint = f"; {OFFSET_HINT}"
        elif text.startswith("No function matches") and "(BLOB" in text:
            hint = f"; {BYTES_HINT}"
        elif "timestamp field" in text:
            hint = "; for a time before now write now() - INTERVAL 2 HOURS"
        elif re.search(r"column|table|field", text, re.IGNORECASE):
            hint = f"; the columns are {', '.join(self._schema.names)}"
        return WrongUse(f"--where: {text}{hint}")

    # --- the syntax tree ----------------------------------------------------------------------------------------------

    def _parsed(self, text: str) -> dict[str, Any]:
        if not text.strip():
            raise WrongUse("--where: the condition is empty")
        query = f'SELECT "{_ROW}" FROM chosen WHERE (\n{text}\n)'
        tree = json.loads(self._connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0])
        if tree["error"]:
            raise self._wrong(tree["error_message"])
        if len(tree["statements"]) != 1 or tree["statements"][0]["node"].get("where_clause") is None:
            raise WrongUse("--where: this is not one condition")
        found: dict[str, Any] = tree
        return found

    def _text_of(self, tree: dict[str, Any]) -> str:
        found = self._connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()
        return str(found[0][0])

    def _columns_in(self, tree: dict[str, Any]) -> set[str]:
        """The columns that a condition needs; all of them if it does not name them."""
        lower = {name.lower(): name for name in self._schema.names}
        found: set[str] = set()
        for node in _nodes(tree):
            if node.get("class") in ("STAR", "SUBQUERY"):
                return set(self._schema.names)
            if node.get("class") == "COLUMN_REF":
                found |= {lower[name.lower()] for name in node["column_names"] if name.lower() in lower}
        return found

    def _type_fields(self, node: Any, context: str) -> None:
        """Replace the fields of values by columns that hold them, in the type that the context asks for."""
        if isinstance(node, list):
            for child in node:
                self._type_fields(child, context)
            return
        if not isinstance(node, dict):
            return
        kind = node.get("class")
        if kind == "COLUMN_REF":
            path = self._path_in(node)
            if path:
                node["column_names"] = [self._fields.setdefault((path, context), f"#{len(self._fields)}")]
            return
        inner = context if kind is None else self._context_in(node)  # an argument has the type of its function
        if inner == "whole":
            self._compare_exactly(node)
            return
        for child in node.values():
            self._type_fields(child, inner)

    def _compare_exactly(self, node: dict[str, Any]) -> None:
        """Compare fields as whole numbers if they are, otherwise as DOUBLE, which cannot hold all whole numbers."""
        choices = deepcopy(node), deepcopy(node)
        for choice, context in zip(choices, ("whole", "number"), strict=True):
            for child in choice.values():
                self._type_fields(child, context)
        node.clear()
        node.update({"class": "OPERATOR", "type": "OPERATOR_COALESCE", "alias": "", "children": list(choices)})

    def _context_in(self, node: dict[str, Any]) -> str:
        """The type that fields below a node have."""
        kind, type = node.get("class", ""), node.get("type", "")
        if kind in _LOGICAL or type in _LOGICAL:
            return "boolean"
        if kind == "FUNCTION" and str(node.get("function_name")).lower() in _ARITHMETIC:
            return "number"
        if kind in ("COMPARISON", "BETWEEN") or type in ("COMPARE_IN", "COMPARE_NOT_IN"):
            operands = _operands(node)
            kinds = {self._kind_of(operand) for operand in operands} - {None}
            if kinds == {"whole", "number"}:
                return "number"
            if len(kinds) == 1:
                found = str(kinds.pop())
                return found if found != "whole" or any(map(self._is_field, operands)) else "number"
            if not kinds and type not in ("COMPARE_EQUAL", "COMPARE_NOTEQUAL"):
                return "whole"
        return "text"

    def _kind_of(self, node: Any) -> str | None:
        """The type of an operand, if it does not depend on a field."""
        kind = node.get("class")
        if kind == "CONSTANT":
            literal = node.get("literal") or {"kind": node.get("value", {}).get("type", {}).get("id", "")}
            is_huge = len(str(literal.get("text", "")).lstrip("-")) > _MOST_DIGITS
            found = _type_named(str(literal.get("kind", "")))
            return "number" if found == "whole" and is_huge else found
        if kind == "CAST":
            return _type_named(json.dumps(node.get("type_expr") or node.get("cast_type")))
        if kind == "FUNCTION" and str(node.get("function_name")).lower() in _ARITHMETIC:
            return "number"
        if kind == "COLUMN_REF" and not self._is_field(node):
            names = [field for field in self._schema if field.name.lower() == node["column_names"][-1].lower()]
            return _type_named(str(names[0].type)) if names else None
        return None if kind == "COLUMN_REF" else "text"

    def _is_field(self, node: dict[str, Any]) -> bool:
        return node.get("class") == "COLUMN_REF" and bool(self._path_in(node))

    def _path_in(self, node: dict[str, Any]) -> tuple[str, ...]:
        """The path of a field of a value; empty for anything else."""
        first, *path = node["column_names"]
        payload = self._payload
        if payload is None or not path or first.lower() != payload.column.lower():
            return ()
        if not payload.has_fields:
            raise WrongUse(f"--where: {'.'.join([first, *path])}: {first} is bytes: decode it, with --decode json")
        return tuple(path)

    def _with_fields(self, query: str) -> str:
        """The query over the records with the columns of the fields."""
        if not self._fields:
            return f"WITH chosen AS (SELECT * FROM records) {query}"
        columns = ", ".join(
            f"{_extracted(path, context)} AS {_quoted(name)}" for (path, context), name in self._fields.items()
        )
        valid = f'SELECT * REPLACE (CASE WHEN json_valid("{_JSON}") THEN "{_JSON}" END AS "{_JSON}") FROM records'
        return f"WITH chosen AS (SELECT *, {columns} FROM ({valid})) {query}"


class _Probe(ds.InMemoryDataset):  # type: ignore[misc]  # pyarrow has no types
    """A table that keeps the filter of the scan that reads it."""

    pushed: ds.Expression | None = None

    def scanner(self, columns: Any = None, filter: ds.Expression | None = None, **options: Any) -> ds.Scanner:
        self.pushed = filter
        return super().scanner(columns=columns, filter=filter, **options)


def _extracted(path: tuple[str, ...], context: str) -> str:
    """The field of a value in SQL."""
    pointer = "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path).replace("'", "''")
    text = f"json_extract_string(\"{_JSON}\", '{pointer}')"
    kind = f"json_type(\"{_JSON}\", '{pointer}')"
    if context == "number":
        return f"CASE WHEN {kind} IN ({_NUMBER_KINDS}) THEN CAST({text} AS DOUBLE) END"
    if context == "whole":  # a DOUBLE from 2^53 on is whole, and so is a number of more than 64 bits
        is_whole = f"{kind} IN ({_WHOLE_KINDS}) OR ({kind} = 'DOUBLE' AND abs(CAST({text} AS DOUBLE)) >= {2**53})"
        return f"CASE WHEN {is_whole} THEN TRY_CAST({text} AS HUGEINT) END"
    return f"CASE WHEN {kind} = 'BOOLEAN' THEN {text} = 'true' END" if context == "boolean" else text


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _type_named(text: str) -> str | None:
    if not text or "NULL" in text.upper():
        return None
    if "BOOL" in text.upper():
        return "boolean"
    if _NUMERIC.search(text):
        return "number"
    return "whole" if _WHOLE.search(text) else "text"


def _operands(node: dict[str, Any]) -> list[Any]:
    found = [node[name] for name in ("left", "right", "input", "lower", "upper") if isinstance(node.get(name), dict)]
    return found + [child for child in node.get("children", ()) if isinstance(child, dict)]


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a syntax tree."""
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _nodes(child)
    elif isinstance(node, list):
        for child in node:
            yield from _nodes(child)
