"""Tests of the hub and its client."""
