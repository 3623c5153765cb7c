"""The database that the records describe."""
