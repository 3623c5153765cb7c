"""The tests of publishers."""
