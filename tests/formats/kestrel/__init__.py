"""Kestrel's queue journals."""
