"""Bytes and records: layout, codec and kernel. Pure: no files, no Arrow, no logging."""
