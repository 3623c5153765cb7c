"""Lets Spark find the source `versioned`: it imports every module `pyspark_*` and looks for `DefaultSource`."""

from logwright.spark.source import VersionedSource as DefaultSource

__all__ = ["DefaultSource"]
