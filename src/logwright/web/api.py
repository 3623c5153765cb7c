"""The requests under `/api`, and their description in the form of OpenAPI.

Each request is a function in a thread that takes its parameters by name and returns JSON. `ENDPOINTS` is the list of
all of them; the description is made from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .. import __version__
from ..core.times import parse_time, shown_time
from ..errors import LogwrightError, NotFound, WrongUse
from . import models, queries, records
from .catalog import Catalog
from .checks import Checks
from .live import Live
from .outline import AnyReader

_MOST_ERROR_CHARACTERS: Final = 2000
_MOST_QUERY_CHARACTERS: Final = 20_000
_INTERRUPT_SECONDS: Final = 0.1
_ON_LEAVING: Final[ContextVar[list[Callable[[], None]]]] = ContextVar("what ends when a browser leaves")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a request. `kind` is a type of JSON Schema."""

    name: str
    about: str
    kind: str = "string"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A request under `/api`. `stream` is the media type of what is not JSON."""

    path: str
    about: str
    call: Callable[..., Any]
    parameters: tuple[Parameter, ...] = ()
    stream: str = ""


NAME: Final = Parameter("name", "the name of a journal, as in the overview", required=True)
PART: Final = Parameter("part", "the shard, queue or store; by default the first one")
KEY: Final = Parameter("key", "a key, a page, or the place FILE@POSITION of an item", required=True)
SINCE: Final = Parameter("since", "a time: ISO 8601, nanoseconds, or such as '2 hours ago'")
UNTIL: Final = Parameter("until", "a time that is not included")
SQL: Final = Parameter("query", "one SELECT; quoted names are journals", required=True)


class Api:
    """The requests over the journals of a catalog."""

    def __init__(self, root: Path | str) -> None:
        self.catalog = Catalog(root)
        self.live = Live(self.catalog)
        self.checks = Checks(self.catalog, self.live)
        self._threads = anyio.CapacityLimiter(8)
        self.endpoints = self._endpoints()

    @property
    def busy(self) -> int:
        """How many requests are answered by threads now."""
        return self._threads.borrowed_tokens

    def _endpoints(self) -> tuple[Endpoint, ...]:
        filters = (
            Parameter("find", "a key; only its records"),
            Parameter("grep", "a regular expression that a key or value matches"),
            Parameter("where", "a condition of SQL"),
            Parameter("decode", "how values are decoded, for conditions on their fields"),
        )
        events = "text/event-stream"
        return (
            Endpoint("about", "The root of the journals, and the version of this server.", self.about),
            Endpoint("overview", "All journals, those with problems first.", self.overview),
            Endpoint("live", "The overview, whenever it changes.", self.live.overview, (), events),
            Endpoint("journal", "One journal: its parts, rows, times and damage.", self.journal, (NAME, PART)),
            Endpoint("journal/live", "Records as they are appended.", self.live.journal, (NAME, PART), events),
            Endpoint(
                "timeline",
                "Records and bytes over time.",
                self.timeline,
                (NAME, PART, SINCE, UNTIL, Parameter("steps", "the most steps", "integer")),
            ),
            Endpoint("seek", "The row of the first record not earlier than a time.", self.seek, (NAME, PART, SINCE)),
            Endpoint(
                "rows",
                "The records of some rows.",
                self.rows,
                (
                    NAME,
                    PART,
                    Parameter("row", "the first row", "integer"),
                    Parameter("count", "how many", "integer"),
                ),
            ),
            Endpoint(
                "search",
                "Records that match; continue with `next` as `start`.",
                self.search,
                (
                    NAME,
                    PART,
                    *filters,
                    SINCE,
                    UNTIL,
                    Parameter("start", "a record number"),
                    Parameter("count", "the most records", "integer"),
                ),
            ),
            Endpoint(
                "record",
                "One record in full.",
                self.record,
                (
                    NAME,
                    PART,
                    Parameter("number", "its number", required=True),
                    Parameter("decode", "json, msgpack, bonjson, avro or text; by default what fits"),
                    Parameter("schema", "the schema of Avro"),
                    Parameter("offset", "the first byte of the value that is returned as hex", "integer"),
                ),
            ),
            Endpoint("files", "The files of a journal, and their damaged ranges.", self.files, (NAME,)),
            Endpoint("queue", "The items of a queue.", self.queue, (NAME, PART)),
            Endpoint(
                "store",
                "The keys of a store at a time.",
                self.store,
                (NAME, PART, Parameter("at", "a time; by default now"), Parameter("prefix", "of keys")),
            ),
            Endpoint(
                "difference", "What changed in a store between two times.", self.difference, (NAME, PART, SINCE, UNTIL)
            ),
            Endpoint("history", "The changes of a key, or the life of an item.", self.history, (NAME, PART, KEY)),
            Endpoint("segments", "The segments of a journal with checkpoints.", self.segments, (NAME,)),
            Endpoint("pages", "The pages that transactions changed.", self.pages, (NAME, PART)),
            Endpoint("page", "The versions of a page.", self.page, (NAME, PART, KEY)),
            Endpoint("shards", "The parts of a journal, and their consumers.", self.shards, (NAME,)),
            Endpoint("check", "Verify a journal, and plan its repair.", self.checks.watch, (NAME,), events),
            Endpoint("sql", "The first rows of a query.", self.sql, (SQL,)),
            Endpoint("sql.csv", "All rows of a query as CSV.", self.sql_csv, (SQL,), "text/csv"),
            Endpoint(
                "sql.parquet",
                "All rows of a query as Parquet.",
                self.sql_parquet,
                (SQL,),
                "application/vnd.apache.parquet",
            ),
            Endpoint("openapi.json", "This description.", self.description),
        )

    def routes(self) -> list[Route]:
        """The routes of all requests."""
        found = [Route(f"/api/{endpoint.path}", self._route(endpoint), methods=["GET"]) for endpoint in self.endpoints]
        return [*found, Route("/api", self._route(self.endpoints[-1]), methods=["GET"])]  # the description

    def _route(self, endpoint: Endpoint) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                arguments = _arguments(endpoint, request.query_params)
                if endpoint.stream == "text/event-stream":
                    if "name" in arguments:  # which may list directories
                        await anyio.to_thread.run_sync(self.catalog.entry, arguments["name"], limiter=self._threads)
                    return StreamingResponse(endpoint.call(**arguments), media_type=endpoint.stream)
                found = await self._in_thread(request, lambda: endpoint.call(**arguments))
            except (LogwrightError, OSError) as error:
                return _failed(error)
            if isinstance(found, Download):
                named = {"content-disposition": f'attachment; filename="{found.file}"'}
                return StreamingResponse(found.pieces, media_type=endpoint.stream, headers=named)
            return JSONResponse(found)

        return answer

    async def _in_thread(self, request: Request, call: Callable[[], Any]) -> Any:
        """Call in a thread. What `_ON_LEAVING` has got is called if the browser leaves before the end."""
        leaving: list[Callable[[], None]] = []
        _ON_LEAVING.set(leaving)

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            while True:  # again and again: what is interrupted before it begins does not end
                for one in leaving:
                    one()
                await asyncio.sleep(_INTERRUPT_SECONDS)

        watching = asyncio.create_task(watch())
        try:
            return await anyio.to_thread.run_sync(call, limiter=self._threads)
        finally:
            watching.cancel()

    def description(self) -> dict[str, Any]:
        """The description of all requests in the form of OpenAPI 3.1."""
        paths = {f"/api/{endpoint.path}": {"get": _described(endpoint)} for endpoint in self.endpoints}
        info = {"title": "Logwright", "version": __version__, "description": "Journals, read only."}
        return {"openapi": "3.1.0", "info": info, "paths": paths}

    # --- journals ---------------------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        return {"root": str(self.catalog.root), "version": __version__}

    def overview(self) -> dict[str, Any]:
        return self.catalog.overview()

    def journal(self, name: str, part: str | None = None) -> dict[str, Any]:
        entry = self.catalog.entry(name)
        chosen, reader, outline = self.catalog.part(name, part)
        whole = self.catalog.open(name)
        format = entry.format
        buckets = outline.buckets(reader, None, None, 2)
        missing = self.catalog.missing(name) if len(whole.parts()) < 2 else 0
        is_complete = outline.is_complete  # before the rows, which other requests add to
        return {
            "name": name,
            "path": str(entry.path),
            "format": format.name,
            "title": format.title,
            "part": chosen,
            "part_name": whole.part_name,
            "parts": [found for found, _ in whole.parts()],
            "rows": outline.rows,
            "missing": missing,
            "complete": is_complete,
            "share": outline.share,
            "bytes": reader.total_bytes(),
            "has_times": bool(buckets),
            "damages": [damage.as_json() for damage in self.catalog.damages(name)],
            "columns": list(format.columns.typed.names),
            "views": _views(reader, format.consumers is not None),
        }

    def timeline(
        self,
        name: str,
        part: str | None = None,
        since: str | None = None,
        until: str | None = None,
        steps: int = 120,
    ) -> dict[str, Any]:
        _, reader, outline = self.catalog.part(name, part)
        low, high = _time(since), _time(until)
        found = outline.buckets(reader, low, high, max(1, min(steps, 400)))
        step = found[0].end - found[0].start if found else 1
        return {
            "buckets": [bucket.as_json() for bucket in found],
            "step_ms": step / 1e6,
            "since": None if not found else shown_time(found[0].start),
            "until": None if not found else shown_time(found[-1].end),
            "damages": [found.as_json() for found in self.catalog.damages(name) if found.time is not None],
        }

    def seek(self, name: str, part: str | None = None, since: str | None = None) -> dict[str, Any]:
        _, reader, outline = self.catalog.part(name, part)
        number = reader.find_time(_time(since) or 0)
        assert isinstance(number, int), "a part is read, not several"
        return {"row": outline.row_of(reader, number), "number": str(number), "total": outline.rows}

    def rows(self, name: str, part: str | None = None, row: int = 0, count: int = 100) -> dict[str, Any]:
        _, reader, outline = self.catalog.part(name, part)
        return records.page(reader, outline, max(0, row), count)

    def search(
        self,
        name: str,
        part: str | None = None,
        find: str | None = None,
        grep: str | None = None,
        where: str | None = None,
        decode: str | None = None,
        since: str | None = None,
        until: str | None = None,
        start: str | None = None,
        count: int = 100,
    ) -> dict[str, Any]:
        _, reader, outline = self.catalog.part(name, part)
        choice = records.selection(self.catalog.entry(name).format, find, grep, where, decode)
        low = _number(start) if start is not None else _found(reader, since)
        return records.search(reader, outline, choice, low, _found(reader, until), count)

    def record(
        self,
        name: str,
        number: str,
        part: str | None = None,
        decode: str | None = None,
        schema: str | None = None,
        offset: int = 0,
    ) -> dict[str, Any]:
        _, reader, outline = self.catalog.part(name, part)
        return records.in_full(reader, outline, _number(number), decode, schema, max(0, offset))

    def files(self, name: str) -> dict[str, Any]:
        with self.catalog.open(name) as reader:
            return models.files(self.catalog.entry(name), reader, self.catalog.damages(name))

    # --- what they stand for ------------------------------------------------------------------------------------------

    def queue(self, name: str, part: str | None = None) -> dict[str, Any]:
        _, reader, outline = self.catalog.part(name, part)
        return models.queue(reader, outline, self.catalog.delayed(name, reader.part))

    def store(self, name: str, part: str | None = None, at: str | None = None, prefix: str = "") -> dict[str, Any]:
        return models.store(self.catalog.part(name, part)[1], at, prefix)

    def difference(
        self, name: str, part: str | None = None, since: str | None = None, until: str | None = None
    ) -> dict[str, Any]:
        if since is None:
            raise WrongUse("give two times: since and until")
        return models.difference(self.catalog.part(name, part)[1], since, until or "now")

    def history(self, name: str, key: str, part: str | None = None) -> dict[str, Any]:
        return models.history(self.catalog.part(name, part)[1], key)

    def segments(self, name: str) -> dict[str, Any]:
        return models.segments(self.catalog.open(name))

    def pages(self, name: str, part: str | None = None) -> dict[str, Any]:
        return models.pages(self.catalog.part(name, part)[1])

    def page(self, name: str, key: str, part: str | None = None) -> dict[str, Any]:
        return models.page_versions(self.catalog.part(name, part)[1], key)

    def shards(self, name: str) -> dict[str, Any]:
        return models.shards(self.catalog.entry(name).format, self.catalog.open(name))

    # --- SQL --------------------------------------------------------------------------------------------------------

    def _query(self, text: str) -> queries.Query:
        if len(text) > _MOST_QUERY_CHARACTERS:
            raise WrongUse(f"the query has {len(text):,} characters; at most {_MOST_QUERY_CHARACTERS:,} are read")
        return queries.Query(self.catalog, text, _ON_LEAVING.get())

    def sql(self, query: str) -> dict[str, Any]:
        with closing(self._query(query)) as found:
            return queries.shown(found)

    def sql_csv(self, query: str) -> Download:
        found = self._query(query)
        return Download("result.csv", _closing(found, queries.as_csv(found)))

    def sql_parquet(self, query: str) -> Download:
        found = self._query(query)
        return Download("result.parquet", _closing(found, queries.as_parquet(found)))


@dataclass(frozen=True, slots=True)
class Download:
    """A file that is sent piece by piece."""

    file: str
    pieces: AsyncIterator[bytes]


async def _closing(query: queries.Query, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for piece in iterate_in_threadpool(pieces):
            yield piece
    finally:
        query.interrupt()
        query.close()


def _views(reader: AnyReader, has_consumers: bool) -> list[str]:
    """The views of a journal besides its records and files."""
    own = {"kestrel": ["queue"], "versioned": ["store"], "appendfile": ["segments"], "yeltsin": ["pages"]}
    return own.get(reader.format, []) + (["shards"] if has_consumers else [])


def _time(text: str | None) -> int | None:
    return None if text is None else parse_time(text)


def _found(reader: AnyReader, text: str | None) -> int | None:
    if text is None:
        return None
    number = reader.find_time(parse_time(text))
    assert isinstance(number, int), "a part is read, not several"
    return number


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 60:
        raise WrongUse(f"{text!r} is not a record number")
    return int(text)


# --- parameters and errors --------------------------------------------------------------------------------------------


def _arguments(endpoint: Endpoint, given: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of a request, checked."""
    known = {parameter.name: parameter for parameter in endpoint.parameters}
    found: dict[str, Any] = {}
    for name, text in given.items():
        if name not in known:
            raise WrongUse(f"there is no parameter {name!r}; there are {', '.join(known) or 'none'}")
        is_number = known[name].kind == "integer"
        if is_number and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise WrongUse(f"{name} must be a number, not {text!r}")
        found[name] = int(text) if is_number else text
    missing = [
        parameter.name for parameter in endpoint.parameters if parameter.required and parameter.name not in found
    ]
    if missing:
        raise WrongUse(f"the parameter {missing[0]} is missing")
    return found


def _failed(error: Exception) -> Response:
    status = 404 if isinstance(error, NotFound) else 400 if isinstance(error, WrongUse) else 422
    return JSONResponse({"error": str(error)[:_MOST_ERROR_CHARACTERS]}, status)


def _described(endpoint: Endpoint) -> dict[str, Any]:
    parameters = [
        {
            "name": parameter.name,
            "in": "query",
            "required": parameter.required,
            "description": parameter.about,
            "schema": {"type": parameter.kind},
        }
        for parameter in endpoint.parameters
    ]
    media = endpoint.stream or "application/json"
    failed = {"description": 'What is wrong, as {"error": …}'}
    return {
        "summary": endpoint.about,
        "operationId": endpoint.path,
        "parameters": parameters,
        "responses": {"200": {"description": endpoint.about, "content": {media: {}}}, "default": failed},
    }
