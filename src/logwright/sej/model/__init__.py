"""The state that records describe, and the objects built on it: consumers, retention, shards."""
