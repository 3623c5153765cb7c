"""Lets Spark find the source `kestrel`: it imports every module `pyspark_*` and looks for `DefaultSource`."""

from logwright.spark.source import KestrelSource as DefaultSource

__all__ = ["DefaultSource"]
