"""The pipeline: any pile of journals as tables, by Spark.

    from logwright.pipeline import Settings
    from logwright.pipeline.run import run

    result = run(Settings("journals", "tables"))      # or: logwright pipeline run --journals journals --out tables

The rooms: `tables` says what the tables are (DataFrame to DataFrame, usable alone), `settings` what can be chosen,
`ingest` how journals become Parquet without a row crossing into the JVM, `commit` how all tables of a batch appear
together, `run` does it once, incrementally or for ever, `report` draws it, and `restore` goes the whole way back.
"""

from __future__ import annotations

from .settings import JournalRule, Settings, TableRule, load

__all__ = ["JournalRule", "Settings", "TableRule", "load"]
