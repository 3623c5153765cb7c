"""versioned: a key-value journal with its whole history. Its values and entries are BONJSON: see `bonjson`."""
