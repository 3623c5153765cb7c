"""The tests of versioned."""
