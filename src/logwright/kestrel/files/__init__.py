"""Records and files: reading, following, writing, checking and repairing."""
