"""The tests of BONJSON."""
