"""Durable journals for Python: read, write, recover, verify, repair and convert append-only journals.

    import logwright
    from logwright import sej

    with sej.Writer("orders", sync="always") as writer:
        offset = writer.append(b"value", key=b"key")

    with logwright.open("orders") as journal:       # any format, detected
        for message in journal:
            ...

    logwright.sql("SELECT key, count(*) FROM 'orders' GROUP BY key")    # by DuckDB
    logwright.dataset("orders")                     # for DuckDB, Polars and other readers of Arrow data

`import logwright` is light: neither pyarrow nor pyspark is loaded before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import errors, registry
from .core.format import Reader, detect
from .core.format import open_journal as open

if TYPE_CHECKING:
    from . import appendfile, kestrel, sej, versioned, yeltsin
    from .arrow.dataset import dataset
    from .arrow.query import sql

__version__ = "0.1.0"
"""The version of the package."""
__all__ = [
    "Reader",
    "__version__",
    "appendfile",
    "dataset",
    "detect",
    "errors",
    "kestrel",
    "open",
    "sej",
    "sql",
    "versioned",
    "yeltsin",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import the packages of the formats, and functions that need pyarrow, on first use."""
    if name in registry.FORMATS:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "dataset":
        from .arrow.dataset import dataset

        return dataset
    if name == "sql":
        from .arrow.query import sql

        return sql
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
