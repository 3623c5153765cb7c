"""Plans of repairs, their log, undoing them, and the account of losses."""
