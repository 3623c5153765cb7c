"""Lets Spark find the source `logwright`: it imports every module `pyspark_*` and looks for `DefaultSource`."""

from logwright.spark.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
