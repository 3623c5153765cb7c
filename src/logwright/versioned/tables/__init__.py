"""Records and tables: Arrow columns, splits, the sink and restoring."""
