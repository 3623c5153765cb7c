"""Tests of what the formats share."""
