"""The queue that the records describe."""
