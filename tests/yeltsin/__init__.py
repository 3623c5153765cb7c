"""Tests of the format yeltsin."""
