"""Files that appear together or not at all."""
