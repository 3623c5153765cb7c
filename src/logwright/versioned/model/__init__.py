"""The store that the records describe."""
