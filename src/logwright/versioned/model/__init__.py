"""What the records stand for."""
