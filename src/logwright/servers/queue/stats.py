"""The statistics of the server: for `stats`, `dump_stats` and `dump_config`, and for Prometheus."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict

from ... import __version__
from ...kestrel.model.stats import stats_of as stats_of_engine
from ..metrics import Metrics
from ..security import descriptions, limits_of
from .answers import END
from .queues import Served
from .service import UP, Counters, Service

_SHOWN = ("cmd_get", "cmd_set", "cmd_peek", "cmd_monitor", "get_hits", "get_misses", "bytes_read", "bytes_written")


def stats_of(service: Service) -> dict[str, object]:
    """The values of `stats`: of the server as in memcached and Kestrel, and of each queue as in Kestrel."""
    queues = list(service.queues.by_key.values())
    counters = service.counted()
    found: dict[str, object] = {
        "pid": os.getpid(),
        "uptime": int(service.lane.now - service.started),
        "time": int(service.clock()),
        "version": service.version,
        "logwright_version": __version__,
        "curr_items": sum(queue.engine.shelf.items for queue in queues),
        "total_items": counters.total_items,
        "bytes": sum(queue.engine.shelf.data_bytes for queue in queues),
        "curr_connections": len(service.connections),
        "total_connections": counters.total_connections,
        **{name: getattr(counters, name) for name in _SHOWN},
        "queue_creates": service.queues.created,
        "queue_deletes": service.queues.deleted,
        "queue_expires": 0,
    }
    for queue in queues:
        name = queue.key.decode("utf-8", "backslashreplace")
        found |= {f"queue_{name}_{field}": value for field, value in _stats_of_queue(queue).items()}
    return found


def _stats_of_queue(queue: Served) -> dict[str, object]:
    stats = stats_of_engine(queue.engine)
    return {
        "items": stats.items,
        "bytes": stats.bytes,
        "total_items": stats.put,
        "logsize": stats.journal_bytes,
        "expired_items": stats.expired,
        "mem_items": stats.memory_items,
        "mem_bytes": stats.memory_bytes,
        "age": stats.age_ms or 0,
        "discarded": stats.discarded,
        "waiters": len(queue.waiters),
        "open_transactions": stats.open,
        "delayed": stats.delayed,
        "transactions": queue.transactions,
        "canceled_transactions": queue.canceled,
        "total_flushes": queue.flushes,
        "create_time": queue.created_ms,
    }


def settings_of(service: Service) -> dict[str, object]:
    """The values of `stats settings`."""
    return {"sync": service.settings.sync, **limits_of(service.limits)}


def lines_of(found: dict[str, object]) -> bytes:
    """The answer of `stats`."""
    lines = [f"STAT {name} {value}\r\n" for name, value in found.items()]
    return "".join(lines).encode("utf-8", "surrogateescape") + END


def _dump(service: Service, fields: Callable[[Served], dict[str, object]], only: bytes | None = None) -> bytes:
    lines = []
    for queue in service.queues.by_key.values():
        if only is None or queue.key == only:
            lines.append(f"queue '{queue.key.decode('utf-8', 'surrogateescape')}' {{")
            lines += [f"  {name}={value}" for name, value in fields(queue).items()]
            lines.append("}")
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "surrogateescape") + END


def dump_of_queues(service: Service, only: bytes | None) -> bytes:
    """The answer of `dump_stats`."""
    return _dump(service, _stats_of_queue, only)


def dump_of_limits(service: Service) -> bytes:
    """The answer of `dump_config`."""

    def limits_of_queue(queue: Served) -> dict[str, object]:
        engine = queue.engine
        park = None if engine.limits.max_attempts is None else engine.park
        swept = {"park": park, "sweep_seconds": service.limits.sweep_seconds}  # the server does this for all queues
        return {"sync": service.settings.sync, **asdict(engine.limits), **swept}

    return _dump(service, limits_of_queue)


# --- Prometheus -----------------------------------------------------------------------------------------------------


class QueueMetrics(Metrics):
    """The metrics for Prometheus."""

    def __init__(self, service: Service) -> None:
        super().__init__("logwright_kestrel")
        self._service = service
        self._counts = {
            name: self.counter(f"{name.removeprefix('total_')}_total", about)
            for name, about in descriptions(Counters).items()
        }
        self.gauge("up", "1 if the status is UP, otherwise 0.", lambda: int(service.status == UP))
        self.gauge("connections", "Connected clients.", lambda: len(service.connections))
        self.gauge("queues", "Open queues.", lambda: len(service.queues.by_key))
        self.gauge("queues_refused", "Queues that could not be opened.", lambda: len(service.queues.refused))
        self.gauge("arriving_bytes", "Bytes of partly received items.", lambda: service.arriving.bytes)
        self.gauge("commits", "Writes or syncs, each for one or more requests.", lambda: service.lane.commits)
        self.gauge(
            "disk_is_low", "1 if no items are accepted because the disk is full.", lambda: int(service.space.is_low)
        )

    def text(self) -> str:
        counters = self._service.counted()
        for name, counter in self._counts.items():
            counter.values[""] = getattr(counters, name)
        return super().text() + self._text_of_queues()

    def _text_of_queues(self) -> str:
        queues = [(_label(queue.key), _stats_of_queue(queue)) for queue in self._service.queues.by_key.values()]
        lines = []
        for name, kind, about in _OF_QUEUES:
            full = f"logwright_kestrel_queue_{name}"
            lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}"]
            field = _FIELDS.get(name, name)
            lines += [f'{full}{{queue="{label}"}} {stats[field]}' for label, stats in queues]
        return "\n".join(lines) + "\n"


_OF_QUEUES = (
    ("items", "gauge", "Waiting items."),
    ("bytes", "gauge", "Bytes of waiting items."),
    ("open", "gauge", "Items reserved by clients."),
    ("delayed", "gauge", "Items that are not due yet."),
    ("waiters", "gauge", "Clients waiting for an item."),
    ("age_ms", "gauge", "Age of the head item."),
    ("journal_bytes", "gauge", "Size of the journal."),
    ("items_total", "counter", "Items added since the queue was opened."),
    ("expired_total", "counter", "Items expired."),
    ("discarded_total", "counter", "Items discarded because the queue was full."),
)
_FIELDS = {
    "open": "open_transactions",
    "age_ms": "age",
    "journal_bytes": "logsize",
    "items_total": "total_items",
    "expired_total": "expired_items",
    "discarded_total": "discarded",
}


def _label(key: bytes) -> str:
    """A unique label for each name: Prometheus rejects everything if two are equal. No name has a `~`."""
    text = key.decode("utf-8", "surrogateescape").replace("\\", "\\\\").replace('"', '\\"')
    return "".join(f"~{ord(one) - 0xDC00:02x}" if "\udc80" <= one <= "\udcff" else one for one in text)
