"""kestrel: a queue and its journal."""
