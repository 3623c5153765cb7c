"""Lets Spark find the source `yeltsin`: it imports every module `pyspark_*` and looks for `DefaultSource`."""

from logwright.spark.source import YeltsinSource as DefaultSource

__all__ = ["DefaultSource"]
