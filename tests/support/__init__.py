"""What the tests stand on: disks that crash and fail, a language of damage, counts of what was tried."""
