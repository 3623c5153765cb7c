"""What Logwright is measured against: `python -m benchmarks`, one script per subject.

Machines are noisy, so no figure stands alone: each is a ratio to a peer or a limit that was measured in the same run,
ours and theirs taking turns, and the median of at least three rounds counts. What never waits is measured in processor
time. Message: 13-byte key, 100-byte value, 139 bytes in sej.
"""
