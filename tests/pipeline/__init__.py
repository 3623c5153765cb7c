"""Tests of the pipeline that need no Spark; the others are in tests/spark."""
