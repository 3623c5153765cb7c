"""Tests of the format appendfile."""
