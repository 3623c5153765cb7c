"""The pipeline turns any number of journals into tables, on Spark if they are large.

    from logwright.pipeline import Settings
    from logwright.pipeline.run import run

    result = run(Settings("journals", "tables"))      # or: logwright pipeline run --journals journals --out tables

`tables` has the columns of all tables, `settings` the options of a run. `plan` finds what is to be read, `task` decodes
it and writes the rows of all tables, `job` does the tasks with or without Spark, `layout` decides which files are
merged or replaced, `publish/` makes a batch visible, `run` runs the pipeline once, incrementally or continuously,
`report/` draws the report, and `restore` writes the journals back from the tables.
"""

from __future__ import annotations

from .settings import Expectation, JournalRule, Settings, TableRule, load

__all__ = ["Expectation", "JournalRule", "Settings", "TableRule", "load"]
