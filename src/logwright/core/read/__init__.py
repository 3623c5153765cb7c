"""What readers share."""
