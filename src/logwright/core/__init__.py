"""What two or more formats share; standard library only."""
