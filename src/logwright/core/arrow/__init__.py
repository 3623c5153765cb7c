"""What the columns of all formats share; needs pyarrow."""
