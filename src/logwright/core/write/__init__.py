"""What writers share."""
