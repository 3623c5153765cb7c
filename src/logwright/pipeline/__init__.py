"""The pipeline: Spark turns any number of journals into tables.

    from logwright.pipeline import Settings
    from logwright.pipeline.run import run

    result = run(Settings("journals", "tables"))      # or: logwright pipeline run --journals journals --out tables

`tables/` defines the tables (DataFrame to DataFrame, usable alone), `settings` the options of a run, `ingest` writes
journals as Parquet without passing rows through the JVM, `commit` publishes all tables of a batch together, `run` runs
the pipeline once, incrementally or continuously, `report/` draws the report, and `restore` writes the journals back
from the tables.
"""

from __future__ import annotations

from .settings import JournalRule, Settings, TableRule, load

__all__ = ["JournalRule", "Settings", "TableRule", "load"]
