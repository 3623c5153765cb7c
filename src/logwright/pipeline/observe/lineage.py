"""Events of OpenLineage (version 2-0-2 of its schema): START, COMPLETE or FAIL of a run, and RUNNING for each batch.

The events of a run have the same run id. Their inputs are the journals that were read, their outputs the tables with
their columns and sizes. They are appended to a file as lines of JSON, or sent to a URL by POST, such as
http://localhost:5000/api/v1/lineage. The environment variable OPENLINEAGE_API_KEY has the token for the URL, if it
needs one, as for the clients of OpenLineage.
"""

from __future__ import annotations

import datetime
import json
import os
import urllib.request
import uuid
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from ... import __version__
from ...errors import WrongUse
from ...location import without_secrets
from ..settings import Settings
from ..tables import schema_of
from .observer import BatchFigures, Observer

PRODUCER: Final = f"pkg:pypi/logwright@{__version__}"
SCHEMA: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS: Final = "https://openlineage.io/spec/facets"
_TIMEOUT_SECONDS: Final = 5.0


class Lineage(Observer):
    """Writes or sends the events of a run."""

    def __init__(self, target: str, settings: Settings) -> None:
        self._target = target
        self._settings = settings
        self._run = str(uuid.uuid4())
        self._last: BatchFigures | None = None
        self._read: set[str] = set()
        """The locations of the journals that were read."""
        scheme = urlsplit(target).scheme
        if "://" in target and scheme not in ("http", "https"):
            raise WrongUse(
                f"lineage: events are written to a file, or sent to an http or https URL, not to {scheme}://"
            )

    def begin(self) -> None:
        self._emit("START")

    def batch(self, figures: BatchFigures) -> None:
        is_new = figures.seconds is not None
        self._last = figures
        root = self._settings.journals.rstrip("/")
        self._read |= {figures.locations.get(name, f"{root}/{name}") for name in figures.new}
        if is_new and self._settings.follow:
            self._emit("RUNNING")

    def end(self, error: BaseException | None) -> None:
        if error is None:
            self._emit("COMPLETE")
            return
        message = {"message": str(error) or type(error).__name__, "programmingLanguage": "PYTHON"}
        self._emit("FAIL", {"errorMessage": _facet("1-0-0/ErrorMessageRunFacet", message)})

    # --- events -------------------------------------------------------------------------------------------------------

    def _emit(self, kind: str, run_facets: Mapping[str, Any] | None = None) -> None:
        namespace, name = dataset_of(self._settings.out)
        event = {
            "eventType": kind,
            "eventTime": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "run": {"runId": self._run, "facets": dict(run_facets or {})},
            "job": {"namespace": namespace, "name": f"logwright pipeline {name}", "facets": {}},
            "inputs": self._inputs(),
            "outputs": self._outputs(),
            "producer": PRODUCER,
            "schemaURL": SCHEMA,
        }
        text = json.dumps(event, ensure_ascii=False)
        try:
            self._send(text) if "://" in self._target else self._append(text)
        except (OSError, HTTPException, ValueError) as error:  # ValueError for what is no URL
            self.problem = f"events of OpenLineage could not be sent to {without_secrets(self._target)}: {error}"

    def _inputs(self) -> list[dict[str, Any]]:
        return [_dataset(location) for location in sorted(self._read)]

    def _outputs(self) -> list[dict[str, Any]]:
        found = []
        for table, totals in {} if self._last is None else self._last.tables.items():
            fields = [{"name": each.name, "type": str(each.type)} for each in schema_of(table, self._settings)]
            dataset = _dataset(f"{self._settings.out.rstrip('/')}/{table}")
            dataset["facets"] = {"schema": _facet("1-0-0/SchemaDatasetFacet", {"fields": fields})}
            numbers = {"rowCount": totals.rows, "size": totals.bytes}
            dataset["outputFacets"] = {"outputStatistics": _facet("1-0-0/OutputStatisticsOutputDatasetFacet", numbers)}
            found.append(dataset)
        return found

    def _append(self, text: str) -> None:
        with open(self._target, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{text}\n")

    def _send(self, text: str) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": f"logwright/{__version__}"}
        if token := os.environ.get("OPENLINEAGE_API_KEY"):
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(self._target, text.encode(errors="replace"), headers, method="POST")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):
            pass


def _facet(name: str, contents: Mapping[str, Any]) -> dict[str, Any]:
    title = name.rpartition("/")[2]
    return {"_producer": PRODUCER, "_schemaURL": f"{_FACETS}/{name}.json#/$defs/{title}", **contents}


def _dataset(location: str) -> dict[str, Any]:
    namespace, name = dataset_of(location)
    return {"namespace": namespace, "name": name, "facets": {}}


def dataset_of(location: str) -> tuple[str, str]:
    """The namespace and the name of a path or URI, as OpenLineage names data sets."""
    plain = without_secrets(location)
    parts = urlsplit(plain)
    if "://" not in plain or parts.scheme == "file":
        return "file", parts.path if parts.scheme == "file" else plain
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
