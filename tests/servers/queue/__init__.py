"""Tests of the queue server."""
