"""Shared test tools: disks that crash and fail, kinds of damage, counts of the faults that were tried."""
