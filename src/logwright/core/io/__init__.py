"""The file system: disk, locks, watching, durability, and keeping what is cut."""
