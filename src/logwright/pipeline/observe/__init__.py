"""What a run reports to other programs: metrics for Prometheus, and events of OpenLineage; see `observer.py`."""

from __future__ import annotations

from ..settings import Settings
from .lineage import Lineage
from .metrics import MetricsFile
from .observer import BatchFigures, Observer

__all__ = ["BatchFigures", "Observer", "observers_of"]


def observers_of(settings: Settings) -> list[Observer]:
    """The observers that the settings ask for."""
    found: list[Observer] = []
    if settings.metrics is not None:
        found.append(MetricsFile(settings.metrics, settings.out))
    if settings.lineage is not None:
        found.append(Lineage(settings.lineage, settings))
    return found
