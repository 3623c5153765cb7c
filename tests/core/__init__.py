"""Tests of the code that formats share."""
