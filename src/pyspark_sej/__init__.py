"""Lets Spark find the source `sej`: it imports every module `pyspark_*` and looks for `DefaultSource`."""

from logwright.spark.source import SejSource as DefaultSource

__all__ = ["DefaultSource"]
