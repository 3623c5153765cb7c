"""Lets Spark find the source `appendfile`: it imports every module `pyspark_*` and looks for `DefaultSource`."""

from logwright.spark.source import AppendfileSource as DefaultSource

__all__ = ["DefaultSource"]
